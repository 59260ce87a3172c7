"""Case files: mistakes are reported by file, line and field; the catalogue's files are sound."""

import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from nats_conformance.catalogue.case import Case, Create, Expectation, ExpectedRefusal, Level, Publish, Update
from nats_conformance.catalogue.reading import CATALOGUE, checksum, read_catalogue, read_file, read_text, schema
from nats_conformance.command.group import conform
from nats_conformance.errors import CatalogueError, ConformanceError
from nats_conformance.scenarios import scenario_names
from nats_transforms.dialect import Feature
from nats_transforms.tested_versions import NEWEST_PATCHES, Version

ROOT = Path(__file__).parents[3]
FILE = Path("cases.yaml")
GOOD = """\
clause: ADR-28, A Section
cases:
  - id: adr28/topic/thing/1
    title: A rule as a sentence
    level: must
    create: {name: S, subjects: [in.a]}
    expect: {config: {name: S}}
"""
CREATE = "    create: {name: S, subjects: [in.a]}\n"
EXPECT = "    expect: {config: {name: S}}\n"
RECEIVED = """\
    publish:
      - {subject: in.a, payload: one}
    expect:
      received:
        - {subject: out.a, headers: ["Nats-Sequence: 1", "Nats-Time-Stamp: <time>"], payload: one}
"""
LINES = [(2, 9, 10), *((*line, patch) for line, patch in NEWEST_PATCHES.items())]
"""A version of every minor line, and 2.9.10, which many packages still have."""


def read(text: str) -> Case:
    """The only case of a text."""
    (case,) = read_text(text, FILE)
    return case


def error_of(text: str) -> str:
    with pytest.raises(CatalogueError) as caught:
        read_text(text, FILE)
    return str(caught.value)


def test_a_good_file_is_read() -> None:
    case = read(GOOD)
    assert (case.id, case.title, case.level) == ("adr28/topic/thing/1", "A rule as a sentence", Level.MUST)
    assert (case.clause, case.file, case.line) == ("ADR-28, A Section", FILE, 3)
    assert case.steps == (Create({"name": "S", "subjects": ["in.a"]}),)
    assert case.expectation == Expectation(config={"name": "S"})


@pytest.mark.parametrize(
    ("written", "instead", "reported"),
    [
        ("level: must", "levl: must", ["cases.yaml:5: cases.0.levl: unknown key; did you mean 'level'?", "is missing"]),
        (
            "level: must",
            "level: must\n    zzzz: 1",
            ["cases.yaml:6: cases.0.zzzz: unknown key; there are: since, until, id, title,"],
        ),
        ("level: must", "level: maybe", ["cases.yaml:5: cases.0.level: ", "'must', 'should' or 'observed'", "'maybe'"]),
        ("    title: A rule as a sentence\n", "", ["cases.yaml:3: cases.0.title: this key is missing"]),
        ("A rule as a sentence", "Rule", ["cases.yaml:4: cases.0.title: ", "at least 8 characters (it is 'Rule')"]),
        ("A rule as a sentence", "x" * 141, ["cases.yaml:4: cases.0.title: ", "at most 140 characters"]),
        ("adr28/topic/thing/1", "adr28/topic/thing", ["cases.yaml:3: cases.0.id: ", "such as adr28/headers/order/1"]),
        ("adr28/topic/thing/1", "adr/topic/1", ["cases.yaml:3: cases.0.id: an id is adr and a number, or native"]),
        ("adr28/topic/thing/1", "adr28/Topic/1", ["cases.yaml:3: cases.0.id: ", "(it is 'adr28/Topic/1')"]),
        (
            "level: must",
            "level: must\n    level: should",
            ["cases.yaml:6: key 'level' is a duplicate, first used in line 5"],
        ),
        ("level: must", "level: must\n    needs: [luck]", ["cases.yaml:6: cases.0.needs.0: ", "'store' or 'account'"]),
        ("level: must", "level: must\n    kd: [x]", ["cases.yaml:6: cases.0.kd.0: ", "such as kd/", "(it is 'x')"]),
        ("level: must", "level: must\n    quote: 5", ["cases.yaml:6: cases.0.quote: ", "valid string (it is 5)"]),
        (EXPECT, "", ["cases.yaml:3: cases.0.expect: this key is missing"]),
        ("{config: {name: S}}", "{confg: {}}", ["cases.yaml:7: cases.0.expect.confg: ", "did you mean 'config'?"]),
        (
            "{config: {name: S}}",
            "{config: {name: S}",
            ["cases.yaml:8: not valid YAML: did not find expected ',' or"],
        ),
    ],
)
def test_wrong_fields(written: str, instead: str, reported: list[str]) -> None:
    assert written in GOOD
    error = error_of(GOOD.replace(written, instead))
    assert [each for each in reported if each not in error] == [], error


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ('since: "2.10.x"', 'cases.yaml:6: cases.0.since: a version is such as "2.10" or "2.10.27", in quotes'),
        (
            "since: 2.10",
            'cases.yaml:6: cases.0.since: a version is such as "2.10" or "2.10.27", in quotes (it is 2.1)',
        ),
        ('since: "3.0"', "cases.yaml:6: cases.0.since: unknown dialect '3.0': known are 2.9, "),
        ('until: "2.13"', "cases.yaml:6: cases.0.until: unknown dialect '2.13': known are 2.9, "),
        ('until: ["2.11.3", "2.x"]', 'cases.yaml:6: cases.0.until.1: a version is such as "2.10" or "2.10.27"'),
        ('harms: {since: "2.13"}', "cases.yaml:6: cases.0.harms.since: unknown dialect '2.13'"),
    ],
)
def test_wrong_versions(written: str, reported: str) -> None:
    assert reported in error_of(GOOD.replace("level: must\n", f"level: must\n    {written}\n"))


