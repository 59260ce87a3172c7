"""What `make follow` looks for, and how it reports it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nats_conformance.history import Played
from nats_conformance.identity import Identity
from nats_conformance.native_servers import InvalidVersionError
from nats_conformance.observation import Decision, Observation
from nats_conformance.reports import judged
from nats_transforms.tested_versions import TESTED_VERSIONS
from tests.follow.__main__ import main
from tests.follow.changes import Change
from tests.follow.findings import Findings, compared, disagreements, failing, findings, first_difference
from tests.follow.newer import Step, newer, releases, table_until
from tests.follow.playing import Part, Progress, parts, play
from tests.follow.report import RECIPE, followed, markdown, summary
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CYCLE, ORDER
from tests.unit.docs.pages import ROOT, anchors

TABLE = ["2.14.9", "2.15.1"]
STEP = Step("2.15.1", "2.15.3")
OLD, NEW, ENGINE = Identity("native", "2.15.1"), Identity("native", "2.15.3"), Identity("engine", "2.15.3")


def steps(listed: Sequence[str], table: Sequence[str] = TABLE) -> list[tuple[str, str]]:
    return [(each.previous, each.version) for each in newer(listed, table)]


def test_a_patch_is_compared_with_the_one_before_it() -> None:
    listed = ["2.15.10", "2.15.2", "2.14.10", "2.15.1", "2.14.9", "2.9.1"]
    assert steps(listed) == [("2.14.9", "2.14.10"), ("2.15.1", "2.15.2"), ("2.15.2", "2.15.10")]


def test_a_new_line_is_compared_with_the_newest_version_before_it() -> None:
    assert steps(["2.16.1", "2.16.0", "2.15.2"]) == [("2.15.1", "2.15.2"), ("2.15.2", "2.16.0"), ("2.16.0", "2.16.1")]


def test_lines_that_are_older_than_the_table_are_not_followed() -> None:
    assert steps(["2.13.0", "2.8.4", "1.4.1"]) == []


def test_pre_releases_come_in_their_order_before_the_release() -> None:
    listed = ["2.16.0", "2.16.0-RC.10", "v2.16.0-RC.2"]
    first, *others = steps(listed)
    assert first == ("2.15.1", "2.16.0-RC.2")
    assert others == [("2.16.0-RC.2", "2.16.0-RC.10"), ("2.16.0-RC.10", "2.16.0")]
    assert releases([*listed, "nonsense", "v2.15.4"]) == ["2.16.0", "2.15.4"]


def test_a_text_that_is_no_version_is_an_error() -> None:
    with pytest.raises(InvalidVersionError):
        steps(["2.15"])


def test_a_table_that_ends_earlier() -> None:
    table = ["2.9.10", "2.14.10", "2.15.3"]
    assert table_until(table, "2.15.1") == ["2.9.10", "2.14.10", "2.15.1"]
    assert steps(["2.14.10", "2.15.3"], table_until(table, "2.14.9")) == [("2.14.9", "2.14.10"), ("2.14.10", "2.15.3")]


def test_results_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    names = [part.name for part in parts(STEP, tmp_path)]
    assert names[:3] == ["live tests", "catalogue on 2.15.1", "catalogue on 2.15.3"]
    there = parts(STEP, tmp_path)[1].result
    there.parent.mkdir(parents=True)
    there.touch()
    assert [part.name for part in parts(STEP, tmp_path)] == [name for name in names if name != "catalogue on 2.15.1"]


def observed(case_id: str) -> Observation:
    run = sample_runs.run((ORDER, CYCLE), (OLD,))
    (seen,) = [each.observation for each in run.records if isinstance(each, Played) and each.case == case_id]
    return seen


def found(new: dict[str, Observation], engine: dict[str, Observation] | None = None) -> Findings:
    """The findings where the new version and its engine show something else than cases expect."""
    instead = {(case_id, NEW.label): seen for case_id, seen in new.items()}
    instead |= {(case_id, ENGINE.label): seen for case_id, seen in (engine or {}).items()}
    runs = [sample_runs.run((ORDER, CYCLE), subjects, instead) for subjects in ((OLD,), (NEW, ENGINE))]
    changed, unfollowed = compared(STEP, *(judged(run, (ORDER, CYCLE)) for run in runs))
    return Findings(STEP, changed, unfollowed)


def test_equal_runs_show_nothing() -> None:
    assert found({}).is_same
    assert "the engine follows" in markdown([found({})], Path("build/follow"))


def test_a_case_that_changed_and_is_not_followed() -> None:
    accepted = Observation((Decision(config={"name": "S"}),))
    result = found({CYCLE.id: accepted})
    (changed,), (unfollowed,) = result.changed, result.unfollowed
    refusal = "refused 10052 stream configuration for republish destination forms a cycle"
    assert changed.changes == (Change("decision", refusal, "accepted"),)
    assert unfollowed.changes == (Change("decision", "accepted", refusal),)
    text = markdown([result], Path("build/follow"))
    command = f"nats-conform run --versions 2.15.1,2.15.3 --subjects native,engine --select {CYCLE.id}"
    assert text.count(f"- again: `.venv/bin/{command}`") == 2
    assert f"  - 2.15.1: `{refusal}`\n  - 2.15.3: `accepted`\n" in text
    assert f"  - 2.15.3: `accepted`\n  - the engine: `{refusal}`\n" in text
    assert "cases that changed: 1, cases that the engine does not follow: 1 (0.0 min)" in summary(result)


def test_a_change_that_the_engine_follows() -> None:
    accepted = {CYCLE.id: Observation((Decision(config={"name": "S"}),))}
    result = found(accepted, accepted)
    assert [case.id for case in result.changed] == [CYCLE.id]
    assert result.unfollowed == ()


def test_a_previous_version_that_fails_a_case_casts_doubt_on_the_change() -> None:
    accepted = {(CYCLE.id, OLD.label): Observation((Decision(config={"name": "S"}),))}
    runs = [sample_runs.run((CYCLE,), (OLD,), accepted), sample_runs.run((CYCLE,), (NEW, ENGINE))]
    changed, unfollowed = compared(STEP, *(judged(run, (CYCLE,)) for run in runs))
    assert "2.15.1 did not do as the case expects of it" in markdown([Findings(STEP, changed)], Path("build/follow"))
    assert unfollowed == ()


def test_what_no_case_expects_is_compared_too() -> None:
    seen = observed(CYCLE.id)
    more = replace(seen, acks=({"stream": "S", "seq": 1, "new": True},))
    (changed,) = found({CYCLE.id: more}).changed
    assert changed.changes == (Change("acks, which no case expects anything of", "[]", json.dumps([_whole(more)])),)


def _whole(seen: Observation) -> dict[str, object]:
    (ack,) = seen.acks
    return {**(ack or {}), "batch": 0, "count": 0}


def test_the_first_difference_is_named_by_its_place() -> None:
    (change,) = first_difference("", {"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 4}], "c": 5})
    assert change == Change("a[1].b, which no case expects anything of", "2", "4")


def test_equal_disagreements_of_several_seeds_are_reported_once() -> None:
    entry = "# received:\n#   server: a\n#   engine: b\nclause: C\ncases:\n- id: native/differential/{}\n  title: T\n"
    shown = {"kind": "republish", "where": "received", "native": "a", "engine": "b"}
    results = [
        [{"seed": seed, "disagreements": [
            {"number": 7, **shown, "entry": entry.format(seed), "asked": 3}, {"number": 9, **shown, "entry": ""}
        ]}]
        for seed in (1, 2)
    ]  # fmt: skip
    one, *others = disagreements(STEP, results)
    assert one.name == "seed 1, trial 7, republish: received"
    assert "  server: a\n  engine: b\n  shrunk" in one.text
    assert one.again == ".venv/bin/python -m tests.differential --versions 2.15.3 --seed 1"
    assert [each.name for each in others] == [f"seed {seed}, 1 more" for seed in (1, 2)]


def test_few_inputs_of_a_seed_are_shown_and_the_others_counted() -> None:
    entry = "clause: C\ncases:\n- id: native/differential/{0}\n  title: T\n  transform: {{src: in.{0}, dest: out.x}}\n"
    shown = {"kind": "republish", "where": "received", "native": "a", "engine": "b", "asked": 1}
    many = [{"number": number, **shown, "entry": entry.format(number)} for number in range(1, 10)]
    found = list(disagreements(STEP, [[{"seed": 1, "disagreements": many}]]))
    assert [each.count for each in found] == [1] * 5 + [4]
    assert found[-1].text == "trials 6, 7, 8, 9"
    assert followed([Findings(STEP, disagreements=tuple(found))]).endswith("random comparisons that disagree: 9")


def test_live_tests_that_fail_are_named_with_their_command() -> None:
    report = (
        '<testsuites><testsuite><testcase classname="tests.live.republish.test_twin" name="test_a[2.15.3]">'
        '<failure message="AssertionError: x&#10;y">trace</failure></testcase>'
        '<testcase classname="tests.live.republish.test_twin" name="test_b"/></testsuite></testsuites>'
    )
    (failed,) = failing(STEP, report)
    assert failed.name == "tests/live/republish/test_twin.py::test_a[2.15.3]"
    assert failed.text == "AssertionError: x\ny"
    assert failed.again.startswith(
        "NATS_BRIDGE_TEST_SERVER=2.15.3 .venv/bin/python -m pytest 'tests/live/republish/test_twin.py::"
    )


def test_the_last_line_says_whether_the_version_is_followed() -> None:
    accepted = {CYCLE.id: Observation((Decision(config={"name": "S"}),))}
    assert followed([]) == "followed: yes, 0 cases changed, nothing left"
    assert followed([found(accepted, accepted), found({})]) == "followed: yes, 1 case changed, nothing left"
    last = markdown([found(accepted)], Path("build/follow")).splitlines()[-1]
    assert last == "followed: no, 1 case changed. Left: cases that the engine does not follow: 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / STEP.version).mkdir()
    return tmp_path


def test_what_has_ended_is_reported_before_the_rest_has(folder: Path) -> None:
    names = tuple(part.name for part in parts(STEP, folder))
    live = folder / STEP.version / "live.xml"
    live.write_text(
        '<testsuites><testsuite><testcase classname="tests.live.test_x" name="test_log"><failure message="E  -'
        ' connection.untested_server"/></testcase><testcase classname="tests.live.test_x" name="test_y"><failure'
        ' message="assert 1"/></testcase></testsuite></testsuites>'
    )
    waiting = names[1:]
    result = findings(STEP, folder, (ORDER,), Progress(waiting), 1.0)
    assert (result.broken, result.changed, result.unfollowed) == ({}, (), ())
    assert [each.name for each in result.failed] == ["tests/live/test_x.py::test_y"]
    assert [each.name for each in result.untested] == ["tests/live/test_x.py::test_log"]
    text = markdown([result], folder)
    assert f"Not ended yet: {', '.join(waiting)}." in text
    assert "## Live tests that name connection.untested_server: 1" in text
    assert f"parts that have not ended: {len(waiting)}" in text.splitlines()[-1]


async def test_each_end_of_a_part_is_reported(folder: Path) -> None:
    def part(name: str, code: int) -> Part:
        command = (sys.executable, "-c", f"import sys; open({str(folder / name)!r}, 'w'); sys.exit({code})")
        return Part(name, command, folder / name)

    seen: list[Progress] = []
    await play([part("one", 0), part("two", 1), part("three", 4)], lambda _: None, seen.append)
    assert [len(each.waiting) for each in seen] == [2, 1, 0]
    assert seen[-1].broken == {"three": "it ended with 4: no output"}


def test_the_recipe_that_the_report_names_is_there() -> None:
    page, _, heading = RECIPE.partition("#")
    assert heading in anchors(ROOT / page)


def follow(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--report", str(folder), *arguments])


def test_without_a_newer_version_there_is_a_sentence(tmp_path: Path) -> None:
    ran = follow(tmp_path, "--versions", f"{TESTED_VERSIONS[0]},{TESTED_VERSIONS[-1]}")
    assert ran.exit_code == 0
    assert f"No version is newer than the table, which ends at {TESTED_VERSIONS[-1]}." in ran.output
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == []


@pytest.mark.parametrize("arguments", [["--versions", "2.15.x"], ["--from", "2.15"], ["--from", "2.15.1,2.15.2"]])
def test_wrong_versions_are_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    assert follow(tmp_path, *arguments).exit_code == 2


def test_without_go_there_is_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = follow(tmp_path)
    assert ran.exit_code == 3
    assert "there is no Go on PATH" in ran.output
