"""A differential run where the account model takes the server's place: wrong engines are found and shrunk."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case, Create, Expectation, Level, Publish, Step, Update
from nats_conformance.catalogue.reading import read_text
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.account_model import AccountModel
from nats_conformance.implementations.engine import EngineSubject
from nats_conformance.implementations.engine_operations import TransformsEngine
from nats_conformance.judging import judge
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome
from nats_transforms.dialect import dialect
from tests.differential import ALL, DifferentialResult, Engine, Kind, report
from tests.differential.bench import Expected
from tests.differential.drawing import TARGET
from tests.differential.run import Run
from tests.differential.trial import Trial
from tests.differential.wrong_engines import WRONG, DropsDuplicates, OneShareMore, Wrong

ONE = "2.10.27"


class ModelBench:
    """Plays trials on the model of an account."""

    patience = 0.0

    async def play(
        self, trial: Trial, listen: Sequence[bytes], expected: Expected, *, with_messages: bool = True
    ) -> Observation:
        """See `Player`."""
        publishes: list[Step] = [Publish(message) for message in trial.messages] if with_messages else []
        changes: list[Step] = [Create(trial.config) if trial.previous is None else Update(trial.config)]
        if trial.previous is not None:
            changes.insert(0, Create(trial.previous))
        steps = [*publishes, *changes] if trial.copies else [*changes, *publishes]
        case = Case(
            id="native/model/1",
            title="",
            level=Level.OBSERVED,
            expectation=Expectation(),
            streams=trial.others,
            steps=tuple(steps),
            listen=tuple(listen),
        )
        native = dialect(ONE)
        seen = await AccountModel(TransformsEngine(native), native).play(case)
        if publishes and seen.decisions[-1].refusal is None and TARGET not in seen.stored:
            raise SubjectError(f"there is no stream {TARGET}")  # a shrunk trial may have renamed it
        # A case has the members of a refusal as they are; a server's answer has them in "error".
        acks = [each if each is None or "seq" in each else {"error": each} for each in seen.acks]
        return replace(seen, acks=tuple(acks))

    async def flush(self) -> None:
        """See `Player`."""


async def run(engine: Engine, kinds: Collection[Kind], *, seed: int = 1, only: int | None = None) -> DifferentialResult:
    return await Run(ONE, seed, 200, frozenset(kinds), engine=engine, only=only).over([ModelBench()])


async def test_the_model_and_the_engine_agree() -> None:
    result = await run(Engine(ONE), ALL - {Kind.RANDOM})
    assert result.is_good, report.text(result)
    assert result.total >= 200
    assert all(result.comparisons[kind] for kind in ALL - {Kind.RANDOM})


# Another one is shrunk in a header block, in a quarter of the time.
SHRUNK = [
    pytest.param(each, id=each.engine.__name__, marks=pytest.mark.exhaustive if each.engine is DropsDuplicates else ())
    for each in WRONG
]


@pytest.mark.parametrize("wrong", SHRUNK)
async def test_a_wrong_engine_is_found_and_shrunk(wrong: Wrong) -> None:
    result = await run(wrong.engine(ONE), {wrong.kind}, only=wrong.trial)
    (found,) = result.disagreements
    assert wrong.where in found.where
    (case,) = read_text(found.entry, Path("entry"))
    assert sum(isinstance(step, Publish) for step in case.steps) == wrong.messages
    assert len(found.entry.splitlines()) < 40
    assert found.entry in report.text(result) + "\n"
    # What was printed is what the right engine shows: it can go into the catalogue as it is.
    subject = EngineSubject(ONE)
    assert judge(case, subject.identity, await subject.play(case)).outcome is Outcome.PASS, found.entry


@pytest.mark.exhaustive
async def test_a_wrong_hash_is_shrunk_to_a_message_that_shows_it() -> None:
    result = await run(OneShareMore(ONE), {Kind.REPUBLISH}, seed=5, only=5)
    (found,) = result.disagreements
    (case,) = read_text(found.entry, Path("entry"))
    (message,) = [step.message for step in case.steps if isinstance(step, Publish)]
    assert len(message.subject) <= len(b"s.a.a.a")
    assert "partition" in found.entry
