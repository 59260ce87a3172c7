"""Computes what a new configuration changes for a running sidecar: rules and connections. Pure."""

from dataclasses import dataclass
from typing import Final

from nats_bridge.client.connection_pool import connections_of
from nats_bridge.kinds.copying.model import CopyingRule, MirrorRule
from nats_bridge.settings import Rule, Settings, Source

_TAKEN_AT_ONCE: Final = frozenset({"connections", "dialect", "log", "reload", "rules", "tests"})
"""Sections that may change while the sidecar runs. All others require a restart."""


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """The difference between two configurations.

    Attributes:
        changed: names of rules that stop, and resume at their position with the new configuration.
        added: names of rules that are new, or of another kind than before.
        removed: names of rules that were removed, or are of another kind than before.
        opened: names of connections that are new, or have other settings than before.
        copied_again: changed rules with a source whose filter or transforms differ, as pairs of rule and source. The
            target has no copies of such a source, so copying begins at its configured start, as native sources do.
        restart: sections that differ and are read at the start only.
        logging: whether the log's section differs.
    """

    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    opened: tuple[str, ...]
    copied_again: tuple[tuple[str, str], ...]
    restart: tuple[str, ...]
    logging: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.touched or self.restart or self.logging)

    @property
    def touched(self) -> tuple[str, ...]:
        """The names of all rules that do not simply keep running, each once."""
        return tuple(dict.fromkeys((*self.changed, *self.added, *self.removed)))


def plan_reload(old: Settings, new: Settings) -> ReloadPlan:
    """Compute the changes from one configuration to another."""
    opened = _opened(old, new)
    before = {rule.name: rule for rule in old.rules}
    after = {rule.name: rule for rule in new.rules}
    same_kind = {name for name in before.keys() & after.keys() if before[name].kind == after[name].kind}
    unchanged = {
        name
        for name in same_kind
        if _with_effective_dialect(before[name], old) == _with_effective_dialect(after[name], new)
        and not opened.intersection(after[name].connections)
    }
    return ReloadPlan(
        changed=tuple(name for name in after if name in same_kind - unchanged),
        added=tuple(name for name in after if name not in same_kind),
        removed=tuple(name for name in before if name not in same_kind),
        opened=tuple(sorted(opened)),
        copied_again=tuple(
            (name, source)
            for name in after
            if name in same_kind - unchanged
            for source in _copied_again(before[name], after[name])
        ),
        restart=_restart(old, new),
        logging=old.log != new.log,
    )


def _with_effective_dialect(rule: Rule, settings: Settings) -> Rule:
    if "dialect" not in type(rule).model_fields:
        return rule
    return rule.model_copy(update={"dialect": settings.dialect_of(rule)})


def _opened(old: Settings, new: Settings) -> set[str]:
    used = connections_of(old)
    return {name for name in connections_of(new) if name not in used or not _same_connection(old, new, name)}


def _same_connection(old: Settings, new: Settings, name: str) -> bool:
    """Return whether both settings reach the same servers in the same way. The contents of secret files may differ."""
    before, after = old.connections.get(name), new.connections.get(name)
    if before is None or after is None:
        return before is after
    # An explicit value takes precedence over a context's, even if it equals the default.
    return before == after and before.model_fields_set == after.model_fields_set


def _restart(old: Settings, new: Settings) -> tuple[str, ...]:
    differing = [
        name
        for name in Settings.model_fields
        if name not in _TAKEN_AT_ONCE and getattr(old, name) != getattr(new, name)
    ]
    leases = new.leadership
    if not differing and leases is not None and not _same_connection(old, new, leases.connection):
        differing.append(f"leadership's connection '{leases.connection}'")
    return tuple(differing)


def _copied_again(old: Rule, new: Rule) -> list[str]:
    """Return the sources that the records in the target do not cover.

    Kept sequences need no records. With `acknowledge`, the position is stored in the source.
    """
    if not isinstance(old, CopyingRule) or not isinstance(new, CopyingRule):
        return []
    if isinstance(new, MirrorRule) and new.keep_sequence:
        return []
    known = [_record_key(entry) for entry in old.entries]
    return [entry.name for entry in new.entries if _record_key(entry) not in known and not entry.acknowledge]


def _record_key(entry: Source) -> tuple[object, ...]:
    return entry.name, entry.filter_subject, entry.subject_transforms, entry.external
