"""Differential runs on real servers: the engine agrees, and engines that are wrong on purpose are found and shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.catalogue import read_text
from conformance.catalogue.case import Message, Publish, Refusal
from conformance.differential import ALL, DifferentialResult, Engine, Kind, compare, report
from conformance.differential.trial import Trial
from conformance.judging import judge
from conformance.observation import Decision, Stored
from conformance.outcome import Outcome
from conformance.servers import fetch
from conformance.subjects.identity import Identity
from conformance.subjects.native import NativeSubject
from transforms.republish import Republish

ONE = "2.10.27"


async def run(version: str, directory: Path, **options: Any) -> DifferentialResult:
    return await compare(version, fetch(version, report=print), directory, **{"seed": 1, "comparisons": 500, **options})


async def test_engine_and_server_agree(twin_version: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    result = await run(twin_version, tmp_path, seed=11, progress=lambda *each: told.append(each))
    assert result.is_good, report.text(result)
    assert result.total >= 500
    missing = {"2.9.10": {Kind.INGRESS, Kind.RANDOM}, "2.10.27": {Kind.RANDOM}}.get(twin_version, set())
    assert {kind for kind, count in result.comparisons.items() if count} == {kind.value for kind in ALL - missing}
    assert told[-1] == (twin_version, result.total, 500)


async def test_the_same_seed_compares_the_same(tmp_path: Path) -> None:
    first = await run(ONE, tmp_path / "1", comparisons=300)
    second = await run(ONE, tmp_path / "2", comparisons=300)
    assert (first.comparisons, first.held_back, first.trials) == (second.comparisons, second.held_back, second.trials)
    alone = await run(ONE, tmp_path / "3", only=4)
    assert alone.trials + sum(alone.held_back.values()) == 1


class OneShareMore(Engine):
    """partition(n) with n + 1 shares."""

    def republish_of(self, config: Mapping[str, Any]) -> Republish | None:
        rule = config.get("republish")
        if rule is None:
            return None
        wider = re.sub(
            r"(\{\{partition\()([1-9]\d?)(?=,)", lambda found: f"{found[1]}{int(found[2]) + 1}", rule["dest"]
        )
        return super().republish_of({**config, "republish": {**rule, "dest": wider}})


class DropsDuplicates(Engine):
    """A header line that is there twice comes out once."""

    def republished(self, config: Mapping[str, Any], stored: Stored, last_sequence: int) -> Message | None:
        made = super().republished(config, stored, last_sequence)
        if made is None:
            return None
        lines = made.header_block.split(b"\r\n")[:-2]
        return Message(made.subject, b"\r\n".join([*dict.fromkeys(lines), b"", b""]), made.payload)


class CountsFromZero(Engine):
    """The last sequence is one too low, unless there is none."""

    def republished(self, config: Mapping[str, Any], stored: Stored, last_sequence: int) -> Message | None:
        return super().republished(config, stored, max(last_sequence - 1, 0))


class StoresEmptyTokens(Engine):
    """An ingress transform that takes the last token away where there are more than three."""

    def ingressed(self, config: Mapping[str, Any], subject: bytes) -> bytes:
        return b".".join(super().ingressed(config, subject).split(b".")[:3])


class ForgetsRecords(Engine):
    """A copy without its source record."""

    def copied(self, entry: Mapping[str, Any], stored: Stored, identity: bytes, *, mirrors: bool) -> Message | None:
        made = super().copied(entry, stored, identity, mirrors=mirrors)
        return made and Message(made.subject, stored.message.header_block, made.payload)


class OtherWords(Engine):
    """A refusal of max_age in other words."""

    def decide(self, trial: Trial) -> Decision:
        decision = super().decide(trial)
        refusal = decision.refusal
        if refusal is None or "max age" not in (refusal.description or ""):
            return decision
        return Decision(refusal=Refusal(refusal.code, refusal.err_code, "that age is too long"))


WRONG: list[tuple[type[Engine], Kind, int, str]] = [
    (DropsDuplicates, Kind.REPUBLISH, 1, "header_block"),
    (CountsFromZero, Kind.REPUBLISH, 2, "header_block"),
    (StoresEmptyTokens, Kind.INGRESS, 1, "subject"),
    (ForgetsRecords, Kind.SOURCE, 1, "header_block"),
    (OtherWords, Kind.CREATE, 0, "decision"),
]


@pytest.mark.parametrize(("wrong", "kind", "messages", "where"), WRONG, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_wrong_engine_is_found_and_shrunk(
    wrong: type[Engine], kind: Kind, messages: int, where: str, tmp_path: Path
) -> None:
    result = await run(ONE, tmp_path, comparisons=400, kinds={kind}, engine=wrong(ONE))
    assert not result.is_good
    found = result.disagreements[0]
    assert where in found.where
    (case,) = read_text(found.entry, Path("entry"))
    assert sum(isinstance(step, Publish) for step in case.steps) == messages
    assert len(found.entry.splitlines()) < 40
    assert found.entry in report.text(result) + "\n"
    # What was printed is what a server shows: it can go into the catalogue as it is.
    subject = NativeSubject(ONE, fetch(ONE), tmp_path, at_once=1)
    await subject.open()
    try:
        verdict = judge(case, Identity("native", ONE), await subject.play(case))
    finally:
        await subject.close()
    assert verdict.outcome is Outcome.PASS, (verdict, found.entry)


async def test_a_wrong_hash_is_shrunk_to_a_message_that_shows_it(tmp_path: Path) -> None:
    result = await run(ONE, tmp_path, seed=5, comparisons=400, kinds={Kind.REPUBLISH}, engine=OneShareMore(ONE))
    found = next(each for each in result.disagreements if each.entry)
    (case,) = read_text(found.entry, Path("entry"))
    (message,) = [step.message for step in case.steps if isinstance(step, Publish)]
    assert len(message.subject) <= len(b"s.a.a.a")
    assert "partition" in found.entry


class OneTooMany(Engine):
    """random(n) that also gives n."""

    def republish_of(self, config: Mapping[str, Any]) -> Republish | None:
        rule = config["republish"]
        wider = re.sub(r"random\((\d+)\)", lambda found: f"random({int(found[1]) + 1})", rule["dest"])
        return super().republish_of({**config, "republish": {**rule, "dest": wider}})


async def test_random_functions_are_judged_by_range_and_distribution(tmp_path: Path) -> None:
    result = await run("2.15.1", tmp_path / "right", kinds={Kind.RANDOM})
    assert result.is_good, report.text(result)
    assert result.comparisons["random"] >= 5
    result = await run("2.15.1", tmp_path / "wrong", kinds={Kind.RANDOM}, engine=OneTooMany("2.15.1"))
    assert any("not within" in each.engine and each.native == "as it must be" for each in result.disagreements)
