"""A rule of kind sources, mirror or kv_sources at work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from bridge.connection import Link
from bridge.copying.copy_entry import CopyEntry, EntryPlan
from bridge.copying.counters import CopyCounters
from bridge.copying.rejections import Rejections
from bridge.errors import ApiError, BridgeError, ConfigError, RuleRefusedError
from bridge.jetstream_api import STREAM_NOT_FOUND, Json
from bridge.missing_streams import missing_stream
from bridge.rule_run import RuleRun, RunState
from bridge.settings import KvSourcesRule, MirrorRule, Source, SourcesRule
from transforms.destination import Kind
from transforms.dialect import Dialect, dialect
from transforms.errors import EngineError
from transforms.sourcing import Sourcing, compile_sourcing
from transforms.subject import collide, is_subset, matches
from transforms.transform import Transform

__all__ = ["CopyRun"]

_log = structlog.get_logger("bridge.rule")

_SEVERAL_TOKENS = (
    Kind.SPLIT,
    Kind.SPLIT_FROM_LEFT,
    Kind.SPLIT_FROM_RIGHT,
    Kind.SLICE_FROM_LEFT,
    Kind.SLICE_FROM_RIGHT,
)
_ANY = b"nats-bridge"
"""Stands for whatever a wildcard or a function can be, in subjects that are only meant to be stored by a stream."""


class CopyRun:
    """One copying rule.

    Args:
        rule: the rule.
        sidecar: the sidecar's name.
        dialect_text: the dialect asked for, or `native`.
        links: the open connections by name.
        failed: called with this run when it cannot go on.
    """

    def __init__(
        self,
        rule: SourcesRule | MirrorRule | KvSourcesRule,
        sidecar: str,
        dialect_text: str,
        links: Mapping[str, Link],
        failed: Callable[[RuleRun], None],
    ) -> None:
        self.rule: SourcesRule | MirrorRule | KvSourcesRule = rule
        self.counters = CopyCounters()
        self.state: RunState = "starting"
        self.error: BaseException | None = None
        self._links = links
        self._target = links[rule.target_connection]
        self._dialect_text = dialect_text
        self._failed = failed
        self._plans: list[EntryPlan] = []
        self._entries: list[CopyEntry] = []
        self._log = _log.bind(rule=rule.name, stream=rule.target_stream)

    # -- life (RuleRun) ----------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Look at target and origins; see `RuleRun`."""
        rule = self.rule
        target = await self._stream(self._target, rule.target_stream)
        self._check_target(target["config"])
        self._plans = [await self._plan(source, target) for source in rule.entries]

    async def start(self) -> None:
        """Begin to copy; see `RuleRun`."""
        rule = self.rule
        rejections = Rejections(rule.name, rule.target_stream, rule.on_rejected.skip, self._target, self.counters)
        for link in {self._target, *(self._links[plan.source.connection] for plan in self._plans)}:
            link.on_refusal(self._refused)
        self._entries = [
            CopyEntry(plan, self._links[plan.source.connection], self._target, rejections, self.counters, self._fail)
            for plan in self._plans
        ]
        await asyncio.gather(*(entry.start() for entry in self._entries))
        self.state = "ready"
        self._log.info("rule.ready", sources=[plan.source.name for plan in self._plans])

    async def stop(self) -> None:
        """Stop reading, wait for what was sent; see `RuleRun`."""
        failed = self.state == "failed"
        self.state = "draining"
        results = await asyncio.gather(
            *(entry.abandon() if failed else entry.stop() for entry in self._entries), return_exceptions=True
        )
        for error in results:
            if isinstance(error, (BridgeError, OSError)):
                self._log.error("rule.drain_incomplete", reason=str(error))
            elif isinstance(error, BaseException):
                raise error
        self.state = "failed" if failed else "stopped"
        self._log.info("rule.stopped", **{name: n for name, n in self.counters.as_dict().items() if n})

    async def abandon(self) -> None:
        """End a `stop` that took too long; see `RuleRun`."""
        for entry in self._entries:
            await entry.abandon()
        self.state = "stopped"

    @property
    def ready(self) -> bool:
        """Whether every entry copies at this moment."""
        return self.state == "ready" and all(entry.ready for entry in self._entries)

    def status(self) -> dict[str, Any]:
        """Where every entry stands; see `RuleRun`."""
        return {"stream": self.rule.target_stream, "sources": [entry.status() for entry in self._entries]}

    def _refused(self, text: str) -> None:
        if "publish" in text.lower():
            self._fail(
                RuleRefusedError(
                    f"rule '{self.rule.name}': the server refuses a publication ({text}):"
                    " allow the user to publish to the rule's destinations"
                )
            )

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.state = "failed"
            trace = None if isinstance(error, BridgeError) else error
            self._log.error("rule.failed", reason=str(error) or type(error).__name__, exc_info=trace)
            self._failed(self)

    # -- what must not run -------------------------------------------------------------------------------------------

    async def _stream(self, link: Link, name: str) -> Json:
        try:
            return await link.api.stream_info(name)
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                raise await missing_stream(link, self.rule.name, name) from None
            raise

    def _check_target(self, config: Json) -> None:
        place = f"rule '{self.rule.name}': stream '{self.rule.target_stream}'"
        if config.get("mirror"):
            raise RuleRefusedError(
                f"{place} is a native mirror, which takes no messages from clients: copy into an ordinary stream"
            )
        if config.get("sealed"):
            raise RuleRefusedError(f"{place} is sealed: it takes no more messages")
        if not config.get("subjects"):
            raise RuleRefusedError(
                f"{place} has no subjects, so nothing can be published to it: give it those of the rule's destinations"
            )
        if config.get("no_ack"):
            raise RuleRefusedError(
                f"{place} has no_ack: it never tells what it has stored, so nothing can be copied exactly once"
            )

    async def _plan(self, source: Source, target: Json) -> EntryPlan:
        rule = self.rule
        link = self._links[source.connection]
        origin = await self._stream(link, source.name)
        place = f"rule '{rule.name}': source '{source.name}'"
        version = self._target.server_version if self._dialect_text == "native" else self._dialect_text
        sourcing = self._compiled(source, dialect(version))
        subjects = [subject.encode() for subject in target["config"]["subjects"]]
        destinations = _destinations(sourcing)
        stored = [pattern for pattern in destinations if any(collide(pattern, subject) for subject in subjects)]
        if not stored:
            raise RuleRefusedError(
                f"{place}: stream '{rule.target_stream}' has no subject for"
                f" {', '.join(pattern.decode() for pattern in destinations)}; it has"
                f" {', '.join(target['config']['subjects'])}"
            )
        if origin["created"] == target["created"] and source.name == rule.target_stream:
            raise RuleRefusedError(f"{place} is the stream itself: detected cycle (10052)")
        self._check_native_sources(place, source, sourcing, target["config"])
        if origin["config"].get("retention") != "limits":
            raise RuleRefusedError(
                f"{place} is a {origin['config']['retention']} stream: copying would have to take messages out of it;"
                " let the server do that with native sources"
            )
        last = int(origin["state"]["last_seq"])
        if source.opt_start_seq is not None and source.opt_start_seq > last + 1:
            raise RuleRefusedError(
                f"{place}: opt_start_seq {source.opt_start_seq} is beyond its end, its last sequence is {last}:"
                f" at most {last + 1}, which is the next message"
            )
        probe = _literal(next((p for p in stored if any(matches(_literal(p), s) for s in subjects)), subjects[0]))
        return EntryPlan(
            rule=rule.name,
            source=source,
            sourcing=sourcing,
            stream=rule.target_stream,
            probe=probe,
            filters=_consumer_filters(sourcing, origin["config"].get("subjects") or (), link.server_version),
            on_recreated=rule.on_recreated,
        )

    def _compiled(self, source: Source, version: Dialect) -> Sourcing:
        try:
            return compile_sourcing(
                source.native(),
                version,
                mirrors=isinstance(self.rule, MirrorRule),
                exclude=[pattern.encode() for pattern in source.exclude],
            )
        except EngineError as error:
            raise ConfigError(f"rule '{self.rule.name}': source '{source.name}': {error}") from None

    def _check_native_sources(self, place: str, source: Source, sourcing: Sourcing, config: Json) -> None:
        """A stream that the server copies already must not get every message twice."""
        for native in config.get("sources") or ():
            if native["name"] != source.name:
                continue
            theirs = compile_sourcing(native, sourcing.dialect)
            mine = sourcing.filters or (b">",)
            if any(collide(a, b) for a in theirs.filters or (b">",) for b in mine):
                raise RuleRefusedError(
                    f"{place}: stream '{config['name']}' sources it natively already, so messages would be stored"
                    " twice: remove the rule, or the native source"
                )


