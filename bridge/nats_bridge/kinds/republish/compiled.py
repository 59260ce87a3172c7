"""Compiles a republish rule for the engine."""

from nats_bridge.errors import ConfigError
from nats_bridge.kinds.republish.model import RepublishRule
from nats_transforms.dialect import Dialect
from nats_transforms.errors import EngineError
from nats_transforms.republish import Republish, compile_republish


def compile_rule(rule: RepublishRule, dialect: Dialect) -> Republish:
    """Compile the rule's transform with its exclusions.

    Raises:
        ConfigError: the dialect does not support the transform.
    """
    exclude = [pattern.encode() for pattern in rule.exclude]
    where = None if rule.where is None else rule.where.condition
    try:
        return compile_republish(rule.stream, rule.republish.native(), dialect, exclude=exclude, where=where)
    except EngineError as error:
        raise ConfigError(f"rule '{rule.name}': republish: {error}") from None