@pytest.mark.parametrize(
    ("steps", "reported"),
    [
        (
            "steps:\n      - {create: {name: S}, drop: S}",
            "cases.yaml:7: cases.0.steps.0: a step is exactly one of create",
        ),
        ("steps:\n      - {}", "cases.yaml:7: cases.0.steps.0: a step is exactly one of create, update, publish"),
        ("steps:\n      - {remove: S}", "cases.yaml:7: cases.0.steps.0.remove: unknown key; there are: create, update"),
        ("steps:\n      - {delete: {stream: S}}", "cases.yaml:7: cases.0.steps.0.delete.sequence: this key is missing"),
        ("steps: drop", "cases.yaml:6: cases.0.steps: expected a list (it is 'drop')"),
        (
            'publish:\n      - {subject: in.a, headers: ["A: 1"], block: ""}',
            "cases.yaml:7: cases.0.publish.0: give headers or block, not both",
        ),
        (
            "publish:\n      - {subject: in.a, payload: {hex: 0g}}",
            "cases.0.publish.0.payload.hex: no hexadecimal text of whole bytes, such as 666f6f (it is '0g')",
        ),
        (
            'publish:\n      - {subject: in.a, payload: {hex: "abc"}}',
            "cases.yaml:7: cases.0.publish.0.payload.hex: no hexadecimal text of whole bytes",
        ),
        (
            "publish:\n      - {subject: in.a, sequence: 1}",
            "cases.yaml:7: cases.0.publish.0: the sequence of a published message is the server's to give",
        ),
        ("scenario: crash\n" + CREATE.rstrip(), "cases.yaml:6: adr28/topic/thing/1: scenario: a case has steps, "),
        ("quote: nothing is done", "cases.yaml:3: adr28/topic/thing/1: a case has steps, create, update, publish or a"),
        ("transform: {src: in.*}", "cases.yaml:6: cases.0.transform.dest: this key is missing"),
        (
            "transform: {src: in.*, dest: out.$1}",
            "cases.yaml:6: adr28/topic/thing/1: transform: the expectation has no results",
        ),
        (
            "transform: {src: in.*, dest: out.$1, place: egress, subjects: [in.a]}",
            "cases.yaml:6: cases.0.transform.place: Input should be 'republish', 'ingress', 'source' or 'mirror'",
        ),
        (
            "transform: {src: in.*, dest: out.$1, subjects: [in.a]}\n    streams: [{name: S}]",
            "cases.yaml:6: adr28/topic/thing/1: transform: transform is the short form of a case: no streams",
        ),
    ],
)
def test_wrong_steps(steps: str, reported: str) -> None:
    assert reported in error_of(GOOD.replace(CREATE, f"    {steps}\n"))


def test_results_are_those_of_a_transform() -> None:
    text = GOOD.replace(EXPECT, "    expect: {results: {in.a: out.a}}\n")
    assert error_of(text) == (
        "cases.yaml:7: adr28/topic/thing/1: expect: results are those of a transform; this case has none"
    )


