"""Compares a native stream configuration with the features of a server, and proposes rules for the rest.

Theory of operation: the configuration is taken apart into its features (republish, the ingress transform, each source,
the mirror). The engine decides of each alone what servers of that version make of it: they do it, refuse it, or leave
something out silently. What they do not do, and what the stream is not, a rule does, if it can from outside; the
stream must be another one then; the change is printed (`StreamChange`), and the user makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from nats_bridge.bridge.cli.init.asked_for import republishing
from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.cli.init.native_shortfall import shortfall
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule
from nats_bridge.bridge.cli.init.stream_change import StreamChange
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.jobs.handoff.stream_body import body_of
from nats_bridge.bridge.kinds.copying.target_subjects import destinations
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.errors import StreamConfigError
from nats_bridge.transforms.sourcing import compile_sourcing
from nats_bridge.transforms.stream_config import examine
from nats_bridge.transforms.subject import REST, collide, is_subset
from nats_bridge.transforms.transform import compile_transform

_FEATURES = ("republish", "subject_transform", "sources", "mirror")


class Answer(StrEnum):
    """Whether the server or a rule provides a feature."""

    NATIVE = "native"
    """The server does it for this stream."""
    POSSIBLE = "possible"
    """The server can do it; the stream has to be given it."""
    RULE = "rule"
    """A rule does it."""
    IMPOSSIBLE = "impossible"
    """Neither the server nor a rule can."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the server or a rule provides a feature of a configuration, and why.

    Attributes:
        feature: where it stands, such as `sources[0]`, and what it is.
        answer: which of the two.
        text: the reason, a line.
    """

    feature: str
    answer: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A configuration against a server.

    Attributes:
        stream: the stream's name.
        verdicts: one for each feature.
        rules: those proposed.
        change: what must become of the stream before they can run; None if it can stay.
    """

    stream: str
    verdicts: tuple[Verdict, ...]
    rules: tuple[ProposedRule, ...]
    change: StreamChange | None


def compare(wanted: Mapping[str, Any], seen: Landscape) -> Comparison:
    """Compare a configuration with what the server does, and with what rules would do.

    Args:
        wanted: the native configuration, as in STREAM.CREATE or STREAM.INFO.
        seen: the cluster.

    Raises:
        ConfigError: no version of the server would take it.
    """
    given = body_of(dict(wanted))
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError("no stream configuration: it has no name; give what `nats stream info NAME --json` prints")
    try:
        normal = examine(given, NEWEST, strict=False).config
    except StreamConfigError as error:
        raise ConfigError(
            f"stream '{name}': no server takes this configuration: {error.description} ({error.err_code})"
        ) from None
    return _Comparing(given, normal, seen).compared()


