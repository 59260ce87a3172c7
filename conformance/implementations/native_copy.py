"""Native copying through the sidecar as a subject of test: a server's mirrors and sources, and rules that serve them.

Played like the bridge, in batches with one process each. A case is played as on a native server, except that its
entries read through the sidecar: that runs before the first stream exists, and a stream that copies is created as soon
as its rules are ready. What is seen is judged as of a native server: none of what makes copies by a client differ is
explained away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nats_bridge.conformance.catalogue.case import Case, Json, Refusal, Step
from nats_bridge.conformance.implementations.bridge import BridgeSubject
from nats_bridge.conformance.implementations.bridge_plan import Plan
from nats_bridge.conformance.implementations.bridge_process import Sidecar
from nats_bridge.conformance.implementations.bridge_stage import BridgeStage, error_number
from nats_bridge.conformance.implementations.native_copy_plan import NativeCopyPlan, leaf_of, native_copy_plan
from nats_bridge.conformance.implementations.stage import Stage
from nats_bridge.conformance.observation import Decision, Observation
from nats_bridge.conformance.raw_client import RawClient
from nats_bridge.native_servers.native_server import HOST, LEAF_LISTENER
from nats_bridge.transforms.dialect import server_dialect


class _NativeCopyStage(BridgeStage):
    """Plays one case; see `BridgeStage`. Everything happens while the sidecar runs."""

    def __init__(self, plan: Plan, stages: Sequence[Stage], connections: Sequence[str], name: str) -> None:
        super().__init__(plan, stages, connections, name)
        assert isinstance(plan, NativeCopyPlan)
        self._through = _Through(stages[0].client, plan, self)
        self._seen = Observation()

    async def begin(self) -> None:
        """Create nothing."""

    async def refuse(self, name: str, text: str, *, by_servers: bool = False) -> None:
        """Note that the sidecar refuses a rule; see `BridgeStage`."""
        self._out.add(name)
        self._facts[f"refused source {self.rules[name].stream}"] = text
        self._through.refusals[name] = Refusal(None, error_number(text), None)

    async def resume(self, sidecar: Sidecar | None) -> None:
        """Play the case."""
        self._through.sidecar = sidecar
        self._seen = await self._through.play(self.plan.case, self.plan.expectation)

    async def see(self) -> Observation:
        """The observation."""
        return replace(self._seen, facts=self._facts)

    async def end(self) -> None:
        """Delete nothing: `resume` has."""


class _Through(Stage):
    """A stage whose streams copy through the sidecar.

    Attributes:
        sidecar: runs the rules; None where nothing is copied.
        refusals: of rules, by name.
    """

    def __init__(self, client: RawClient, plan: NativeCopyPlan, case: _NativeCopyStage) -> None:
        super().__init__(client)
        self.sidecar: Sidecar | None = None
        self.refusals: dict[str, Refusal] = {}
        self._plan = plan
        self._case = case

    async def carry_out(self, step: Step, decisions: list[Decision], acks: list[Mapping[str, Json] | None]) -> None:
        await super().carry_out(self._plan.step(step), decisions, acks)

    async def _decide(self, verb: str, config: Mapping[str, Json]) -> Decision:
        names = [name for name, rule in self._case.rules.items() if rule in self._plan.rules_of(config)]
        refused = [self.refusals[name] for name in names if name in self.refusals]
        if refused:
            # Rules report the number of a source; that of a mirror is another one.
            return Decision(refusal=Refusal() if config.get("mirror") else refused[0])
        await self._until_served(names)
        decision = await super()._decide(verb, self._plan.config(config))
        return decision if decision.config is None else Decision(config=self._plan.restored(decision.config))

    async def _until_served(self, names: Sequence[str]) -> None:
        """Wait for the rules whose streams exist."""
        if self.sidecar is None:
            return
        asked = {name: await self.client.api(f"STREAM.INFO.{self._case.rules[name].stream}") for name in names}
        wanted = [name for name, answer in asked.items() if "error" not in answer]
        await self.sidecar.until(lambda rules: all(rules[name]["ready"] for name in wanted), "rules of a stream")


class NativeCopySubject(BridgeSubject):
    """Servers of a version that copy through the sidecar; see `BridgeSubject`."""

    kind = "native_copy"
    accounts = 1
    stage_type = _NativeCopyStage
    more_config = f"leafnodes {{{LEAF_LISTENER}}}\n"

    def _plan(self, case: Case) -> NativeCopyPlan:
        return native_copy_plan(case, server_dialect(self.identity.server))

    async def _ask_servers(self, stages: Sequence[BridgeStage]) -> None:
        """Ask nothing: the streams do not exist yet."""

    def _connections(self, users: Mapping[str, int | None]) -> dict[str, dict[str, Json]]:
        found = super()._connections(users)
        leaf = {"servers": [f"nats://{HOST}:{self._server.leaf_port}"]}
        return found | {leaf_of(name): connection | leaf for name, connection in found.items()}
