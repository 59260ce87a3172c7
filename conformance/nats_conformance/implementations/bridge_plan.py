"""Plans how the bridge plays a case: as another case, without native features, and with rules instead of them.

Theory of operation. republish, subject_transform, sources and mirror are removed from the case's stream configurations
and become rules with the same native objects. A stream that copies, or that has a transform at its ingress, becomes an
ordinary stream with other subjects: those that its rule publishes. Natively it shares no subjects with the account, so
each of these streams is in a separate account, and publishers of its native subjects go there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Expectation,
    Json,
    Publish,
    Update,
    copied_entries,
)
from nats_conformance.subject import CannotPlay
from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.errors import TransformError
from nats_transforms.stream_config.schema import fields_of, stream_request
from nats_transforms.subject import ANY, REST, collide, is_subset, is_valid_filter, matches, tokens
from nats_transforms.transform import compile_transform

FILLER: Final = "nats-bridge-filler"
"""The subject of messages that stand for sequences which the source of a mirror does not have."""

DEAD_LETTERS: Final = "nats-bridge-rejected"
"""The subject for messages that a stream refuses."""

_COPYING: Final = ("sources", "mirror")
_RULES: Final = ("republish", "subject_transform", *_COPYING)
_ORDINARY: Final = "it is about a stream that copies natively; one that a rule fills is an ordinary stream"
_TWO_RULES: Final = "sources and mirror are rules of their own"
_RESTART: Final = "a rule is changed by a restart"
_OF_COPIES: Final = (10022, 10030, 10034, 10046, 10143, 10173, 10186, 10187, 10198, 10209, 10213, 10215, 10216)
_WITHOUT_RULE: Final[Mapping[int | str | None, str]] = {
    **dict.fromkeys(_OF_COPIES, _ORDINARY),
    10031: _TWO_RULES,
    10157: "pedantic mode is asked for in a request to the server",
    10055: _RESTART,
    10142: "the server decides about names of streams",
    "stream configuration update can not change RePublish": _RESTART,  # its number is that of many refusals
    "subject delete markers forbidden on mirrors": _ORDINARY,
}
"""Refusals of the server, by number or text, about settings that no rule has, with the reason."""

_REMOVING: Final = ("workqueue", "interest")


@dataclass(frozen=True, slots=True)
class PlannedRule:
    """A rule in the place of a member of a stream's configuration.

    Attributes:
        kind: of the rule, and the member's name.
        stream: that has the member.
        account: the account of the stream.
        native: the member's value.
        more: further members of the rule.
        sources: for a copying rule, the stream and account of the source of each entry.
        target: of a republish rule, the account that it publishes to.
        decision: the create or update among the steps that it is from; None for the set-up.
        replaced: the one that changed or removed it; None if none did.
    """

    kind: str
    stream: str
    account: int
    native: Json
    more: Mapping[str, Json]
    sources: tuple[tuple[str, int], ...] = ()
    target: int = 0
    decision: int | None = None
    replaced: int | None = None

    def document(self, name: str, connections: Sequence[str], dialect: str) -> dict[str, Json]:
        """Return the rule for the configuration file. `connections` are the names of the accounts' connections."""
        made: dict[str, Json] = {"name": name, "kind": self.kind, "stream": self.stream, "dialect": dialect}
        made[self.kind] = self.native
        match self.kind:
            case "republish":
                made |= {"from": connections[self.account], "to": connections[self.target]}
            case "subject_transform":
                made |= {"from": connections[self.account]}
            case "sources":
                entries = zip(self.native, self.sources, strict=True)
                made["sources"] = [{**entry, "from": connections[account]} for entry, (_, account) in entries]
                made["to"] = connections[self.account]
            case "mirror":
                made["mirror"] = {**self.native, "from": connections[self.sources[0][1]]}
                made["to"] = connections[self.account]
        return {**made, **self.more}


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """The plan for running a case on the bridge.

    Attributes:
        case: the case.
        played: the case as the server gets it: without the members that are rules, and with other subjects of the
            streams that rules fill.
        expectation: the expectation; it only decides which results to observe.
        accounts: of the streams, by name.
        rules: all of them, those that are replaced before the sidecar starts included.
        begin: the number of steps before the sidecar starts.
        native: the native subjects of streams in separate accounts.
    """

    case: Case
    played: Case
    expectation: Expectation
    accounts: Mapping[str, int]
    native: Mapping[str, tuple[str, ...]]
    rules: tuple[PlannedRule, ...]
    begin: int

    @property
    def size(self) -> int:
        """The number of accounts it needs."""
        return max(self.accounts.values(), default=0) + 1

    @property
    def is_about_messages(self) -> bool:
        """Whether more is to be seen than decisions."""
        seen = self.expectation
        return any(isinstance(step, Publish) for step in self.case.steps) or bool(seen.received or seen.stored)

    def account(self, subject: bytes) -> int:
        """Return the account in which a message is published."""
        for stream, patterns in self.native.items():
            if any(matches(subject, pattern.encode()) for pattern in patterns):
                return self.accounts[stream]
        return 0


