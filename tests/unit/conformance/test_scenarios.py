"""Every scenario has a case, and every case that names a scenario names one that there is."""

from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.errors import CatalogueError
from nats_conformance.scenarios import play_scenario, scenario_names
from nats_transforms.dialect import dialect
from nats_transforms.tested_versions import LIVE_VERSIONS, NEWEST_PATCHES

_VERSIONS = [dialect(f"{major}.{minor}").version for major, minor in NEWEST_PATCHES] + [
    dialect(text).version for text in LIVE_VERSIONS
]


@pytest.fixture(scope="module", name="cases")
def _cases() -> tuple[Case, ...]:
    return tuple(case for case in read_catalogue() if case.scenario is not None)


def test_scenarios_and_cases_are_the_same_ones(cases: tuple[Case, ...]) -> None:
    assert {case.scenario for case in cases} == scenario_names()


def test_no_scenario_is_named_by_two_cases(cases: tuple[Case, ...]) -> None:
    assert len(cases) == len({case.scenario for case in cases})


def test_there_are_as_many_as_were_promised() -> None:
    assert len(scenario_names()) >= 40


def test_cases_of_scenarios_expect_facts_of_every_version(cases: tuple[Case, ...]) -> None:
    for case in cases:
        for version in _VERSIONS:
            assert not case.applies(version) or case.expected(version).facts, (case.id, version)


def test_every_known_difference_is_reached_by_a_version(cases: tuple[Case, ...]) -> None:
    for case in cases:
        for difference in case.differences:
            reached = [version for version in _VERSIONS if case.difference(version) is difference]
            exact = (*difference.range.since, *difference.range.until)
            # What came with a patch between the versions that are tested is no mistake.
            assert reached or any(patch for _, _, patch in exact), (case.id, difference.reason)


def test_what_ends_a_server_is_marked(cases: tuple[Case, ...]) -> None:
    for case in cases:
        for version in _VERSIONS:
            facts = case.expected(version).facts or {}
            if case.applies(version) and (facts.get("server") == "ended" or facts.get("loops")):
                assert case.harms_server(version), (case.id, version)


async def test_a_scenario_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"scenario 'no-such-thing' does not exist; there are: .*kill-and-restart"):
        await play_scenario("no-such-thing", tmp_path / "nats-server", tmp_path)