class _Comparing:
    def __init__(self, given: Json, normal: Json, seen: Landscape) -> None:
        self._normal = normal
        self._seen = seen
        self._name = str(normal["name"])
        self._present = seen.config(self._name)
        self._verdicts: list[Verdict] = []
        self._rules: list[ProposedRule] = []
        # The stream's configuration with what rules need of it; one to be created has what no rule provides.
        plain = {key: value for key, value in given.items() if key not in _FEATURES}
        self._body: Json = plain if self._present is None else body_of(self._present)
        self._notes: list[str] = []
        self._again = False  # the stream has to be recreated
        self._holds_wrong = False  # the server has copied into it what it should not

    def compared(self) -> Comparison:
        self._republish()
        self._ingress()
        self._sources()
        self._mirror()
        change = self._change()
        before = () if change is None else (f"Before it runs, {change.summary}.",)
        rules = tuple(ProposedRule(rule.data, (*rule.why, *before)) for rule in self._rules)
        return Comparison(self._name, tuple(self._verdicts), rules, change)

    # -- features ----------------------------------------------------------------------------------------------------

    def _republish(self) -> None:
        wanted = self._normal.get("republish") or {}
        if not wanted.get("dest"):
            return
        feature = f"republish {wanted.get('src') or '>'} to {wanted['dest']}"
        there = (self._present or {}).get("republish") or {}
        same = self._present is not None and all((there.get(key) or "") == (wanted.get(key) or "") for key in wanted)
        reason = self._left_to_do(feature, "republish", wanted, is_there=same)
        if not reason:
            return
        seen = self._seen.with_config(self._present or self._body)
        src, dest, bare = wanted.get("src") or ">", wanted["dest"], bool(wanted.get("headers_only"))
        rule = republishing(seen, self._name, src, dest, headers_only=bare)
        self._propose(feature, rule, reason)

    def _ingress(self) -> None:
        wanted = self._normal.get("subject_transform") or {}
        if not wanted.get("dest"):
            return
        src, dest = wanted.get("src") or ">", wanted["dest"]
        feature = f"subject_transform {src} to {dest}"
        there = (self._present or {}).get("subject_transform") or {}
        is_there = (there.get("src") or ">", there.get("dest")) == (src, dest)
        reason = self._left_to_do(feature, "subject_transform", wanted, is_there=is_there)
        if not reason:
            return
        if src not in (self._normal.get("subjects") or ()):
            self._say(
                feature,
                Answer.IMPOSSIBLE,
                f"{reason}; a rule takes whole subjects of a stream from it, and '{src}' is none of them",
            )
            return
        data = {
            "name": f"{self._name}-ingress",
            "kind": "subject_transform",
            "stream": self._name,
            "subject_transform": {"src": src, "dest": dest},
        }
        self._propose(feature, ProposedRule(data), reason)
        before = list(self._body.get("subjects") or ())
        subjects = [subject for subject in before if subject != src]
        stored = compile_transform(src.encode(), dest.encode(), NEWEST).covering.decode()
        subjects += _missing([stored], subjects)
        if subjects == before:
            return  # it was changed already
        self._body["subjects"] = subjects
        self._notes.append(
            f"it takes {stored} instead of {src}: publishers of {src} get 'no responders' from then on until the"
            " sidecar runs"
        )

    def _sources(self) -> None:
        wanted = list(self._normal.get("sources") or ())
        there = list((self._present or {}).get("sources") or ())
        taken: list[tuple[Json, str]] = []
        for number, entry in enumerate(wanted):
            feature = f"sources[{number}], from {entry['name']}"
            is_there = any(_same_entry(entry, other) for other in there)
            reason = self._left_to_do(feature, "sources", [entry], f"sources[{number}]", is_there=is_there)
            if reason and (obstacle := self._against_copying(entry)):
                self._say(feature, Answer.IMPOSSIBLE, f"{reason}; {obstacle}")
            elif reason:
                self._say(feature, Answer.RULE, reason)
                taken.append((entry, reason))
        if not taken:
            return
        data = {
            "name": f"{self._name}-sources",
            "kind": "sources",
            "stream": self._name,
            "sources": [_as_rule(entry) for entry, _ in taken],
        }
        why = f"Stream {self._name} gets copies from {' and '.join(entry['name'] for entry, _ in taken)}."
        self._rules.append(ProposedRule(data, (why, *dict.fromkeys(_sentence(reason) for _, reason in taken))))
        self._receive([entry for entry, _ in taken])

    def _mirror(self) -> None:
        wanted = self._normal.get("mirror")
        if not wanted:
            return
        feature = f"mirror, of {wanted['name']}"
        there = (self._present or {}).get("mirror")
        is_there = bool(there) and _same_entry(wanted, there or {})
        reason = self._left_to_do(feature, "mirror", wanted, is_there=is_there)
        if not reason:
            return
        if obstacle := self._against_copying(wanted):
            self._say(feature, Answer.IMPOSSIBLE, f"{reason}; {obstacle}")
            return
        data = {
            "name": f"{self._name}-mirror",
            "kind": "mirror",
            "stream": self._name,
            "mirror": _as_rule(wanted),
        }
        why = f"Stream {self._name} gets copies of {wanted['name']}."
        self._propose(feature, ProposedRule(data, (why,)), reason)
        if there:
            self._body.pop("mirror")
            self._body.pop("mirror_direct", None)
        self._again = bool(there)
        self._receive([wanted])

    # -- what stands in the way --------------------------------------------------------------------------------------

    def _left_to_do(self, feature: str, member: str, value: Any, shown: str = "", *, is_there: bool) -> str:
        """Why a feature needs a rule; empty where the server provides it, or can, which is reported then."""
        lacks = shortfall(self._normal, self._seen, member, value, shown or member, is_there=is_there)
        if lacks is None:
            self._say(feature, Answer.NATIVE, f"server {self._seen.server_version} does it")
            return ""
        if not lacks.can:
            return lacks.text
        self._say(feature, Answer.POSSIBLE, lacks.text)
        if self._present is None:
            # A stream that is created for the rules needs that, too.
            self._body[member] = [*(self._body.get(member) or ()), *value] if member == "sources" else value
        return ""

    def _against_copying(self, entry: Json) -> str:
        """Why a rule cannot copy into the stream; empty where it can."""
        if entry.get("external"):
            return (
                f"a rule needs a connection that reaches '{entry['name']}', and only this one is known here: write the"
                " rule yourself, with from:"
            )
        for pattern in _stored(entry):
            if taker := next((name for name in self._seen.takers(pattern) if name != self._name), ""):
                return (
                    f"copies on {pattern} would be stored by stream '{taker}', too, because a rule publishes them as"
                    " any client does: choose destinations of their own"
                )
        return ""

    # -- what the stream has to become -------------------------------------------------------------------------------

    def _receive(self, entries: list[Json]) -> None:
        """Make the stream take copies from a client: without native sources, with subjects for the copies."""
        left = []
        for native in self._body.get("sources") or ():
            if any(native["name"] == entry["name"] and _selects_the_same(native, entry) for entry in entries):
                self._holds_wrong = True
                self._notes.append(f"it no longer sources {native['name']} natively")
            else:
                left.append(native)
        self._body.pop("sources", None)
        if left:
            self._body["sources"] = left
        subjects = list(self._body.get("subjects") or ())
        for entry in entries:
            subjects += _missing(_stored(entry), subjects)
        self._body["subjects"] = subjects
        self._notes.append(f"it takes {', '.join(subjects)}, on which the rule publishes its copies")

    def _change(self) -> StreamChange | None:
        if not self._rules:
            return None
        before = None if self._present is None else body_of(self._present)
        if before == self._body:
            return None
        state = (self._seen.streams.get(self._name) or {}).get("state") or {}
        messages = int(state.get("messages", 0))
        wrong = messages if self._again or self._holds_wrong else 0
        how: Literal["create", "update", "recreate"] = (
            "create" if before is None else "recreate" if self._again else "update"
        )
        return StreamChange(self._name, how, self._body, tuple(self._notes), wrong)

    # -- words -------------------------------------------------------------------------------------------------------

    def _say(self, feature: str, answer: Answer, text: str) -> None:
        self._verdicts.append(Verdict(feature, answer, text))

    def _propose(self, feature: str, rule: ProposedRule, reason: str) -> None:
        self._say(feature, Answer.RULE, reason)
        self._rules.append(ProposedRule(rule.data, (*rule.why, _sentence(reason))))


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _same_entry(one: Json, other: Json) -> bool:
    return _identity(one) == _identity(other)