def test_every_subject_of_a_transform_has_a_result() -> None:
    text = GOOD.replace(CREATE, "    transform: {src: in.*, dest: out.$1}\n").replace(
        EXPECT,
        "    expect: {results: {in.a: out.a}}\n"
        '    differences: [{until: "2.10", reason: it was so, expect: {results: {in.b: x}}}]\n',
    )
    assert "cases.yaml:8: adr28/topic/thing/1: differences.0.expect.results: no result is given" in error_of(text)


@pytest.mark.parametrize(
    ("difference", "reported"),
    [
        ("reason: it was so, expect: {received: []}", "cases.0.differences.0: a difference needs since or until"),
        ('until: "2.10", expect: {received: []}', "cases.0.differences.0.reason: this key is missing"),
        ('until: "2.10", reason: so, expect: {received: []}', "differences.0.reason: String should have at least 8"),
        ('until: "2.10", reason: it was so', "cases.0.differences.0: a difference says expect or without, one of them"),
        (
            'until: "2.10", reason: it was so, without: Nats-Sequence, expect: {received: []}',
            "cases.0.differences.0: a difference says expect or without, one of them",
        ),
        (
            'until: "2.10", reason: it was so, without: Nats-Subject',
            "adr28/topic/thing/1: differences.0.without: no expected message has a header Nats-Subject",
        ),
        ('until: "2.10", reason: it was so, without: "A: 1"', "cases.0.differences.0.without: the name of a header"),
        ('until: "2.13", reason: it was so, expect: {received: []}', "differences.0.until: unknown dialect '2.13'"),
    ],
)
def test_wrong_differences(difference: str, reported: str) -> None:
    error = error_of(
        GOOD.replace(CREATE, "").replace(EXPECT, RECEIVED) + f"    differences:\n      - {{{difference}}}\n"
    )
    assert error.startswith("cases.yaml:12: ")
    assert reported in error


def test_a_difference_without_a_header_expects_the_other_lines() -> None:
    case = read(
        GOOD.replace(CREATE, "").replace(EXPECT, RECEIVED)
        + '    differences:\n      - {until: "2.10", reason: it came with 2.10, without: Nats-Time-Stamp}\n'
    )
    older, newer = case.expected((2, 9, 10)).received, case.expected((2, 10, 0)).received
    assert older is not None
    assert newer is not None
    assert older[0].header_block == b"NATS/1.0\r\nNats-Sequence: 1\r\n\r\n"
    assert newer[0].header_block == b"NATS/1.0\r\nNats-Sequence: 1\r\nNats-Time-Stamp: <time>\r\n\r\n"
    assert (older[0].subject, older[0].payload) == (b"out.a", b"one")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "cases.yaml: the file: expected a mapping; its keys are: clause, cases"),
        ("# nothing yet\n", "cases.yaml: the file: expected a mapping; its keys are: clause, cases"),
        ("- adr28/topic/thing/1\n", "cases.yaml:1: the file: expected a mapping; its keys are: clause, cases"),
        ("clause: ADR-28, A Section\n", "cases.yaml:1: cases: this key is missing"),
        ("clause: ADR-28, A Section\ncases: []\n", "cases.yaml:2: cases: a list without an entry"),
        ("clause: x\ncases:\n\t- id: a\n", "cases.yaml:3: not valid YAML: found character that cannot start any token"),
        ("clause: x\ncases: [&a [*a]]\n", "cases.yaml:2: an alias refers to the mapping or list that contains it"),
    ],
)
def test_no_case_file(text: str, reported: str) -> None:
    assert reported in error_of(text)


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    error = error_of(GOOD.replace("level: must", "level: maybe").replace("A rule as a sentence", "Rule"))
    assert [line.split(": ")[1] for line in error.splitlines()] == ["cases.0.title", "cases.0.level"]


def test_an_update_is_in_memory_where_its_stream_is() -> None:
    steps = "    steps: [{create: {name: S}}, {update: {name: S}}, {publish: {subject: S}}]\n"
    created, updated, published = read(GOOD.replace(CREATE, steps)).steps
    assert created == Create({"storage": "memory", "name": "S"})
    assert updated == Update({"storage": "memory", "name": "S"})
    assert isinstance(published, Publish)


def test_an_id_is_used_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "b.yaml").write_text(GOOD, "utf-8")
    with pytest.raises(CatalogueError, match=r"b\.yaml:3: id 'adr28/topic/thing/1' is taken, by .*a\.yaml:3"):
        read_catalogue(tmp_path)


