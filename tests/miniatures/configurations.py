"""Wrong engines that decide stream configurations otherwise than servers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nats_conformance.catalogue.case import Json, Refusal
from nats_conformance.implementations.engine_operations import Config, EngineOperations, TransformsEngine
from nats_conformance.observation import Decision
from nats_transforms.dialect import Dialect
from tests.miniatures.miniature import Miniature


class _OtherDecisions(TransformsEngine):
    """Changes the answer."""

    def __init__(self, dialect: Dialect, change: Callable[[Decision, Json], Decision]) -> None:
        super().__init__(dialect)
        self._change = change

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        return self._change(await super().decide(config, previous, others), config)


def _changed(change: Callable[[Decision, Json], Decision]) -> Callable[[Dialect], EngineOperations]:
    return lambda dialect: _OtherDecisions(dialect, change)


def _accepting(err_code: int, words: str = "") -> Callable[[Dialect], EngineOperations]:
    """Accepts what servers refuse with this code and these words."""

    def change(decision: Decision, config: Json) -> Decision:
        refusal = decision.refusal
        if refusal is None or refusal.err_code != err_code or words not in (refusal.description or ""):
            return decision
        return Decision(config=config)

    return _changed(change)


def _other_code(decision: Decision, _: Json) -> Decision:
    refusal = decision.refusal
    return decision if refusal is None else Decision(refusal=replace(refusal, err_code=10052))


def _other_words(decision: Decision, _: Json) -> Decision:
    refusal = decision.refusal
    if refusal is None or refusal.description is None:
        return decision
    return Decision(refusal=Refusal(refusal.code, refusal.err_code, refusal.description.capitalize()))


def _as_given(decision: Decision, config: Json) -> Decision:
    return Decision(config=config) if decision.refusal is None else decision


CONFIGURATIONS = (
    Miniature(
        "one-code-for-all",
        "refuses every configuration with the same err_code",
        "adr36/rules/codes/1",
        _changed(_other_code),
    ),
    Miniature(
        "words-of-its-own",
        "begins the server's descriptions with a capital",
        "adr28/rules/cycle/1",
        _changed(_other_words),
    ),
    Miniature(
        "accepts-cycles",
        "accepts a republish destination that comes back into the stream",
        "adr28/rules/cycle/1",
        _accepting(10052, "forms a cycle"),
    ),
    Miniature(
        "accepts-overlapping-filters",
        "accepts filters of one source that cover each other",
        "adr36/rules/overlap/1",
        _accepting(10147),
    ),
    Miniature(
        "accepts-duplicate-sources",
        "accepts the same source twice, if it only begins elsewhere",
        "adr36/rules/duplicate/1",
        _accepting(10140),
    ),
    Miniature(
        "accepts-wrong-indexes",
        "accepts a republish transform with an index that the source does not have",
        "adr30/index/beyond/1",
        _accepting(10052, "with transform from"),
    ),
    Miniature(
        "no-defaults",
        "gives the configuration back as it came, without what servers fill in",
        "adr28/validation/source-default/1",
        _changed(_as_given),
    ),
)