def _consumer_filters(sourcing: Sourcing, subjects: Sequence[str], server_version: str) -> tuple[str, ...]:
    """What the origin's server can select for us; the rest is left out when it arrives."""
    filters = sourcing.filters
    if any(all(is_subset(subject.encode(), pattern) for subject in subjects) for pattern in filters if subjects):
        return ()  # it leaves nothing out, and 2.9 sometimes needs a millisecond per message to find that
    if len(filters) > 1:
        overlapping = any(collide(a, b) for n, a in enumerate(filters) for b in filters[n + 1 :])
        if overlapping or tuple(map(int, server_version.split(".")[:2])) < (2, 10):
            return ()
    try:
        return tuple(pattern.decode() for pattern in filters)
    except UnicodeDecodeError:
        return ()


def _destinations(sourcing: Sourcing) -> list[bytes]:
    """Patterns of what the entry stores."""
    patterns = [_pattern(transform) for transform in sourcing.transforms]
    return patterns or list(sourcing.filters) or [b">"]


def _pattern(transform: Transform) -> bytes:
    if transform.is_empty or not transform.destination:
        return transform.pattern
    tokens: list[bytes] = []
    for part in transform.parts:
        if part.kind in _SEVERAL_TOKENS:
            return b".".join([*tokens, b">"])
        tokens.append(part.text if part.kind in (Kind.LITERAL, Kind.REST) else b"*")
    return b".".join(tokens)


def _literal(pattern: bytes) -> bytes:
    """A subject that matches a pattern."""
    return b".".join(_ANY if token in (b"*", b">") else token for token in pattern.split(b"."))
