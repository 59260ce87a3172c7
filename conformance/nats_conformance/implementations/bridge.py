"""The bridge in front of a server as a subject of test.

Theory of operation. The bridge is tested as users run it: a process with a configuration file. A process takes a large
part of a second to start, so cases run in batches. The streams of many cases are created, each case in separate
accounts. One process runs the rules of all of them. When every rule has finished its work, the process is asked to
drain and end. A rule that is refused or fails must not harm other cases: `nats-bridge check` finds most errors before,
and if a rule still ends the sidecar, its case runs again alone, and the others without it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from nats_conformance.catalogue.case import Case
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity, Kind
from nats_conformance.implementations.bridge_plan import BridgePlan, plan
from nats_conformance.implementations.bridge_process import RefusedRule, RunningSidecar, SidecarEndedError, check
from nats_conformance.implementations.bridge_stage import BridgeStage
from nats_conformance.implementations.native import account_config
from nats_conformance.native_servers import NativeServer
from nats_conformance.observation import Observation
from nats_conformance.raw_client import Credentials, RawClient
from nats_conformance.stage import Stage
from nats_conformance.subject import Answer, BatchSubject, CannotPlay
from nats_transforms.dialect import dialect as dialect_of

_LANES: Final = 2
"""Batches that run at the same time; a sidecar uses one core."""
_BATCH: Final = 24
"""Cases that one process plays."""


class BridgeSubject(BatchSubject):
    """The bridge, connected to a server that the suite starts.

    Args:
        server_version: of the server, in full.
        binary: of the server.
        directory: for the server's store and log, and the bridge's configurations.
        dialect: the full version that the bridge behaves like; `native` for the server's.
    """

    kind: Kind = "bridge"
    accounts = 6
    """Accounts that one case may need: one for streams as they are, and one for each that a rule fills."""

    def __init__(self, server_version: str, binary: Path, directory: Path, *, dialect: str = "native") -> None:
        version = server_version if dialect == "native" else dialect
        self.identity = Identity(self.kind, version, server=server_version)
        self._directory = directory / f"{self.kind}-{version}-on-{server_version}"
        self._users = _LANES * _BATCH * self.accounts
        self._server = NativeServer(
            binary=binary, config=account_config(self._users), directory=self._directory / "server"
        )
        self._stages: dict[int, Stage] = {}
        self._files = count()

    async def open(self) -> None:
        """Start the server."""
        await self._server.started()
        for number in range(self._users):
            (self._directory / f"u{number}").write_text(f"u{number}", "utf-8")

    async def close(self) -> None:
        """End the server."""
        for stage in self._stages.values():
            await stage.client.close()
        await asyncio.to_thread(self._server.close)

    async def play_many(self, cases: Sequence[Case]) -> AsyncIterator[tuple[Case, Answer]]:
        """Run cases in batches, in any order. Every case has exactly one answer."""
        plans: list[BridgePlan] = []
        for case in cases:
            try:
                plans.append(self._plan(case))
            except CannotPlay as reason:
                yield case, reason
        problems = await self._problems(plans)
        # Cases that are only about decisions need no sidecar if they are in a separate batch.
        for about_messages in (False, True):
            group = [(each, problems[at]) for at, each in enumerate(plans) if each.is_about_messages is about_messages]
            batches = [group[start : start + _BATCH] for start in range(0, len(group), _BATCH)]
            for first in range(0, len(batches), _LANES):
                concurrent = batches[first : first + _LANES]
                for answers in await asyncio.gather(
                    *(self._play_batch(each, at) for at, each in enumerate(concurrent))
                ):
                    for played, answer in answers:
                        yield played.case, answer

    def _plan(self, case: Case) -> BridgePlan:
        made = plan(case, dialect_of(self.identity.dialect), dialect_of(self.identity.server))
        if made.size > self.accounts:
            raise CannotPlay(f"it needs {made.size} accounts, one for each stream that a rule fills")
        return made

    # -- refusals of the bridge --------------------------------------------------------------------------------------

    async def _problems(self, plans: Sequence[BridgePlan]) -> list[dict[int, RefusedRule]]:
        """Return the bridge's answer to the rules of each plan, each rule alone: by the number of the rule."""
        found: list[dict[int, RefusedRule]] = [{} for _ in plans]
        asked: dict[str, tuple[int, int, dict[str, object]]] = {}  # a plan, the number of its rule, and the rule
        names: list[str] = []
        for at, each in enumerate(plans):
            connections = [f"c{at}-{account}" for account in range(each.size)]
            names += connections
            for number, rule in enumerate(each.rules):
                # A separate name for each, because two versions of one rule cannot be in one file.
                name = f"r{at}-{number}"
                asked[name] = at, number, rule.document(name, connections, self.identity.dialect)
        while asked:
            rules = [rule for _, _, rule in asked.values()]
            refused = await check(self._write(rules, dict.fromkeys(names)), servers=False)
            if not refused:
                break
            # Problems between the parts of a rule are reported only when all rules are well-formed.
            for name, reason in refused.items():
                at, number, _ = asked.pop(name)
                found[at][number] = reason
        return found

    def _write(self, rules: Iterable[object], connections: dict[str, int | None]) -> Path:
        """Write a configuration file, with connections by name and the number of their user."""
        file = self._directory / f"sidecar-{next(self._files)}.yaml"
        made = {
            "connections": {
                name: {"servers": [self._server.url]}
                | ({} if user is None else {"user": f"u{user}", "password_file": f"u{user}"})
                for name, user in connections.items()
            },
            "http": {"listen": "127.0.0.1:0"},
            "fail_fast": True,  # a case of a refused rule observes the exit
            "log": {"format": "json"},
            "rules": list(rules),
        }
        file.write_text(json.dumps(made, indent=0), "utf-8")  # JSON is also YAML
        return file

    # -- a batch -----------------------------------------------------------------------------------------------------

    async def _play_batch(
        self, batch: Sequence[tuple[BridgePlan, dict[int, RefusedRule]]], lane: int
    ) -> list[tuple[BridgePlan, Answer]]:
        """Run a batch in the accounts of a lane. If a rule ends the sidecar, run smaller ones."""
        first = lane * _BATCH
        stages = [await self._stage(slot, each) for slot, (each, _) in enumerate(batch, first)]
        try:
            answers = await self._play_stages(stages, [problems for _, problems in batch])
            return [(each, answer) for (each, _), answer in zip(batch, answers, strict=True)]
        except SidecarEndedError as error:
            culprit = next((at for at, stage in enumerate(stages) if error.rule in stage.rules), None)
        except SubjectError as error:
            if len(batch) == 1:
                return [(batch[0][0], error)]
            culprit = None
        finally:
            await asyncio.gather(*(stage.end() for stage in stages))
        cut = len(batch) // 2
        parts = [batch[:cut], batch[cut:]]
        if culprit is not None:
            parts = [[batch[culprit]], [*batch[:culprit], *batch[culprit + 1 :]]]
        return [pair for part in parts for pair in await self._play_batch(part, lane)]

    async def _stage(self, slot: int, made: BridgePlan) -> BridgeStage:
        users = [slot * self.accounts + account for account in range(made.size)]
        for user in users:
            if user not in self._stages:
                credentials = Credentials(user=f"u{user}", password=f"u{user}")
                self._stages[user] = Stage(await RawClient.connect(self._server.url, credentials))
        return BridgeStage(made, [self._stages[user] for user in users], [f"a{user}" for user in users], f"s{slot}")

    async def _play_stages(
        self, stages: Sequence[BridgeStage], problems: Sequence[dict[int, RefusedRule]]
    ) -> list[Observation | SubjectError]:
        """Play cases with one sidecar.

        Raises:
            SidecarEndedError: it ended, and there is more than one case that may be the reason.
        """
        await asyncio.gather(*(_tried(stage, stage.begin()) for stage in stages))
        for stage, found in zip(stages, problems, strict=True):
            for number, name in enumerate(stage.rules):
                if number in found and stage.error is None:
                    await _tried(stage, stage.refuse(name, found[number]))
        await self._ask_servers(stages)
        try:
            await self._with_sidecar(stages)
        except SidecarEndedError as error:
            if len(stages) > 1:
                raise
            stages[0].facts["sidecar"] = str(error)
        answers: list[Observation | SubjectError] = []
        for stage in stages:
            try:
                answers.append(stage.error or await stage.see())
            except SubjectError as error:
                answers.append(error)
        return answers

    async def _ask_servers(self, stages: Sequence[BridgeStage]) -> None:
        """Have the bridge check the present streams, and remove the rules that it refuses."""
        file = self._configuration(stages)
        if file is None:
            return
        checked = await check(file, servers=True)
        for stage in stages:
            refused = {name: checked[name] for name in stage.running() if name in checked}
            loops = sorted(
                (name for name, reason in refused.items() if reason.is_loop),
                key=lambda name: stage.rules[name].decision or 0,
            )
            for name in loops[:-1]:
                del refused[name]  # every rule of a loop is refused; natively only the one that would close it
            for name, reason in refused.items():
                await _tried(stage, stage.refuse(name, reason, by_servers=True))

    def _configuration(self, stages: Sequence[BridgeStage]) -> Path | None:
        rules: list[object] = []
        connections: dict[str, int | None] = {}
        for stage in stages:
            for name, rule in stage.running().items():
                rules.append(rule.document(name, stage.connections, self.identity.dialect))
                for account in (rule.account, rule.target, *(account for _, account in rule.sources)):
                    connection = stage.connections[account]
                    connections[connection] = int(connection[1:])
        return self._write(rules, connections) if rules else None

    async def _with_sidecar(self, stages: Sequence[BridgeStage]) -> None:
        needed = [stage for stage in stages if stage.plan.is_about_messages and stage.running()]
        file = self._configuration(needed)
        sidecar = None if file is None else await RunningSidecar.start(file)
        try:
            playable = [stage for stage in stages if stage.error is None]
            plays = [_tried(stage, stage.resume(sidecar if stage in needed else None)) for stage in playable]
            for error in await asyncio.gather(*plays, return_exceptions=True):
                if isinstance(error, BaseException):
                    raise error
            if sidecar is not None:
                await sidecar.stop()
        finally:
            if sidecar is not None:
                await sidecar.kill()


async def _tried(stage: BridgeStage, work: Awaitable[None]) -> None:
    """Keep the error of a case that cannot be played within that case."""
    try:
        await work
    except SubjectError as error:
        stage.error = error