def test_a_folder_without_case_files_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="no case file"):
        read_catalogue(tmp_path)


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"missing\.yaml: .*No such file"):
        read_file(tmp_path / "missing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"clause: \xff\n")
    with pytest.raises(CatalogueError, match=r"latin\.yaml: .*utf-8"):
        read_file(tmp_path / "latin.yaml")


# --- the catalogue that is part of the suite


@pytest.fixture(scope="module", name="cases")
def _cases() -> tuple[Case, ...]:
    return read_catalogue()


def reads(expectation: Expectation) -> bool:
    seen = (
        expectation.refusal,
        expectation.config,
        expectation.received,
        expectation.stored,
        expectation.acks,
        expectation.facts,
    )
    return any(each is not None for each in seen) and expectation.refusal != ExpectedRefusal()


def bounds(ranges: Feature) -> list[Version]:
    """The versions at which something begins, and the last ones before something ends."""
    before = [(*first[:2], first[2] - 1) for first in ranges.until if first[2]]
    return [*ranges.since, *before]


def test_every_file_of_the_catalogue_has_cases_of_one_document(cases: tuple[Case, ...]) -> None:
    assert cases
    for case in cases:
        assert case.file is not None
        document = case.file.relative_to(CATALOGUE).parts[0]
        assert case.id.startswith(f"{document}/"), f"{case.file}:{case.line}: {case.id}"


def test_ids_follow_the_form_and_are_there_once(cases: tuple[Case, ...]) -> None:
    assert [
        case.id for case in cases if not re.fullmatch(r"(adr[0-9]{2}|native)(/[a-z0-9-]+){1,4}/[0-9]+", case.id)
    ] == []
    assert [each for each, times in Counter(case.id for case in cases).items() if times > 1] == []


def test_titles_are_there_once(cases: tuple[Case, ...]) -> None:
    """A reader of the matrix distinguishes cases by their titles."""
    assert [each for each, times in Counter((case.file, case.title) for case in cases).items() if times > 1] == []


def test_every_case_checks_something(cases: tuple[Case, ...]) -> None:
    expectations = [
        (case, each) for case in cases for each in (case.expectation, *(d.expectation for d in case.differences))
    ]
    assert [case.id for case, each in expectations if not reads(each)] == []


def test_every_case_is_about_a_known_version(cases: tuple[Case, ...]) -> None:
    assert [case.id for case in cases if not any(map(case.applies, [*LINES, *bounds(case.range)]))] == []


def test_every_difference_says_why_and_is_reachable(cases: tuple[Case, ...]) -> None:
    wrong = []
    for case in cases:
        versions = [version for version in {*LINES, *bounds(case.range)} if case.applies(version)]
        for difference in case.differences:
            asked = [*versions, *(version for version in bounds(difference.range) if case.applies(version))]
            if len(difference.reason.split()) < 3 or not any(case.difference(each) is difference for each in asked):
                wrong.append(f"{case.id}: {difference.reason}")
    assert wrong == []


def test_every_difference_expects_something_else_than_the_case(cases: tuple[Case, ...]) -> None:
    same = [case.id for case in cases for each in case.differences if each.expectation == case.expectation]
    assert same == []


def test_scenarios_of_cases_exist(cases: tuple[Case, ...]) -> None:
    assert sorted({case.scenario for case in cases if case.scenario} - scenario_names()) == []


def test_what_the_clause_demands_is_quoted_in_adr_28(cases: tuple[Case, ...]) -> None:
    ours = [case for case in cases if case.id.startswith("adr28/") and case.file and case.file.name != "engine.yaml"]
    assert [case.id for case in ours if case.level is Level.MUST and not case.quote] == []


def test_the_published_schema_is_the_one_that_is_used() -> None:
    published = json.loads((CATALOGUE / "case-file.schema.json").read_text())
    assert published == schema(), "nats-conform schema > conformance/nats_conformance/catalogue/case-file.schema.json"


def test_the_cases_are_exported_with_schema_version_and_licence(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    ran = CliRunner().invoke(conform, ["export", str(folder)])
    assert ran.exit_code == 0, ran.output
    described = json.loads((folder / "catalogue.json").read_text("utf-8"))
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", described["version"])
    assert described["sha256"] == checksum(folder) == checksum()
    assert len(read_catalogue(folder)) == described["cases"] == len(read_catalogue())
    jsonschema.Draft202012Validator.check_schema(json.loads((folder / described["schema"]).read_text("utf-8")))
    project = tomllib.loads((ROOT / "conformance" / "pyproject.toml").read_text("utf-8"))["project"]
    assert described["license"] == project["license"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    again = CliRunner().invoke(conform, ["export", str(folder)])
    assert isinstance(again.exception, ConformanceError)
    assert "not empty" in str(again.exception)
