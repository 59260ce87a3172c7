"""One case in front of the bridge: its streams in their accounts, its steps, and when a rule has done all there is.

Nothing here waits for a fixed time to be sure that no more messages come. The server shows the messages that a rule
still has to read (its consumer has none pending), the status shows those it has read, and all messages that it wrote
are on the server when the sidecar has drained and ended.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nats_conformance.catalogue.case import Create, Delete, ExpectedRefusal, Json, Publish, Purge, Settle, Step, Update
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.bridge_plan import DEAD_LETTERS, BridgePlan, PlannedRule
from nats_conformance.implementations.bridge_process import RefusedRule, RunningSidecar
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.raw_client import Collected
from nats_conformance.stage import Stage

_LIMIT: Final = 90.0
"""Seconds until a rule that does not come to its end counts as stuck."""
_ADVISORY_LIMIT: Final = 20.0
"""Seconds for the server's word on a delete or purge, which old servers now and then lose."""
_LOOK: Final = 0.01
_READ_AND_DONE: Final = ("unselected", "already_there", "rejected", "copied", "duplicates", "fillers")


class BridgeStage:
    """Plays one case.

    Args:
        plan: how.
        stages: one per account that it needs.
        connections: the names of the connections in the sidecar's configuration.
        name: part of the names of its rules; unique in the sidecar.
    """

    def __init__(self, plan: BridgePlan, stages: Sequence[Stage], connections: Sequence[str], name: str) -> None:
        self.plan = plan
        self.rules = {f"{name}-{number}": rule for number, rule in enumerate(plan.rules)}
        self.error: SubjectError | None = None
        self._stages = stages
        self.connections = connections
        self._off: set[int] = set()
        self._out: set[str] = set()
        self._refused: dict[int, int | None] = {}
        self._decisions: list[Decision] = []
        self._acks: list[Mapping[str, Json] | None] = []
        self.facts: dict[str, Json] = {}
        self._listening: list[tuple[Stage, Collected]] = []
        self._letters: list[tuple[Stage, Collected]] = []

    def running(self) -> dict[str, PlannedRule]:
        """Return the rules that a sidecar is to run, by name."""
        if self.error is not None:
            return {}
        return {
            name: rule
            for name, rule in self.rules.items()
            if name not in self._out
            and rule.decision not in self._off
            and (rule.replaced is None or rule.replaced in self._off)
        }

    async def begin(self) -> None:
        """Everything that comes before the sidecar starts.

        Raises:
            SubjectError: the server refuses the set-up.
        """
        case = self.plan.played
        for account, stage in enumerate(self._stages):
            stage.prepare(() if account else case.listen)
        for subject in case.listen:
            for stage in self._stages:
                self._listening.append((stage, await stage.client.subscribe(subject)))
        for stage in self._stages[1:]:
            self._letters.append((stage, await stage.client.subscribe(DEAD_LETTERS.encode())))
        for config in case.streams:
            await self._of(config).set_up(config)
        for step in case.steps[: self.plan.begin]:
            await self._carry_out(step)

    async def refuse(self, name: str, reason: RefusedRule, *, by_servers: bool = False) -> None:
        """Note that the bridge refuses a rule: its native configuration does not exist, as natively.

        Args:
            name: of the rule.
            reason: why.
            by_servers: whether it was checked against the present streams. Then the last configuration of its stream
                counts, not the one that the rule is from.
        """
        rule = self.rules[name]
        self._out.add(name)
        self.facts[f"refused {rule.kind} of {rule.stream}"] = reason.text
        at = self._last_decision_on(rule.stream) if by_servers else rule.decision
        if at is None:
            # The set-up is refused, so the steps have no visible result.
            at = len(self._decisions)
            self._decisions.append(Decision())
        if at >= len(self._decisions):
            return
        code = reason.err_code or None
        if at in self._refused and self._refused[at] != code:
            code = None  # a server would return one of the two, depending on the order of its checks
        self._refused[at] = code
        self._off.add(at)
        self._decisions[at] = Decision(refusal=ExpectedRefusal(None, code, None))
        steps = [step for step in self.plan.played.steps if isinstance(step, Create | Update)]
        if at < len(steps) and isinstance(steps[at], Create):
            await self._stages[rule.account].client.api(f"STREAM.DELETE.{rule.stream}")

    def _last_decision_on(self, stream: str) -> int | None:
        configs = [
            step.config for step in self.plan.played.steps[: self.plan.begin] if isinstance(step, Create | Update)
        ]
        found = [at for at, config in enumerate(configs) if config.get("name") == stream]
        return found[-1] if found else None

    async def resume(self, sidecar: RunningSidecar | None) -> None:
        """Play the steps while the sidecar runs, until its rules have handled everything.

        Raises:
            SidecarEndedError, SubjectError: as `Sidecar.until`.
        """
        for step in self.plan.played.steps[self.plan.begin :]:
            if sidecar is None:
                await self._carry_out(step)
            else:
                await self._carry_out_with_sidecar(sidecar, step)
        if sidecar is not None:
            await self._settle(sidecar)

    async def see(self) -> Observation:
        """Return the observation, once the sidecar has ended."""
        expectation = self.plan.expectation
        names = dict.fromkeys(expectation.stored or ())
        if expectation.received is not None:
            names |= dict.fromkeys(self.plan.accounts)
        stored: dict[str, tuple[Stored, ...]] = {}
        for name in names:
            stage = self._stages[self.plan.accounts.get(name, 0)]
            if name in (expectation.stored or ()):
                await stage.until_removed(name, len((expectation.stored or {})[name]))
            stored[name] = await stage.stored(name)
        for stage in self._stages:
            await stage.client.flush()
        received = tuple(message for _, collected in self._listening for message in collected.messages)
        letters = [letter.header_block for _, collected in self._letters for letter in collected.messages]
        if letters:
            self.facts["rejected"] = [letter.decode("utf-8", "replace") for letter in letters]
        return Observation(tuple(self._decisions), received, stored, tuple(self._acks), self.facts)

    async def end(self) -> None:
        """Delete everything that was created."""
        for stage, collected in (*self._listening, *self._letters):
            stage.client.unsubscribe(collected)
        for stage in self._stages:
            with contextlib.suppress(SubjectError):
                await stage.clean_up()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _of(self, config: Mapping[str, Json]) -> Stage:
        return self._stages[self.plan.accounts.get(str(config.get("name")), 0)]

    def _where(self, step: Step) -> Stage:
        match step:
            case Create(config) | Update(config):
                return self._of(config)
            case Publish(message):
                return self._stages[self.plan.account(message.subject)]
            case _:
                return self._stages[self.plan.accounts.get(step.stream, 0)]

    async def _carry_out(self, step: Step) -> None:
        if isinstance(step, Settle):
            return
        await self._where(step).carry_out(step, self._decisions, self._acks)
        if isinstance(step, Create | Update):
            at = len(self._decisions) - 1
            decision = self._decisions[at]
            if decision.refusal is not None:
                self._off.add(at)
            elif any(rule.stream == step.config.get("name") for rule in self.rules.values()):
                # the returned configuration differs from the native one, because the rule is elsewhere
                self._decisions[at] = Decision()

    async def _carry_out_with_sidecar(self, sidecar: RunningSidecar, step: Step) -> None:
        """Run a step while the rules run. First wait until they have read the messages that it removes."""
        if isinstance(step, Settle):
            await self._settle(sidecar)
            return
        if isinstance(step, Publish):
            removes = b"Nats-Rollup" in step.message.header_block
            if removes and not self._has_limits():
                await self._settle(sidecar)
            await self._carry_out(step)
            if removes or self._has_limits():
                await self._settle(sidecar)
            return
        await self._settle(sidecar)
        watching = [
            name
            for name, rule in self.running().items()
            if rule.kind == "republish" and isinstance(step, Delete | Purge) and rule.stream == step.stream
        ]
        before = {
            name: rule["counters"]["removals"] for name, rule in (await sidecar.status()).items() if name in watching
        }
        await self._carry_out(step)
        with contextlib.suppress(SubjectError):
            await sidecar.until(
                lambda rules: all(rules[name]["counters"]["removals"] > before[name] for name in watching),
                "the server's word on a removal",
                _ADVISORY_LIMIT,
            )
        created = step.config.get("name") if isinstance(step, Create) else None
        mine = [name for name, rule in self.running().items() if created and rule.stream == created]
        if mine:
            await sidecar.until(
                lambda rules: all(rules[name]["state"] == "ready" for name in mine), "rules of a stream"
            )

    def _has_limits(self) -> bool:
        """Return whether a message may be removed, or remove others, before a rule has read it."""
        limits = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_age")
        configs = self.plan.played.configs
        return any(
            isinstance(config.get(limit), int) and config[limit] > 0 for config in configs for limit in limits
        ) or any(config.get("retention") in ("interest", "workqueue") for config in configs)

    # -- rules -------------------------------------------------------------------------------------------------------

    async def _settle(self, sidecar: RunningSidecar) -> None:
        """Wait until every rule has finished its work, in the order in which they feed each other."""
        order = {"subject_transform": 0, "sources": 1, "mirror": 1, "republish": 2}
        rules = sorted(self.running().items(), key=lambda item: (order[item[1].kind], item[1].account))
        copying = sum(rule.kind in ("sources", "mirror") for _, rule in rules)
        for _ in range(max(copying, 1)):  # a chain of copies needs as many passes as it has links, at most
            for name, rule in rules:
                await self._read(sidecar, name, rule)

    async def _read(self, sidecar: RunningSidecar, name: str, rule: PlannedRule) -> None:
        if rule.kind == "subject_transform":
            return  # publishers wait for their answers
        status: Mapping[str, Any] = {}
        try:
            async with asyncio.timeout(_LIMIT):
                while True:
                    pending = await self._pending(name, rule)
                    status = (await sidecar.status())[name]
                    if status["state"] == "waiting" or _has_read(rule, status, pending):
                        return
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            raise SubjectError(
                f"rule of kind {rule.kind} of '{rule.stream}' did not come to its end in {_LIMIT:g} s:"
                f" it has {status}, the server {pending}"
            ) from None

    async def _pending(self, name: str, rule: PlannedRule) -> dict[str, list[tuple[int, int]]]:
        """Return for every stream that the rule reads its consumers' last delivered sequence and pending messages."""
        read = {rule.stream: rule.account} if rule.kind == "republish" else dict(rule.sources)
        found: dict[str, list[tuple[int, int]]] = {}
        for stream, account in read.items():
            client = self._stages[account].client
            answer = await client.api(f"CONSUMER.LIST.{stream}", {"offset": 0})
            consumers = [
                each for each in answer.get("consumers") or () if f"/{name}:" in each["config"].get("description", "")
            ]
            found[stream] = sorted([await self._delivered(account, stream, each) for each in consumers])
            if not consumers and "error" not in answer:
                found[stream] = await self._unlisted(account, stream, rule)
        return found

    async def _delivered(self, account: int, stream: str, consumer: Mapping[str, Any]) -> tuple[int, int]:
        """Return a consumer's last delivered sequence, and the number of pending messages, or 1 for some.

        Some servers (2.10) also count later messages that are deleted or filtered out. A new message may not be counted
        as pending yet, because servers notify consumers after they answer the publisher. So the newest message of the
        stream is checked as well.
        """
        config = consumer["config"]
        filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
        newest = max([await self._newest(account, stream, pattern) for pattern in filters])
        delivered = int(consumer["delivered"]["stream_seq"])
        to_come = max(consumer["num_pending"], int(delivered < newest))
        return min(delivered, newest) if consumer["delivered"]["consumer_seq"] else 0, to_come

    async def _newest(self, account: int, stream: str, pattern: str) -> int:
        client = self._stages[account].client
        answer = await client.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": pattern})
        return int(answer["message"]["seq"]) if "message" in answer else 0

    async def _unlisted(self, account: int, stream: str, rule: PlannedRule) -> list[tuple[int, int]]:
        # Without the rule's consumer, the newest selected message shows the position.
        if rule.kind != "republish" or "durable" not in rule.more:
            return [(0, 1)]
        return [(await self._newest(account, stream, rule.native.get("src") or ">"), 0)]


def _has_read(rule: PlannedRule, status: Mapping[str, Any], pending: Mapping[str, list[tuple[int, int]]]) -> bool:
    if any(more for consumers in pending.values() for _, more in consumers):
        return False
    if rule.kind == "republish":
        return all(int(status["position"]) >= delivered for each in pending.values() for delivered, _ in each)
    counted = status["counters"]
    if counted["received"] > sum(counted[name] for name in _READ_AND_DONE):
        return False
    for stream, consumers in pending.items():
        positions = sorted(entry["position"] or 0 for entry in status["sources"] if entry["name"] == stream)
        if any(at < delivered for at, (delivered, _) in zip(positions, consumers, strict=False)):
            return False
    return True
