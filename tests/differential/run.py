"""A differential run: native servers of one version against the engine, trial by trial until enough was compared.

Theory of operation: trials are drawn by number and played side by side, each on one of several connections with an
account of its own. They are counted in the order of their numbers, and always the same number of them is ahead of the
one that is counted, so that seed and version decide what a run consists of. What disagrees is shrunk on the same server
afterwards. Where a trial ends the server in spite of everything, the run ends with an error that names the numbers that
were pending.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from nats_conformance.catalogue.case import Message
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.native import account_config
from nats_conformance.native_servers import NativeServer, ServersError
from nats_conformance.observation import Observation
from nats_conformance.raw_client import Credentials, RawClient
from nats_conformance.running import Progress
from tests.differential.bench import Bench, Player
from tests.differential.chance import DRAWS, drawn_limits, verdict
from tests.differential.comparing import Comparison, comparisons, copies_expected, listening
from tests.differential.drawing import TARGET, draw
from tests.differential.engine import Engine
from tests.differential.entry import catalogue_entry
from tests.differential.held_back import held_back
from tests.differential.result import DifferentialResult, Disagreement
from tests.differential.shrinking import MOST_ASKED, shrunk
from tests.differential.trial import ALL, Kind, Trial

AT_ONCE = 12
"""Connections, each with an account of its own."""
SHRUNK = 5
"""Disagreements that are shrunk; more of them are reported as they are."""
_AHEAD = 400
"""Trials that are begun before the one that is counted next has ended."""
_REPORTED_EVERY = 50
_SHRINKING_PATIENCE = 1.5
_MOST_COPIES = 120
"""As `MOST_ASKED`, where what does not come has to be waited for each time."""


async def compare(
    version: str,
    binary: Path,
    directory: Path,
    *,
    seed: int,
    comparisons: int,
    kinds: Collection[Kind] = ALL,
    progress: Progress = lambda *_: None,
    engine: Engine | None = None,
    only: int | None = None,
) -> DifferentialResult:
    """Compare a server with the engine until so many comparisons are made.

    Args:
        version: of the server, in full.
        binary: of the server.
        directory: for its store and log; left in place.
        seed: the same one draws the same trials, for every version.
        comparisons: how many to make, at least; trials that are begun are ended and counted.
        kinds: what to compare.
        progress: called with the label, the comparisons made, and how many are wanted.
        engine: another engine than that of the version.
        only: the number of one trial, to play that one alone.

    Raises:
        SubjectError: the server cannot be started, does not answer, or ended.
    """
    run = Run(version, seed, comparisons, frozenset(kinds), progress, engine, only)
    server = NativeServer(
        binary=binary, config=account_config(AT_ONCE), directory=directory / f"differential-{version}"
    )
    try:
        await asyncio.to_thread(server.start)
        return await run.on(server)
    except ServersError as error:
        raise SubjectError(str(error)) from None
    finally:
        await asyncio.to_thread(server.close)


class Run:
    """One run; the arguments are those of ``compare``."""

    def __init__(
        self,
        version: str,
        seed: int,
        wanted: int,
        kinds: frozenset[Kind] = ALL,
        progress: Progress = lambda *_: None,
        engine: Engine | None = None,
        only: int | None = None,
    ) -> None:
        self._version, self._seed, self._wanted, self._kinds = version, seed, wanted, kinds
        self._progress, self._engine, self._only = progress, engine or Engine(version), only
        self._counts: Counter[Kind] = Counter()
        self._held_back: Counter[str] = Counter()
        self._seen: set[int] = set()
        self._trials = self._repeated = self._invisible = 0
        self._found: list[tuple[int, Trial, Comparison]] = []
        self._unfinished: set[int] = set()
        self._ahead: deque[tuple[int, Trial, asyncio.Task[list[Comparison]]]] = deque()
        self._benches: asyncio.Queue[Player] = asyncio.Queue()

    async def on(self, server: NativeServer) -> DifferentialResult:
        """The whole run on a started server."""
        clients: list[RawClient] = []
        try:
            for number in range(AT_ONCE):
                user = f"u{number}"
                clients.append(await RawClient.connect(server.url, Credentials(user=user, password=user)))
            return await self.over(map(Bench, clients))
        except SubjectError as error:
            if not server.died:
                raise
            numbers = ", ".join(map(str, sorted(self._unfinished)))
            raise SubjectError(f"the server ended (seed {self._seed}, pending trials: {numbers}): {error}") from None
        finally:
            for client in clients:
                await client.close()

    async def over(self, benches: Iterable[Player]) -> DifferentialResult:
        """Run everything on these benches, which no other run uses."""
        begin = time.perf_counter()
        for bench in benches:
            self._benches.put_nowait(bench)
        try:
            disagreements = await self._disagreements()
        finally:
            await self._end_playing()
        return DifferentialResult(
            version=self._version,
            seed=self._seed,
            wanted=self._wanted,
            comparisons={kind.value: count for kind, count in sorted(self._counts.items())},
            repeated=self._repeated,
            invisible=self._invisible,
            trials=self._trials,
            held_back=dict(sorted(self._held_back.items())),
            seconds=time.perf_counter() - begin,
            disagreements=tuple(disagreements),
        )

    async def _end_playing(self) -> None:
        playing = [task for _, _, task in self._ahead]
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)

    async def _disagreements(self) -> list[Disagreement]:
        found = await self._judged_random() if Kind.RANDOM in self._kinds and self._only is None else []
        await self._play_all()
        # One per trial: the others of the same trial mostly follow from it.
        first = {number: (number, trial, each) for number, trial, each in reversed(self._found)}
        waiting = [first[number] for number in sorted(first)]
        entries: set[str] = set()
        for at, (number, trial, each) in enumerate(waiting):
            disagreement = Disagreement(number, each.kind.value, each.where, each.native, each.engine)
            if len(entries) < SHRUNK:
                self._progress(f"{self._version}: shrinking", at, len(waiting))
                disagreement = await self._shrunk(len(entries) + 1, number, trial, each)
                # The same small input again adds nothing.
                reported = disagreement.input or str(number)
                if reported in entries:
                    continue
                entries.add(reported)
            found.append(disagreement)
        return found

    async def _play_all(self) -> None:
        kinds = self._kinds - {Kind.RANDOM}
        numbers = count() if self._only is None else iter([self._only])
        ahead = self._ahead
        while kinds:
            while len(ahead) < _AHEAD and self._total < self._wanted and (number := next(numbers, None)) is not None:
                trial = draw(self._seed, number, kinds)
                reason = held_back(trial, self._engine)
                if reason is None:
                    ahead.append((number, trial, asyncio.create_task(self._play(number, trial))))
                else:
                    self._held_back[reason] += 1
            if not ahead:
                break
            number, trial, playing = ahead.popleft()
            self._count(number, trial, await playing)
            if not self._trials % _REPORTED_EVERY:
                self._progress(self._version, self._total, self._wanted)
        self._progress(self._version, self._total, self._wanted)

    @property
    def _total(self) -> int:
        return sum(self._counts.values())

    async def _play(self, number: int, trial: Trial) -> list[Comparison]:
        bench = await self._benches.get()
        self._unfinished.add(number)
        try:
            native = await self._observed(bench, trial)
        finally:
            self._benches.put_nowait(bench)
        self._unfinished.discard(number)
        return list(comparisons(trial, native, self._engine))

    async def _observed(self, bench: Player, trial: Trial) -> Observation:
        engine = self._engine
        return await bench.play(
            trial,
            listening(trial, engine),
            lambda source: copies_expected(trial, engine, source),
            with_messages=engine.decide(trial).config is not None,
        )

    def _count(self, number: int, trial: Trial, compared: Sequence[Comparison]) -> None:
        self._trials += 1
        for each in compared:
            if not each.agrees:
                self._found.append((number, trial, each))
            if not each.counts:
                self._invisible += 1
            elif each.key:
                key = hash((each.kind, each.key))
                self._repeated += key in self._seen
                self._counts[each.kind] += key not in self._seen
                self._seen.add(key)

    async def _shrunk(self, entry: int, number: int, trial: Trial, difference: Comparison) -> Disagreement:
        bench = await self._benches.get()
        patience, bench.patience = bench.patience, _SHRINKING_PATIENCE

        async def fails(candidate: Trial) -> bool:
            return await self._difference(bench, candidate, difference.aspect) is not None

        try:
            small, asked = await shrunk(trial, fails, _MOST_COPIES if trial.copies else MOST_ASKED)
            bench.patience = patience
            for candidate in (small, small, trial, trial):
                seen = await self._difference(bench, candidate, difference.aspect)
                if seen is not None:
                    native, found = seen
                    listen = listening(candidate, self._engine)
                    text = catalogue_entry(entry, self._version, candidate, native, found, listen)
                    return Disagreement(
                        number, found.kind.value, found.where, found.native, found.engine, text, asked + 1
                    )
        finally:
            bench.patience = patience
            self._benches.put_nowait(bench)
        # It is not reproducible: reported as it was seen.
        return Disagreement(number, difference.kind.value, difference.where, difference.native, difference.engine)

    async def _difference(self, bench: Player, trial: Trial, aspect: str) -> tuple[Observation, Comparison] | None:
        """What the server shows of a trial and the first difference of this aspect; None: there is none."""
        if held_back(trial, self._engine) is not None:
            return None
        try:
            native = await self._observed(bench, trial)
        except SubjectError:
            # A smaller trial need not make sense any more; a server that has ended shows with the next one.
            await bench.flush()
            return None
        different = (
            each for each in comparisons(trial, native, self._engine) if not each.agrees and each.aspect == aspect
        )
        found = next(different, None)
        return None if found is None else (native, found)

    async def _judged_random(self) -> list[Disagreement]:
        """The random functions: counted once for each limit, judged on the server and in the engine."""
        if not self._engine.dialect.random_function:
            return []
        found = []
        for number, limit in enumerate(dict.fromkeys(drawn_limits(self._seed))):
            rule = {"src": "s.*", "dest": f"d.{{{{random({limit})}}}}"}
            trial = Trial(
                Kind.RANDOM,
                {"name": TARGET, "subjects": ["s.>"], "storage": "memory", "republish": rule},
                (Message(b"s.x"),) * DRAWS,
            )
            bench = await self._benches.get()
            try:
                native = await bench.play(trial, (b"d.>",), lambda _: 0)
            finally:
                self._benches.put_nowait(bench)
            self._trials += 1
            self._counts[Kind.RANDOM] += 1
            config = self._engine.decide(replace(trial, messages=())).config or {}
            compiled = self._engine.republish_of(config)
            ours = [compiled.destination(b"s.x") or b"" for _ in range(DRAWS)] if compiled else []
            theirs = [message.subject for message in native.received]
            texts = [_verdict(limit, subjects) for subjects in (theirs, ours)]
            if any(texts):
                where = f"{DRAWS} draws of random({limit})"
                server, engine = (text or "as it must be" for text in texts)
                found.append(Disagreement(number, Kind.RANDOM.value, where, server, engine))
        return found


def _verdict(limit: int, subjects: Sequence[bytes]) -> str:
    if len(subjects) != DRAWS:
        return f"{len(subjects)} of {DRAWS} messages"
    return verdict(limit, [subject.removeprefix(b"d.") for subject in subjects])