def plan(case: Case, dialect: Dialect, server: Dialect) -> BridgePlan:
    """Return the plan for a case on a bridge with this dialect, connected to a server.

    Raises:
        CannotPlay: it is about nothing that the bridge does.
    """
    expectation = case.expected(dialect.version)
    _refuse(case, expectation, dialect, server)
    draft = _Draft(case, expectation, dialect)
    accounts = draft.accounts()
    native = {
        name: tuple(dict.fromkeys(text for config in draft.configs_of(name) for text in _texts(config.get("subjects"))))
        for name in draft.reshaped
    }
    rules = tuple(replace(rule, **draft.places(rule, accounts)) for rule in draft.rules)
    return BridgePlan(case, draft.played(), expectation, accounts, native, rules, draft.begin)


def _refuse(case: Case, expectation: Expectation, dialect: Dialect, server: Dialect) -> None:
    if case.scenario is not None:
        raise CannotPlay("a scenario is about servers")
    if case.harms_server(dialect.version):
        raise CannotPlay("it is about a server that ends or never comes to rest; the bridge refuses or warns")
    configs = case.configs
    if all(_is_empty(config, *_RULES) for config in configs):
        raise CannotPlay("nothing in it is done by a rule")
    refusal = expectation.refusal
    for mark in (refusal.err_code, refusal.description) if refusal is not None else ():
        if mark in _WITHOUT_RULE:
            raise CannotPlay(_WITHOUT_RULE[mark])
    if dialect.version[:2] != server.version[:2]:
        if "store" in case.needs:
            raise CannotPlay("what the stream keeps is the server's doing, which is of another version")
        if any(ack is not None and "err_code" in ack for ack in expectation.acks or ()):
            raise CannotPlay("what a stream refuses is the server's decision, which is of another version")
        # No rule adds members that the server of a stream lacks; pedantic mode belongs to the request.
        known, newest = (fields_of(stream_request(), each).keys() for each in (server, NEWEST))
        lacking = newest - known - {*_RULES, "pedantic"}
        for member in (member for config in configs for member in config if member in lacking):
            raise CannotPlay(f"'{member}' of a stream is unknown to {server.name}")
    for config in configs:
        if not _is_empty(config, "subject_transform") and not _is_empty(config, *_COPYING):
            raise CannotPlay("copies of a rule do not pass an ingress rule")
        if not _is_empty(config, "mirror") and not _is_empty(config, "sources"):
            raise CannotPlay(_TWO_RULES)
        if any(isinstance(entry, Mapping) and "consumer" in entry for entry in copied_entries(config)):
            raise CannotPlay("a rule makes its own consumer")


