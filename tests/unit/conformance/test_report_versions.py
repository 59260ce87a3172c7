"""What changes between versions, as docs/versions.md says it."""

from __future__ import annotations

from dataclasses import replace

from docs.versions import version_changes
from nats_conformance.catalogue.case import (
    Case,
    Difference,
    Expectation,
    ExpectedRefusal,
    Level,
    TransformCase,
    TransformPlace,
)
from nats_conformance.catalogue.expansion import expanded_expectation, expanded_steps
from nats_conformance.history import Played
from nats_conformance.identity import Identity
from nats_conformance.observation import Decision, Observation
from nats_conformance.reports import judged
from nats_transforms.dialect import Feature
from tests.unit.conformance import sample_runs
from tests.unit.conformance.sample_runs import CASES, CYCLE, ORDER, SUBJECTS


def _pages(cases=CASES, subjects=SUBJECTS, instead=None) -> dict[str, str]:
    return version_changes(judged(sample_runs.run(cases, subjects, instead), cases))


def _overview(**run) -> str:
    return _pages(**run)["versions.md"]


def _section(pages: dict[str, str], heading: str) -> str:
    (page,) = [text for text in pages.values() if text.startswith(f"# {heading}\n")]
    return page


def test_a_page_for_each_pair_of_native_servers() -> None:
    headings = {name: text.splitlines()[0] for name, text in _pages().items()}
    assert headings == {
        "versions.md": "# What changes between server versions",
        "versions-2.10.md": "# From 2.9 to 2.10",
        "versions-2.11.md": "# From 2.10 to 2.11",
        "versions-2.12.md": "# From 2.11 to 2.12",
        "versions-2.14.md": "# From 2.12 to 2.14",
        "versions-2.15.md": "# From 2.14 to 2.15",
    }


def test_versions_are_in_their_order_whatever_the_run_did_first() -> None:
    backwards = tuple(reversed(SUBJECTS))
    assert _pages(subjects=backwards) == _pages()


def test_a_new_header_line_is_named_once_with_reason_and_first_version() -> None:
    section = _section(_pages(), "From 2.9 to 2.10")
    (row,) = [line for line in section.splitlines() if "adr28/headers/order/1" in line]
    assert row == (
        "| Nats-Time-Stamp came with 2.10 "
        "| The server's lines come in a fixed order, behind the publisher's own<br>`adr28/headers/order/1` "
        "| `received, headers`: `no such line` "
        "| `received, headers`: `Nats-Time-Stamp: <time>` "
        "| 2.10.0 |"
    )


def test_a_change_in_the_midst_of_a_minor_line_names_the_patch() -> None:
    section = _section(_pages(), "From 2.11 to 2.12")
    (row,) = [line for line in section.splitlines() if "native/last-sequence/deleted/1" in line]
    assert "`Nats-Last-Sequence: 0` | `received, headers`: `Nats-Last-Sequence: 1`" in row
    assert row.endswith("| 2.12.5 |")


def test_facts_of_scenarios() -> None:
    section = _section(_pages(), "From 2.11 to 2.12")
    assert "| `server`: `ended`<br>`subject`: `absent` | `server`: `running`<br>`subject`: `out.0` |" in section


def test_pairs_without_a_change_say_so() -> None:
    assert "No case shows a difference." in _section(_pages(), "From 2.10 to 2.11")


def test_cases_that_begin_are_listed_apart() -> None:
    section = _section(_pages(), "From 2.9 to 2.10")
    assert "Cases that begin with 2.10 (1)" in section
    assert "- ADR-36: `adr36/ingress/bytes/1`\n" in section


def test_the_overview_counts_by_document() -> None:
    assert "| 2.9.10 | [2.10.27](versions-2.10.md) | 2 | - | - | 1 |" in _overview()
    assert "| 2.11.17 | [2.12.15](versions-2.12.md) | - | 1 | 1 | - |" in _overview()


def test_two_patches_of_a_line_are_named_in_full() -> None:
    patches = tuple(Identity("native", version) for version in ("2.12.0", "2.12.15"))
    assert "# From 2.12.0 to 2.12.15\n" in _pages(subjects=patches)["versions-2.12.15.md"]


