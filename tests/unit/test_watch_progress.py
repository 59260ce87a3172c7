"""When a link counts as stalled."""

from __future__ import annotations

from typing import Any

from nats_bridge.bridge.jobs.watching.link import links_of
from nats_bridge.bridge.jobs.watching.progress import Progress
from nats_bridge.transforms.source_record import SourceRecord


def test_only_a_position_that_stays_while_something_is_missing_is_a_stall() -> None:
    progress = Progress()
    progress.see(0, (5,), behind=True)
    progress.see(4, (6,), behind=True)  # progress
    assert progress.stalled_for(7) == 3
    progress.see(9, (6,), behind=True)
    assert progress.stalled_for(9) == 5
    progress.see(10, (6,), behind=False)
    assert progress.stalled_for(20) == 0
    progress.see(21, (6,), behind=True)
    assert progress.stalled_for(22) == 1


def test_links_and_their_records() -> None:
    external = {"name": "S", "external": {"api": "$JS.hub.API"}}
    transformed = {"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "c", "dest": ""}]}
    streams: list[dict[str, Any]] = [
        {"config": {"name": "M", "mirror": {"name": "S"}}},
        {"config": {"name": "T", "sources": [external, transformed, {"name": "S", "filter_subject": "a"}]}},
        {"config": {"name": "plain"}},
    ]
    mirror, hub, several, filtered = links_of(streams)
    assert [link.name for link in (mirror, hub, several, filtered)] == [
        "M <- S",
        "T <- S",
        "T <- S (a, c)",
        "T <- S (a)",
    ]
    assert len({link.identity for link in (mirror, hub, several, filtered)}) == 4
    assert mirror.is_mirror
    assert hub.is_external
    assert hub.copied(SourceRecord(b"S:" + _hash(), 1))
    assert not hub.copied(SourceRecord(b"S", 1))
    assert several.copied(SourceRecord(b"S", 1, (b"a", b"c"), (b"b", b">")))
    assert not several.copied(SourceRecord(b"S", 1, (b"a",), (b">",)))
    assert filtered.copied(SourceRecord(b"S", 1, (b"a",), (b">",)))
    assert filtered.copied(SourceRecord(b"S", 1))


def test_several_sources_of_a_name() -> None:
    entries: list[dict[str, Any]] = [
        {"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}]},
        {"name": "S", "subject_transforms": [{"src": "a", "dest": "c"}]},
        {"name": "S", "filter_subject": "x"},
        {"name": "S", "external": {"api": "$JS.hub.API", "deliver": ""}},
    ]
    answer = {
        "config": {"name": "T", "sources": entries},
        "sources": [{**each, "lag": at} for at, each in enumerate(entries)],
    }
    links = list(links_of([answer]))
    assert len({link.identity for link in links}) == 4
    assert [link.reported(answer)["lag"] for link in links] == [0, 1, 2, 3]
    assert links[2].reported({"sources": [{"name": "S", "lag": 7}]})["lag"] == 7  # as 2.9 says it


def _hash() -> bytes:
    from nats_bridge.transforms.source_record import external_name

    return external_name(b"S", b"$JS.hub.API").partition(b":")[2]
