"""A repair, from a comparison to what was done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from nats_bridge.bridge.replication import Connection, Json, Operation, Target
from nats_bridge.pipeline.connections import connected
from nats_bridge.pipeline.diff.comparing import By
from nats_bridge.pipeline.diff.findings import text
from nats_bridge.pipeline.diff.repair.applying import Applied, Applying
from nats_bridge.pipeline.diff.repair.copies import Copies
from nats_bridge.pipeline.diff.repair.steps import Action, Rules, Step, held_by_source, steps
from nats_bridge.pipeline.diff.request import Place
from nats_bridge.pipeline.diff.run import Result
from nats_bridge.pipeline.errors import OptionError
from nats_bridge.pipeline.progress import Progress
from nats_bridge.pipeline.source.loop_thread import LoopThread
from nats_bridge.transforms.republish import Republish

_ANY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    Attributes:
        apply: whether anything is changed.
        delete: whether messages of the right side may be deleted.
        stopped: whether nothing copies into the right side any more.
        plan: where to write every step, a line of JSON each; None for nowhere.
        examples: how many steps of each group are kept.
    """

    apply: bool = False
    delete: bool = False
    stopped: bool = False
    plan: Path | None = None
    examples: int = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that a person would call the same."""

    action: Action
    kind: str
    reason: str


@dataclass(slots=True)
class Repair:
    """What would be done, and what was.

    Attributes:
        by: how messages are identified.
        groups: how many steps of each group.
        examples: the first of each; without payloads.
        applied: what was done; None where nothing was to be.
    """

    by: By
    groups: Counter[Group] = field(default_factory=Counter)
    examples: dict[Group, list[Step]] = field(default_factory=dict)
    applied: Applied | None = None

    @property
    def undone(self) -> int:
        """Differences that stay: nothing is done about them, or nothing is done at all."""
        return sum(number for group, number in self.groups.items() if group.action == "none" or self.applied is None)

    @property
    def is_complete(self) -> bool:
        """Whether the right side has all that the left has, and nothing else."""
        return not self.undone and (self.applied is None or self.applied.complete)


class Repairer:
    """Repairs the stream of the right side.

    Args:
        connection: the connection that holds it.
        info: its `STREAM.INFO` before it was read.
        loop: where the connection lives.
    """

    def __init__(self, connection: Connection, info: Json, loop: LoopThread) -> None:
        self._connection = connection
        self._config, self._state = info["config"], info["state"]
        self._target = Target.of(info, connection.server_version)
        self._loop = loop

    def repair(self, result: Result, wanted: Wanted, progress: Progress) -> Repair:
        """Decide about every finding, and do it where that is wanted.

        Args:
            result: while it can be read.
            wanted: what is asked for.
            progress: gets the stages.

        Raises:
            PipelineError: the stream is missing, another one, or full; its server is away.
            BridgeError: the server refuses.
        """
        config, target = self._config, self._target
        by = result.comparison.by
        denied = [name for name in ("sealed", "deny_purge" if by == "subject" else "deny_delete") if config.get(name)]
        held, checked_after = held_by_source(result, looks_back=not config.get("sources"))
        rules = Rules(
            by,
            wanted.delete,
            f"the stream allows no deletions ({', '.join(denied)})" if denied else "",
            int(self._state["last_seq"]),
            target.kept_per_subject,
            target.forgets,
            held,
            checked_after,
            wanted.stopped,
        )
        copies = Copies(result.comparison, result.left.stream or "LEFT", target, self._connection.client.max_payload)
        made = Repair(rules.by)
        progress.enter("repairing" if wanted.apply else "planning the repair")
        applying = Applying(self._connection, target, rules.by) if wanted.apply else None
        try:
            with _written(wanted.plan) as file:
                for number, (step, operation) in enumerate(self._decided(result, rules, copies), 1):
                    _note(made, step, wanted.examples)
                    if file is not None:
                        file.write(json.dumps(as_data(step)) + "\n")
                    if applying is not None and step.action != "none":
                        self._loop.run(applying.do(step, operation))
                    progress.messages = number
            if applying is not None:
                self._loop.run(applying.finish())
                made.applied = applying.applied
        finally:
            if applying is not None:
                self._loop.run(applying.close())
        return made

    def _decided(self, result: Result, rules: Rules, copies: Copies) -> Iterator[tuple[Step, Operation | None]]:
        """Each step, with what is published."""
        removes = rules.by != "subject" and not self._target.full_is_refused
        messages, size = self._target.room if removes else (_ANY, _ANY)
        for number, step in enumerate(steps(result, rules), 1):
            if step.action not in ("put", "append", "replace"):
                yield step, None
                continue
            made = copies.made(number, step)
            if isinstance(made, str):
                yield replace(step, action="none", reason=made), None
                continue
            messages, size = messages - 1, size - 2 * len(made[1])  # what is stored is a little larger
            if messages < 0 or size < 0:
                yield replace(step, action="none", reason="the stream is full: it would remove its oldest"), None
            else:
                yield step, made


@contextmanager
def repairer(place: Place) -> Iterator[Repairer]:
    """What repairs a stream, with its connection; to be made before the stream is read.

    Raises:
        OptionError: it is no stream, or one in which nothing can be repaired.
    """
    if place.connection is None:
        raise OptionError(f"--repair: {place.shown} is no stream; the right side is what is repaired")
    opened = connected(place.connection, client_name=f"nats-bridge-repair {place.name}")
    with LoopThread() as loop, loop.within(opened) as connection:
        info = loop.run(connection.api.stream_info(place.name))
        if unfit := _unfit(info["config"]):
            raise OptionError(f"--repair: stream '{place.name}' {unfit}")
        yield Repairer(connection, info, loop)


def check_rule(rule: object) -> None:
    """Refuse rules of which no repair can make the copies.

    Raises:
        OptionError: it is one.
    """
    if isinstance(rule, Republish):
        raise OptionError("--repair: what a republish rule makes says which message came before: run a backfill")


def _unfit(config: Json) -> str:
    """Why nothing can be repaired in a stream; empty if it can."""
    if config.get("retention", "limits") != "limits":
        return "loses what its consumers have read: what is missing there may be done"
    if config.get("mirror"):
        return "is a mirror, which stores only what its source has: delete it and create it again"
    if config.get("no_ack"):
        return "confirms nothing (no_ack)"
    if (config.get("subject_transform") or {}).get("dest"):
        return "transforms subjects at its ingress, also those of what is repaired"
    return ""


def as_data(step: Step) -> dict[str, Any]:
    """A step as plain values."""
    return {
        "action": step.action,
        "kind": step.kind,
        "message": step.identity,
        "subject": text(step.subject),
        "left_sequence": step.left or None,
        "right_sequence": step.right or None,
        "reason": step.reason,
    }


def _note(made: Repair, step: Step, most: int) -> None:
    group = Group(step.action, step.kind, step.reason)
    made.groups[group] += 1
    examples = made.examples.setdefault(group, [])
    if len(examples) < most:
        examples.append(replace(step, data=b"", block=b""))


@contextmanager
def _written(file: Path | None) -> Iterator[IO[str] | None]:
    if file is None:
        yield None
        return
    try:
        opened = file.open("w", encoding="utf-8")
    except OSError as error:
        raise OptionError(f"--plan {file}: {error.strerror}") from None
    with opened:
        yield opened
