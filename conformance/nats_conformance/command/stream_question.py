"""Tests a stream configuration on each version: which members it refuses, ignores and changes, and how messages
change."""

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Expectation,
    ExpectedRefusal,
    Level,
    Message,
    Publish,
    copied_entries,
)
from nats_conformance.errors import ConformanceError
from nats_conformance.implementations.native import NativeSubject
from nats_conformance.judging import shown
from nats_conformance.observation import Observation
from nats_conformance.server_features import changes
from nats_transforms.dialect import server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import examine
from nats_transforms.subject import is_subset

_ABSENT = object()
_UNKNOWN = re.compile(r'unknown field "(\w+)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """One version's answer.

    Attributes:
        refusal: why it does not take the configuration.
        without: members that it refuses because it does not know them. All that follows is about the rest.
        then: why it does not take the rest.
        ignored: members of the request that are missing in the answer, such as `sources[0].subject_transforms`.
        changed: members that came back as something else: member, as given, as it came back.
        warnings: the engine's sentences about this version and configuration.
        becomes: a line for each published message with its result.
        brings: features relevant for the stream that lines since the previous version have added: line, title, meaning.
    """

    version: str
    refusal: ExpectedRefusal | None = None
    without: tuple[str, ...] = ()
    then: ExpectedRefusal | None = None
    ignored: tuple[str, ...] = ()
    changed: tuple[tuple[str, str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    becomes: tuple[str, ...] = ()
    brings: tuple[tuple[str, str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        made = {**asdict(self), "refused": self.refusal and asdict(self.refusal)}
        del made["refusal"]
        made["changed"] = [{"member": name, "given": given, "returned": back} for name, given, back in self.changed]
        made["brings"] = [{"since": since, "feature": title, "what": what} for since, title, what in self.brings]
        return made

    @property
    def is_accepted(self) -> bool:
        """Whether the version takes the configuration, or the rest of it."""
        return self.then is None and (self.refusal is None or bool(self.without))

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer as lines, which are equal for versions that behave alike."""
        lines = [f"refused: {self.refusal.err_code} {self.refusal.description}"] if self.refusal else []
        lines += [f"without {', '.join(self.without)}:"] if self.without else []
        lines += [f"refused: {self.then.err_code} {self.then.description}"] if self.then else []
        if not self.is_accepted:
            return tuple(lines)
        return (
            *lines,
            "accepted",
            *(f"ignored: {name}" for name in self.ignored if not any(name in text for text in self.warnings)),
            *(f"changed: {name}: {given} became {back}" for name, given, back in self.changed),
            *(f"beware: {text}" for text in self.warnings),
            *self.becomes,
        )


def read_stream(file: Path) -> dict[str, Any]:
    """Read a stream configuration from a file: the output of `nats stream info --json`, or the bare object.

    Raises:
        ConformanceError: not JSON, or no object with a name.
    """
    try:
        value = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConformanceError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConformanceError(f"{file}: not JSON: {error}") from None
    if isinstance(value, dict) and isinstance(value.get("config"), dict):
        value = value["config"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ConformanceError(f"{file}: expected a stream configuration: an object with at least a name")
    return value


def subjects_to_try(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return an example of each of a stream's subjects, for at most ten of them: `orders.*.>` becomes `orders.a.b`.

    If the stream's republish or transform selects only a part of such a subject, the example is in that part:
    `orders.>` becomes `orders.a.b` if `republish.src` is `orders.*.*`.
    """
    rules = [config.get(member) for member in ("republish", "subject_transform")]
    selected = [str(rule["src"]) for rule in rules if isinstance(rule, Mapping) and rule.get("src")]
    tried: list[str] = []
    for subject in [str(each) for each in config.get("subjects") or ()][:10]:
        narrower = [each for each in selected if is_subset(each.encode(), subject.encode())]
        for pattern in dict.fromkeys(narrower or [subject]):
            names = iter("abcdefghijklmnopqrstuvwxyz")
            tried.append(".".join(next(names, "z") if token in ("*", ">") else token for token in pattern.split(".")))
    return tuple(dict.fromkeys(tried))


def on_one_server(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the configuration that a single server can take, and a remark for each difference to a cluster."""
    made, remarks = dict(config), []
    replicas = config.get("num_replicas")
    if isinstance(replicas, int) and replicas > 1:
        made["num_replicas"] = 1
        remarks.append(f"played on one server, with num_replicas 1 instead of {replicas}")
    if made.pop("placement", None):
        remarks.append("played on one server, without placement")
    if copied := [str(entry.get("name")) for entry in copied_entries(config) if isinstance(entry, Mapping)]:
        remarks.append(f"played without {', '.join(copied)}, so copies are not compared")
    return made, tuple(remarks)


async def answers(
    config: Mapping[str, Any], publish: Sequence[str], binaries: Mapping[str, Path]
) -> tuple[Answer, ...]:
    """Ask a private server of every version.

    Raises:
        SubjectError: a server cannot be started, or does not answer.
    """
    found: list[Answer] = []
    with tempfile.TemporaryDirectory(prefix="nats-bridge-config-", ignore_cleanup_errors=True) as folder:
        for version, binary in binaries.items():
            between = [*(each.version for each in found[-1:]), version]
            answer = await _answer(config, publish, version, binary, Path(folder))
            found.append(replace(answer, brings=tuple(changes(config, between))))
    return tuple(found)


async def _answer(
    config: Mapping[str, Any], publish: Sequence[str], version: str, binary: Path, folder: Path
) -> Answer:
    messages = tuple(Publish(Message(subject.encode(), payload=b"%d" % at)) for at, subject in enumerate(publish))
    given, without, refusals = dict(config), [], []
    subject = NativeSubject(version, binary, folder, at_once=1)
    try:
        await subject.open()
        while True:
            # Everything is stored and republished when its publisher is answered. To wait for copies would be in vain:
            # the streams of sources and mirrors do not exist here.
            case = Case(
                id="native/question/1",
                title="a stream configuration",
                level=Level.OBSERVED,
                expectation=Expectation(received=()),
                steps=(Create(given), *messages),
                listen=(b">",),
            )
            observation = await subject.play(case)
            decision = observation.decisions[0]
            if decision.refusal is None:
                break
            refusals.append(decision.refusal)
            unknown = _UNKNOWN.search(decision.refusal.description or "")
            if unknown is None or given.pop(unknown[1], _ABSENT) is _ABSENT:
                break
            without.append(unknown[1])
    finally:
        await subject.close()
    then = decision.refusal if without else None
    answer = Answer(version, refusals[0] if refusals else None, tuple(without), then)
    if not answer.is_accepted:
        return answer
    ignored: list[str] = []
    changed: list[tuple[str, str, str]] = []
    _compare("", given, decision.config, ignored, changed)
    return replace(
        answer,
        ignored=tuple(ignored),
        changed=tuple(changed),
        warnings=_warnings(given, version),
        becomes=tuple(_becomes(at, subject, observation, str(config["name"])) for at, subject in enumerate(publish)),
    )


def _compare(path: str, given: Any, back: Any, ignored: list[str], changed: list[tuple[str, str, str]]) -> None:
    """Collect the members that are missing or different in the answer."""
    if isinstance(given, Mapping) and isinstance(back, Mapping):
        for name, value in given.items():
            place = f"{path}.{name}" if path else str(name)
            if name in back:
                _compare(place, value, back[name], ignored, changed)
            elif value not in (None, "", 0, False, [], {}):
                ignored.append(place)
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for at, (value, other) in enumerate(zip(given, back, strict=True)):
            _compare(f"{path}[{at}]", value, other, ignored, changed)
    elif given != back:
        changed.append((path, json.dumps(given), json.dumps(back)))


def _warnings(config: Mapping[str, Any], version: str) -> tuple[str, ...]:
    try:
        return tuple(warning.sentence for warning in examine(config, server_dialect(version)).warnings)
    except StreamConfigError:
        return ()


def _becomes(at: int, subject: str, observation: Observation, stream: str) -> str:
    ack = observation.acks[at]
    if ack is None:
        return f"{subject}: no stream takes it"
    if "err_code" in ack:
        return f"{subject}: refused: {ack['err_code']} {ack.get('description')}"
    payload = b"%d" % at
    stored = [shown(each.message.subject) for each in observation.stored.get(stream, ()) if each.sequence == ack["seq"]]
    head = b"Nats-Stream: %b\r\n" % stream.encode()
    line = b"Nats-Sequence: %d\r\n" % ack["seq"]
    republished = [
        shown(each.subject)
        for each in observation.received
        if head in each.header_block and line in each.header_block and each.payload in (payload, b"")
    ]
    parts = [f"stored as {', '.join(stored) or 'nothing that is left'}"]
    parts += [f"republished as {name}" for name in republished]
    return f"{subject}: {'; '.join(parts)}"


def _verdict(found: Sequence[Answer]) -> str:
    between = f"{found[0].version} and {found[-1].version}"
    if len(found) == 1:
        return f"on {found[0].version}"
    if not any(answer.is_accepted for answer in found):
        return f"nothing was compared, because no version from {found[0].version} to {found[-1].version} accepts it"
    if all(answer.lines == found[0].lines for answer in found):
        return f"nothing changes between {between}"
    return f"changes between {between}"


def reported(file: Path, found: Sequence[Answer], remarks: Sequence[str] = ()) -> str:
    """Return the answers as text: adjacent versions with equal answers together, then the changes between them."""
    lines = [f"{file}: {_verdict(found)}", *remarks, ""]
    groups: list[tuple[list[str], tuple[str, ...]]] = []
    for answer in found:
        if groups and groups[-1][1] == answer.lines:
            groups[-1][0].append(answer.version)
        else:
            groups.append(([answer.version], answer.lines))
    for versions, said in groups:
        head = versions[0] if len(versions) == 1 else f"{versions[0]} … {versions[-1]}"
        width = 20
        lines += [f"{head if at == 0 else '':<{width}}{line}" for at, line in enumerate(said)]
    if brought := [each for answer in found for each in answer.brings]:
        lines += ["", "what came in between, and concerns this stream (docs/versions.md):"]
        lines += [f"{since:<{width}}{title}: {what}" for since, title, what in brought]
    return "\n".join(lines)