def test_a_transform_is_identified_by_its_subjects() -> None:
    transform = TransformCase(b"in.*", b"out.{{left(1,2)}}", TransformPlace.REPUBLISH, (b"in.abc", b"in.a"))
    case = Case(
        id="adr30/left/wrap/1",
        title="A transform that changed at some time",
        level=Level.OBSERVED,
        clause="ADR-30, Reference",
        transform=transform,
        steps=expanded_steps(transform),
        expectation=expanded_expectation(transform, {b"in.abc": b"out.ab", b"in.a": b"out.a"}),
        differences=(
            Difference(
                Feature(since=((2, 9, 0),), until=((2, 11, 8), (2, 12, 0))),
                "it was otherwise before",
                expanded_expectation(transform, {b"in.abc": None, b"in.a": b"out.a"}),
            ),
        ),
    )
    section = _section(_pages((case,)), "From 2.10 to 2.11")
    assert "<br>`adr30/left/wrap/1` | `in.abc`: `nothing` | `in.abc`: `out.ab` | 2.11.8 |" in section
    assert "`in.a`" not in section


def test_another_error_text_is_a_change_though_the_expectation_leaves_it_out() -> None:
    case = replace(CYCLE, expectation=Expectation(refusal=ExpectedRefusal(err_code=10052)))
    instead = {
        (case.id, f"native {version}"): Observation((Decision(refusal=ExpectedRefusal(500, 10052, text)),))
        for version, text in [("2.14.9", "one text"), ("2.15.1", "another text")]
    }
    section = _section(_pages((case,), instead=instead), "From 2.14 to 2.15")
    assert "| another code or text of the refusal, which no case depends on | " in section
    assert "| `refused 10052 one text` | `refused 10052 another text` | - |" in section


def test_many_cases_that_change_for_one_reason_are_one_row() -> None:
    cases = tuple(replace(ORDER, id=f"adr28/headers/order/{number}") for number in (1, 2, 3, 5))
    section = _section(_pages(cases), "From 2.9 to 2.10")
    rows = [line for line in section.splitlines() if "Nats-Time-Stamp came with 2.10 |" in line]
    assert len(rows) == 1
    assert "`adr28/headers/order/1`<br>and 3 more |" in rows[0]
    assert "- Nats-Time-Stamp came with 2.10: `adr28/headers/order/1-3`, `adr28/headers/order/5`\n" in section


def test_times_do_not_make_the_page_another_one() -> None:
    history = sample_runs.run((ORDER,), SUBJECTS)
    later = []
    for record in history.records:
        assert isinstance(record, Played)
        messages = tuple(
            replace(each, header_block=each.header_block.replace(b"2026-11-21", b"2027-01-02"))
            for each in record.observation.received
        )
        later.append(replace(record, observation=replace(record.observation, received=messages), seconds=1.5))
    again = replace(history, records=tuple(later), start={**history.start, "time": "2027-01-02T00:00:00+00:00"})
    assert version_changes(judged(again, CASES)) == version_changes(judged(history, CASES))


def test_a_failure_is_shown_as_seen_and_marked() -> None:
    section = _section(version_changes(judged(_failing(), CASES)), "From 2.14 to 2.15")
    (row,) = [line for line in section.splitlines() if CYCLE.id in line]
    assert row.startswith("| not as the case expects |")
    assert row.endswith("forms a cycle` | `accepted` | - |")


def test_messages_that_no_case_expects_are_shown_as_seen() -> None:
    run = sample_runs.run((ORDER,), SUBJECTS)
    (seen,) = [each.observation for each in run.records if isinstance(each, Played) and each.subject == "native 2.15.1"]
    other = replace(seen.received[1], subject=b"out.other")
    wrong = {(ORDER.id, "native 2.15.1"): replace(seen, received=(seen.received[0], other))}
    section = _section(_pages((ORDER,), instead=wrong), "From 2.14 to 2.15")
    (row,) = [line for line in section.splitlines() if ORDER.id in line]
    assert "| `received, subject of message 2`: `out.a` | `received, subject of message 2`: `out.other` |" in row
    fewer = {(ORDER.id, "native 2.15.1"): replace(seen, received=seen.received[1:])}
    section = _section(_pages((ORDER,), instead=fewer), "From 2.14 to 2.15")
    assert "| `received`: `2 messages: out.a, out.a` | `received`: `1 message: out.a` |" in section


def _failing():
    wrong = Observation((Decision(config={"name": "S"}),))
    return sample_runs.run(CASES, SUBJECTS, {(CYCLE.id, "native 2.15.1"): wrong})


def test_a_partial_run_says_so() -> None:
    history = replace(sample_runs.run(), is_complete=False)
    assert "**The run is not complete**" in version_changes(judged(history, CASES))["versions.md"]


def test_one_server_has_nothing_to_be_compared_with() -> None:
    assert "Nothing to compare" in _overview(subjects=(Identity("native", "2.10.27"),))