def _identity(entry: Json) -> tuple[object, ...]:
    transforms = tuple(
        (each.get("src") or "", each.get("dest") or "") for each in entry.get("subject_transforms") or ()
    )
    external = entry.get("external") or {}
    return entry["name"], entry.get("filter_subject") or "", transforms, external.get("api") or ""


def _as_rule(entry: Json) -> Json:
    """An entry of sources as a rule has it: without what is empty."""
    kept = {key: value for key, value in entry.items() if value not in (None, "", [], 0)}
    if transforms := kept.get("subject_transforms"):
        kept["subject_transforms"] = [{key: value for key, value in each.items() if value} for each in transforms]
    return kept


def _stored(entry: Json) -> list[str]:
    """Patterns of the subjects of an entry's copies."""
    return [pattern.decode() for pattern in destinations(compile_sourcing(entry, NEWEST))]


def _missing(patterns: list[str], subjects: list[str]) -> Iterator[str]:
    """The patterns that none of a stream's subjects covers."""
    found: list[str] = []
    for pattern in patterns:
        if not any(is_subset(pattern.encode(), subject.encode()) for subject in (*subjects, *found)):
            found.append(pattern)
    return iter(found)


def _selects_the_same(one: Json, other: Json) -> bool:
    """Whether some subjects are selected by both entries."""
    mine, theirs = (compile_sourcing(entry, NEWEST).filters or (REST,) for entry in (one, other))
    return any(collide(a, b) for a in mine for b in theirs)
