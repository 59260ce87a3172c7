"""Finds the rule that makes copies of the left side's messages, or a transform alone."""

from nats_bridge.errors import ConfigError
from nats_bridge.kinds.copying.entry_subjects import compiled_entry
from nats_bridge.kinds.copying.model import CopyingRule, MirrorRule
from nats_bridge.kinds.republish.compiled import compile_rule
from nats_bridge.kinds.republish.model import RepublishRule
from nats_bridge.settings import Settings, Source
from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.errors import EngineError
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing


def rule_of(settings: Settings, name: str, stream: str) -> Sourcing | Republish:
    """Return the rule of this name; refuse one that makes no copies of the stream with a `ConfigError`."""
    rule = settings.rule_named(name)
    version = settings.offline_dialect_of(rule)
    if isinstance(rule, RepublishRule):
        return compile_rule(rule, version)
    if not isinstance(rule, CopyingRule):
        raise ConfigError(
            f"--rule {name}: is of kind {rule.kind}; copies are made by sources, mirror, kv_sources, republish"
        )
    entries = [entry for entry in rule.entries if not stream or entry.name == stream]
    if len(entries) != 1:
        names = ", ".join(dict.fromkeys(entry.name for entry in rule.entries))
        raise ConfigError(
            f"--rule {name}: has {len(entries) or 'no'} entries for stream {stream or '?'}, and one is needed; "
            f"it copies {names}"
        )
    return _compiled(entries[0], version, f"--rule {name}", mirrors=isinstance(rule, MirrorRule))


def transform_of(source: str, destination: str, stream: str) -> Sourcing:
    """Return a transform as the only entry of a stream that copies `stream`; refuse it with a `ConfigError`."""
    entry = Source.model_validate({"name": stream, "subject_transforms": [{"src": source, "dest": destination}]})
    return _compiled(entry, NEWEST, f"--transform {source} {destination}", mirrors=True)


def _compiled(entry: Source, version: Dialect, place: str, *, mirrors: bool) -> Sourcing:
    try:
        return compiled_entry(entry, version, mirrors=mirrors)
    except EngineError as error:
        raise ConfigError(f"{place}: {error}") from None
