"""Checks an advisories rule."""

from nats_bridge.errors import ConfigError
from nats_bridge.kinds.advisories.model import AdvisoriesRule
from nats_transforms.dialect import Dialect
from nats_transforms.errors import EngineError
from nats_transforms.republish import Republish, compile_republish


def compile_advisories(rule: AdvisoriesRule, dialect: Dialect) -> Republish:
    """Return the rule's transform, from an advisory's subject to the destination.

    Raises:
        ConfigError: it cannot be one, or its results would be advisories.
    """
    place = f"rule '{rule.name}': republish"
    source, destination = rule.republish.src, rule.republish.dest
    for token in source.split("."):
        if token.startswith("*") and token != "*":
            raise ConfigError(f"{place}: src '{source}': token '{token}' is not a wildcard; write '*'")
    try:
        compiled = compile_republish(b"", rule.republish.native(), dialect)
    except EngineError as error:
        raise ConfigError(f"{place}: from '{source}' to '{destination}': {error}") from None
    if compiled.transform.defects:
        raise ConfigError(f"{place}: dest '{destination}': partition of 0 crashes servers of {dialect}; use 1 or more")
    if destination == ">":
        raise ConfigError(
            f"{place}: dest '{destination}' is where advisories come from; they would come back; use another subject"
        )
    return compiled
