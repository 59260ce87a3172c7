"""Turns needs into grants per connection: each subject once, none that another one covers."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from nats_bridge.client.ended_connections import WHY_IT_ENDED
from nats_bridge.client.jetstream_api import OWN_API, bucket_subject
from nats_bridge.permissions.denying import denied_subjects
from nats_bridge.permissions.need import Need, Way, api_subject, listen, write
from nats_bridge.permissions.stream_facts import KnownStreams
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.leadership.lease_store import bucket_stream, lease_subject
from nats_bridge.settings import Connection, Settings
from nats_bridge.settings.connect_options import connect_options
from nats_bridge.settings.connections import CREDENTIALS
from nats_transforms.subject import is_subset


def _account_needs(inboxes: Mapping[str, str], checked: Set[str]) -> Iterator[Need]:
    """Yield the needs of the sidecar itself to search the accounts for loops."""
    for connection in inboxes:
        if connection not in checked:
            continue
        yield write(
            connection,
            api_subject("STREAM.LIST"),
            "looks for loops",
            without="loops through streams that no rule names are not found",
        )
        for other, theirs in inboxes.items():
            if other != connection and other in checked:
                yield write(
                    connection,
                    f"{theirs}.>",
                    f"sees whether connection {other} reaches the same account",
                    without="loops through both connections are not found, unless both list the same streams",
                )


def _connection_needs(inboxes: Mapping[str, str]) -> Iterator[Need]:
    """Yield the permissions that every connection needs after it was lost."""
    for connection in inboxes:
        yield write(
            connection,
            WHY_IT_ENDED,
            "asks the server whether it ended the connection as a slow consumer's",
            without="two short connections in succession count as a slow consumer's",
        )


def _lease_needs(settings: Settings) -> Iterator[Need]:
    """Yield the needs of the leases of replicas; none without leadership."""
    leases = settings.leadership
    if leases is None:
        return
    connection, stream = leases.connection, bucket_stream(leases.bucket)
    subject = lease_subject(leases.bucket, settings.name, "*")
    published = bucket_subject(api_prefix(settings.connections[connection]), subject)
    yield write(connection, published, "takes, renews and gives back leases")
    yield write(connection, api_subject("STREAM.INFO", stream), "looks for the bucket of the leases")
    yield write(connection, api_subject("STREAM.MSG.GET", stream), "reads leases")
    yield write(
        connection,
        api_subject("STREAM.CREATE", stream),
        "makes the bucket of the leases",
        without="the bucket must exist, and is not recreated if it is deleted",
    )
    for each in dict.fromkeys((subject, published)):
        yield listen(
            connection,
            each,
            "learns that a lease is released, and with share what other replicas lead",
            without="a clean stop of another replica is noticed up to a fifth of ttl later; share does nothing",
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of a user's permissions.

    Attributes:
        way: to publish, or to subscribe.
        subject: the subject; for a subscription optionally a space and a queue group.
        reasons: its purposes with the rules that need it, each once.
        without: the consequence of not having it; empty if something fails.
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
    """The grants of one connection's user.

    Attributes:
        inbox_prefix: under which it gets its answers.
        grants: the lines, those that are needed first.
        denied: commands to the server that a message must not choose, and that the user does not need.
    """

    connection: str
    inbox_prefix: str
    grants: tuple[Grant, ...]
    denied: tuple[str, ...] = ()

    def subjects(self, way: Way) -> list[str]:
        """Return the subjects of one way, also those that can be done without."""
        return [grant.subject for grant in self.grants if grant.way == way]


def grants_of(settings: Settings, known: KnownStreams | None = None) -> list[ConnectionGrants]:
    """Compute the grants of a configuration's connections, in their order.

    Args:
        known: facts about the streams. Without them, the result may contain lines that a stream does not need.

    Raises:
        CredentialsError: a connection's context cannot be read.
    """
    inboxes = _inboxes(settings)
    return _grants(inboxes, _all_needs(settings, inboxes, known or {}), _prefixes(settings, inboxes))


def needs_of(settings: Settings) -> list[Need]:
    """Compute the needs of a configuration, without facts about the streams.

    Raises:
        CredentialsError: a connection's context cannot be read.
    """
    inboxes = _inboxes(settings)
    prefixes = _prefixes(settings, inboxes)
    return [_with_prefix(prefixes[need.connection], need) for need in _all_needs(settings, inboxes, {})]


def _inboxes(settings: Settings) -> dict[str, str]:
    """Return the inbox prefix of each connection that is used."""
    used = {name for rule in settings.rules for name in rule.connections}
    used |= {settings.leadership.connection} if settings.leadership is not None else set()
    return {
        name: str(_options_without_secrets(connection, name)["inbox_prefix"].decode())
        for name, connection in settings.connections.items()
        if name in used
    }


def _prefixes(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    return {name: api_prefix(settings.connections[name]) for name in names}


def _all_needs(settings: Settings, inboxes: Mapping[str, str], known: KnownStreams) -> list[Need]:
    checked = {name for rule in settings.rules for name in rule.connections}
    needs = [*_account_needs(inboxes, checked), *_lease_needs(settings), *_connection_needs(inboxes)]
    for rule in settings.rules:
        # The possible destinations are the same in all dialects as far as permissions are concerned.
        asked = kind_of(rule).needs(rule, settings, settings.offline_dialect_of(rule), known)
        needs += [replace(need, rule=rule.name) for need in asked]
    return needs


def permissions_of(connections: Mapping[str, Connection], needs: Iterable[Need]) -> str:
    """Return the permissions of a command's users, in the format of nats-server.

    Args:
        connections: those that it uses, by their names.
        needs: its needs, besides receiving answers.
    """
    prefixes = {name: api_prefix(each) for name, each in connections.items()}
    return as_text(_grants({name: each.inbox_prefix for name, each in connections.items()}, list(needs), prefixes))


def api_prefix(connection: Connection) -> str:
    """Return the prefix of the connection's requests to JetStream.

    Raises:
        CredentialsError: its context cannot be read.
    """
    return str(_options_without_secrets(connection).get("api_prefix", OWN_API))


def _options_without_secrets(connection: Connection, name: str = "default") -> dict[str, Any]:
    # The files of secrets may only exist where the sidecar runs.
    without = dict.fromkeys((*CREDENTIALS, "password_file", "tls"))
    return connect_options(connection.model_copy(update=without), name)


def _with_prefix(prefix: str, need: Need) -> Need:
    if need.computed or not need.subject.startswith(f"{OWN_API}."):
        return need
    return replace(need, subject=prefix + need.subject[len(OWN_API) :])


def _grants(inboxes: Mapping[str, str], needs: Sequence[Need], prefixes: Mapping[str, str]) -> list[ConnectionGrants]:
    """Turn needs into grants, for each connection of `inboxes`, which names its inbox prefix."""
    found = []
    for name, prefix in inboxes.items():
        answers = listen(name, f"{prefix}.>", "answers and deliveries")
        asked = [answers, *(_with_prefix(prefixes[name], need) for need in needs if need.connection == name)]
        published = [need for need in asked if need.way == "publish"]
        denied = denied_subjects(
            (need.subject for need in published if need.computed),
            (need.subject for need in published if not need.computed),
            prefixes[name],
        )
        found.append(ConnectionGrants(name, prefix, tuple(_granted(asked)), tuple(denied)))
    return found


def _granted(needs: list[Need]) -> Iterator[Grant]:
    """Yield the needs of one connection as lines, required ones first."""
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
    # Permission for a plain subscription includes those in queue groups.
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


_SHARED_INBOXES = "_INBOX"


def as_text(connections: Sequence[ConnectionGrants]) -> str:
    """One `permissions` block per connection, as nats-server reads it, with a comment after every line."""
    return "\n".join(line for connection in connections for line in _block(connection))


def _block(connection: ConnectionGrants) -> Iterable[str]:
    yield f"# connection '{connection.connection}': the permissions of its user"
    if connection.inbox_prefix == _SHARED_INBOXES:
        yield "# with an inbox_prefix of its own, this user could not receive the answers to others"
    yield "permissions: {"
    for way in ("publish", "subscribe"):
        grants = [grant for grant in connection.grants if grant.way == way]
        if not grants:
            # An empty list would allow everything.
            yield f'  {way}: {{ deny: [">"] }}'
            continue
        yield f"  {way}: {{ allow: ["
        width = max(len(json.dumps(grant.subject)) for grant in grants)
        for grant in grants:
            yield f"    {json.dumps(grant.subject, ensure_ascii=False):{width}}  # {_comment(grant)}"
        if way == "publish" and connection.denied:
            yield "  ], deny: [  # commands to the server, which no message may choose"
            yield from (f"    {json.dumps(subject)}" for subject in connection.denied)
        yield "  ] }"
    yield "}"


def as_nsc(connections: Sequence[ConnectionGrants]) -> str:
    """One command of bash per connection that gives its user the same permissions in a JWT, by nsc."""
    return "\n".join(line for connection in connections for line in _command(connection))


def _command(connection: ConnectionGrants) -> Iterable[str]:
    yield f"# connection '{connection.connection}': the permissions of its user, who has none so far"
    yield "permissions=("
    for way, flag in (("publish", "pub"), ("subscribe", "sub")):
        grants = [grant for grant in connection.grants if grant.way == way]
        yield from (f"  --allow-{flag} {_nsc_argument(grant.subject)}  # {_comment(grant)}" for grant in grants)
        if not grants:
            yield f"  --deny-{flag} '>'"
    yield from (f"  --deny-pub {_nsc_argument(subject)}" for subject in connection.denied)
    yield ")"
    yield 'nsc edit user --name NAME "${permissions[@]}"'


def _nsc_argument(subject: str) -> str:
    # nsc reads a line of values that commas separate, and quotes surround.
    plain = not set(subject) & set(',"')
    return shlex.quote(subject if plain else '"' + subject.replace('"', '""') + '"')


def _comment(grant: Grant) -> str:
    by_rules: dict[tuple[str, ...], list[str]] = {}
    for what, rules in grant.reasons:
        by_rules.setdefault(rules, []).append(what)
    reasons = "; ".join(
        ", ".join(whats) + (f" ({', '.join(rules)})" if rules else "") for rules, whats in by_rules.items()
    )
    return f"OPTIONAL: {reasons}; without it {grant.without}" if grant.optional else reasons
