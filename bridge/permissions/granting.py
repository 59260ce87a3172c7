"""From needs to what each connection's user is granted: each subject once, none that another one covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nats_bridge.bridge.kinds.registry import kind_of
from nats_bridge.bridge.permissions.account import account_needs
from nats_bridge.bridge.permissions.leases import lease_needs
from nats_bridge.bridge.permissions.need import Need, Way
from nats_bridge.bridge.permissions.stream_facts import KnownStreams
from nats_bridge.bridge.settings import (
    Rule,
    Settings,
)
from nats_bridge.bridge.settings.connect_options import connect_options
from nats_bridge.bridge.settings.models import NATIVE_DIALECT
from nats_bridge.transforms.dialect import NEWEST, dialect
from nats_bridge.transforms.subject import is_subset

__all__ = ["ConnectionGrants", "Grant", "grants_of"]


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of a user's permissions.

    Attributes:
        way: to publish, or to subscribe.
        subject: what to; for a subscription perhaps with a queue group behind a space.
        reasons: what it is for, with the rules that need it, each once.
        without: what is lost without it; empty where something fails.
    """

    way: Way
    subject: str
    reasons: tuple[tuple[str, tuple[str, ...]], ...]
    without: str

    @property
    def optional(self) -> bool:
        """Whether everything works without it, only less well."""
        return bool(self.without)


@dataclass(frozen=True, slots=True)
class ConnectionGrants:
    """What the user of one connection is granted.

    Attributes:
        connection: its name.
        inbox_prefix: under which it gets its answers.
        grants: the lines, those that are needed first.
    """

    connection: str
    inbox_prefix: str
    grants: tuple[Grant, ...]

    def subjects(self, way: Way, *, optional: bool = True) -> list[str]:
        """The subjects of one way, with or without those that can be done without."""
        return [grant.subject for grant in self.grants if grant.way == way and (optional or not grant.optional)]


def grants_of(settings: Settings, known: KnownStreams | None = None) -> list[ConnectionGrants]:
    """What the users of a configuration's connections must be allowed, in the order of the configuration.

    Args:
        settings: the configuration.
        known: what is known of the streams; without it some lines are there that a stream may not need.

    Raises:
        CredentialsError: a connection's context cannot be read.
    """
    used = {name for rule in settings.rules for name in rule.connections}
    used |= {settings.leadership.connection} if settings.leadership is not None else set()
    inboxes = {
        name: str(connect_options(connection, name)["inbox_prefix"].decode())
        for name, connection in settings.connections.items()
        if name in used
    }
    looked_at = {name for rule in settings.rules for name in rule.connections}
    needs = [*account_needs(inboxes, looked_at), *lease_needs(settings)]
    for rule in settings.rules:
        needs += _needs_of(rule, settings, known or {})
    return [
        ConnectionGrants(name, prefix, tuple(_granted([need for need in needs if need.connection == name])))
        for name, prefix in inboxes.items()
    ]


def _needs_of(rule: Rule, settings: Settings, known: KnownStreams) -> Iterator[Need]:
    text = settings.dialect_of(rule)
    # What a destination can become is the same in all dialects, as far as permissions can tell it.
    version = NEWEST if text == NATIVE_DIALECT else dialect(text)
    return kind_of(rule).needs(rule, settings, version, known)


def _granted(needs: list[Need]) -> Iterator[Grant]:
    """The needs of one connection as lines, required ones first."""
    for required in (True, False):
        for way in ("publish", "subscribe"):
            asked = [need for need in needs if need.way == way]
            # A line that can be done without must not hide one that cannot.
            covering = {need.subject for need in asked if not need.without or not required}
            subjects = dict.fromkeys(need.subject for need in asked if bool(need.without) != required)
            for subject in subjects:
                if any(other != subject and _covers(other, subject) for other in covering):
                    continue
                if not required and any(need.subject == subject and not need.without for need in asked):
                    continue
                same = [need for need in asked if need.subject == subject]
                covered = [need for need in asked if need.subject != subject and _covers(subject, need.subject)]
                if not required:
                    covered = [need for need in covered if need.without]
                losses = dict.fromkeys(need.without for need in (*same, *covered))
                yield Grant(way, subject, _reasons([*same, *covered]), "" if required else "; ".join(losses))


def _covers(wider: str, subject: str) -> bool:
    """Whether who may do the one may do the other; a queue group's subscription is covered by a plain one."""
    wide, _, wide_queue = wider.partition(" ")
    narrow, _, narrow_queue = subject.partition(" ")
    return wide_queue in ("", narrow_queue) and is_subset(narrow.encode(), wide.encode())


def _reasons(needs: Iterable[Need]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    rules: dict[str, dict[str, None]] = {}
    for need in needs:
        named = rules.setdefault(need.why, {})
        if need.rule:
            named[need.rule] = None
    return tuple((why, tuple(named)) for why, named in rules.items())