class _Draft:
    """A plan in the making."""

    def __init__(self, case: Case, expectation: Expectation, dialect: Dialect) -> None:
        self._case = case
        self._expectation = expectation
        self._dialect = dialect
        self.rules: list[PlannedRule] = []
        self.begin = _beginning(case)
        self._last: dict[str, Mapping[str, Json]] = {}
        self.reshaped: list[str] = []
        for config in case.streams:
            self._take(config, None, at=-1)
        decision = 0
        for at, step in enumerate(case.steps):
            match step:
                case Create(config) | Update(config):
                    self._take(config, decision, at)
                    decision += 1

    def _take(self, config: Mapping[str, Json], decision: int | None, at: int) -> None:
        name = config.get("name")
        if not isinstance(name, str) or not name:
            raise CannotPlay("a stream without a name has no rule")
        before = self._last.get(name, {})
        changed = [key for key in _RULES if _member(config, key) != _member(before, key)]
        if changed and name in self._last and at >= self.begin:
            raise CannotPlay("it changes a rule that is running, which needs a reload")
        for key in changed:
            self.rules = [
                replace(rule, replaced=decision)
                if (rule.stream, rule.kind) == (name, key) and rule.replaced is None
                else rule
                for rule in self.rules
            ]
            if not _is_empty(config, key):
                more = self._more(name, config, key)
                self.rules.append(PlannedRule(key, name, 0, config[key], more, decision=decision))
        self._last[name] = config
        if not _is_empty(config, *_COPYING, "subject_transform") and name not in self.reshaped:
            self.reshaped.append(name)

    def _more(self, name: str, config: Mapping[str, Json], kind: str) -> dict[str, Json]:
        """Members of the rule in addition to the native ones."""
        if kind == "republish" and config.get("retention") == "workqueue":
            return {"durable": False, "allow_side_effects": True}
        if kind == "republish" and not _is_empty(config, "mirror"):
            return {"exclude": [FILLER]}
        if kind not in _COPYING:
            return {}
        more: dict[str, Json] = {"on_rejected": {"skip": DEAD_LETTERS}, "on_recreated": "restart"}
        expected = (self._expectation.stored or {}).get(name, ())
        # A case that observes the sequences of a mirror's messages expects those of the source.
        if kind == "mirror" and (config.get("republish") or any(each.sequence is not None for each in expected)):
            more |= {"keep_sequence": True, "filler_subject": FILLER}
        return more

    def config_of(self, name: str) -> Mapping[str, Json]:
        """Return the last configuration of a stream."""
        return self._last.get(name, {})

    def configs_of(self, name: str) -> list[Mapping[str, Json]]:
        """Return all configurations of a stream."""
        return [config for config in self._case.configs if config.get("name") == name]

    def accounts(self) -> dict[str, int]:
        """Return the account of each stream; only reshaped ones have separate accounts."""
        own = {name: number for number, name in enumerate(self.reshaped, 1)}
        return {name: own.get(name, 0) for name in self._last}

    def places(self, rule: PlannedRule, accounts: Mapping[str, int]) -> dict[str, Any]:
        """Return the accounts of a rule."""
        account = accounts[rule.stream]
        found: dict[str, Any] = {"account": account}
        if rule.kind == "republish":
            # Natively all streams are in one account. A message for a stream is sent to the account of that stream.
            destination = _covering(_text(rule.native, "src"), _text(rule.native, "dest"), self._dialect)
            takers = [
                accounts[name]
                for name in (rule.stream, *self.reshaped)
                for subject in _texts(self.config_of(name).get("subjects"))
                if collide(destination, subject.encode())
            ]
            found["target"] = takers[0] if takers else 0
        if rule.kind in _COPYING:
            entries = rule.native if rule.kind == "sources" else [rule.native]
            if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
                raise CannotPlay("its sources are no list of entries")
            # Natively this needs no setting: the source's server removes copied messages.
            taken = [self.config_of(_text(entry, "name")).get("retention") in _REMOVING for entry in entries]
            if any(taken):
                entries = [
                    {**entry, "acknowledge": True} if is_taken else entry
                    for entry, is_taken in zip(entries, taken, strict=True)
                ]
                found["native"] = entries if rule.kind == "sources" else entries[0]
            found["sources"] = tuple((_text(entry, "name"), accounts.get(_text(entry, "name"), 0)) for entry in entries)
        return found

    def played(self) -> Case:
        """Return the case as the server gets it."""
        subjects = {name: self.subjects(name) for name in self.reshaped}

        def without_rules(config: Mapping[str, Json]) -> dict[str, Json]:
            made = {key: value for key, value in config.items() if key not in _RULES}
            name = str(config.get("name"))
            if name in subjects and not _is_empty(config, *_COPYING, "subject_transform"):
                made["subjects"] = list(subjects[name])
                if not _is_empty(config, "mirror"):
                    made.pop("mirror_direct", None)
            return made

        return self._case.with_configs(without_rules)

    def subjects(self, name: str) -> tuple[str, ...]:
        """Return the subjects of a reshaped stream: its own, and those that its rule publishes."""
        config = self.config_of(name)
        if _is_empty(config, "subject_transform"):
            return self._of_copies(name, config)
        return self._of_ingress([each for each in self.configs_of(name) if not _is_empty(each, "subject_transform")])

    def _of_copies(self, name: str, config: Mapping[str, Json]) -> tuple[str, ...]:
        own = _texts(config.get("subjects"))
        firsts = dict.fromkeys(
            token for pattern in self._copied(config) if (token := tokens(pattern)[0]) not in (ANY, REST)
        )
        if any(tokens(pattern)[0] in (ANY, REST) for pattern in self._copied(config)):
            # A stream for everything would store requests to the server, so list only the mentioned subjects.
            stored = [each.subject for each in (self._expectation.stored or {}).get(name, ())]
            published = [step.message.subject for step in self._case.steps if isinstance(step, Publish)]
            firsts |= dict.fromkeys(tokens(subject)[0] for subject in (*stored, *published))
        found = [FILLER] if not _is_empty(config, "mirror") else []
        for first in firsts:
            if is_valid_filter(first):
                text = first.decode("utf-8", "surrogateescape")
                found += [text, f"{text}.>"]
        broad = [pattern.encode() for pattern in own if "*" in pattern or ">" in pattern]
        found = [each for each in found if not any(is_subset(each.encode(), pattern) for pattern in broad)]
        return (*found, *(each for each in own if not any(collide(each.encode(), one.encode()) for one in found)))

    def _copied(self, config: Mapping[str, Json], *before: str) -> Iterator[bytes]:
        """Yield patterns of the copies in a stream. `before` are streams that it is copied into in turn."""
        for entry in copied_entries(config):
            if not isinstance(entry, Mapping):
                continue
            transforms = [each for each in entry.get("subject_transforms") or () if isinstance(each, Mapping)]
            for each in transforms:
                yield _covering(_text(each, "src"), _text(each, "dest") or _text(each, "src"), self._dialect)
            if transforms:
                continue
            if wanted := _text(entry, "filter_subject"):
                yield wanted.encode()
            else:
                name = _text(entry, "name")
                source = self.config_of(name)
                yield from (subject.encode() for subject in _texts(source.get("subjects")))
                if name not in before:
                    yield from self._copied(source, *before, name)

    def _of_ingress(self, configs: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
        """Return the subjects of destinations, and the published ones that no transform matches."""
        own = [text.encode() for config in configs for text in _texts(config.get("subjects"))]
        sources: list[bytes] = []
        found: list[bytes] = []
        for config in configs:
            member = config["subject_transform"]
            if not isinstance(member, Mapping):
                raise CannotPlay("its subject_transform is no object")
            source, destination = _text(member, "src"), _text(member, "dest")
            if source in ("", ">"):
                raise CannotPlay("an ingress rule names the subjects that it takes; this source is every subject")
            sources.append(source.encode())
            pattern = _covering(source, destination, self._dialect) if destination else source.encode()
            is_possible = is_valid_filter(pattern) and not pattern.startswith(b"$JS.")
            if not any(is_subset(pattern, each) for each in found):
                found.append(pattern if is_possible else FILLER.encode())
        for step in self._case.steps:
            if isinstance(step, Publish) and any(matches(step.message.subject, each) for each in own):
                subject = step.message.subject
                if not any(matches(subject, each) for each in (*sources, *found)):
                    found.append(subject)
        if any(collide(each, source) for each in found for source in sources):
            raise CannotPlay("the source of an ingress rule belongs to no stream; this destination lies in it")
        return tuple(dict.fromkeys(each.decode("utf-8", "surrogateescape") for each in found))


def _beginning(case: Case) -> int:
    """Return the number of steps before the sidecar starts.

    Up to the first configuration with a rule, and those after it.
    """
    at = 0
    if all(_is_empty(config, *_RULES) for config in case.streams):
        while at < len(case.steps):
            step = case.steps[at]
            at += 1
            if isinstance(step, Create | Update) and not _is_empty(step.config, *_RULES):
                break
    while at < len(case.steps) and isinstance(case.steps[at], Create | Update):
        at += 1
    return at


def _is_empty(config: Mapping[str, Json], *members: str) -> bool:
    return not any(_member(config, member) for member in members)


def _member(config: Mapping[str, Json], name: str) -> Json:
    return config.get(name) or None


def _text(value: Json, name: str) -> str:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""


def _texts(value: Json) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _covering(source: str, destination: str, dialect: Dialect) -> bytes:
    """Return a pattern of a transform's results; the destination unchanged if the transform is invalid."""
    try:
        return compile_transform(source.encode(), destination.encode(), dialect).covering
    except TransformError:
        return destination.encode()
