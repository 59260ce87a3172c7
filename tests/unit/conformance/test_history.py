"""Histories: everything is kept, and what is damaged or cut short is reported as such."""

import json
from pathlib import Path

import pytest

from nats_conformance.catalogue.case import ExpectedRefusal, Message
from nats_conformance.errors import HistoryError
from nats_conformance.history import HistoryWriter, Played, Unplayed, read_history
from nats_conformance.identity import Identity
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Outcome

NATIVE = Identity("native", "2.10.27")
BRIDGE = Identity("bridge", "2.15.1", server="2.9.10")
EVERYTHING = Observation(
    decisions=(Decision(config={"name": "S"}), Decision(refusal=ExpectedRefusal(500, 10052, "forms a cycle"))),
    received=(Message(b"out.\xff", b"NATS/1.0\r\nA:\tb\r\n\r\n", bytes(range(256))),),
    stored={"S": (Stored(Message(b"in", b"", b""), 7, 1767323045_000000001),)},
    acks=({"stream": "S", "seq": 7}, None),
    facts={"server": "ended"},
)
RECORDS = (
    Played("adr28/a/1", NATIVE.label, EVERYTHING, 0.25),
    Unplayed("adr28/a/2", BRIDGE.label, Outcome.SKIPPED, "it would harm the server"),
)


def write(file: Path, **start: object) -> Path:
    with HistoryWriter(file, {NATIVE.label: NATIVE, BRIDGE.label: BRIDGE}, suite="1", **start) as writer:
        for record in RECORDS:
            writer.add(record)
    return file


def test_every_byte_comes_back(tmp_path: Path) -> None:
    history = read_history(write(tmp_path / "deep" / "h.jsonl", level="must"))
    assert history.records == RECORDS
    assert list(history.subjects.values()) == [NATIVE, BRIDGE]
    assert history.start["level"] == "must"
    assert history.is_complete


def test_labels_distinguish_subjects() -> None:
    labels = [NATIVE.label, BRIDGE.label, Identity("bridge", "2.9.10", server="2.9.10").label]
    assert labels == ["native 2.10.27", "bridge 2.15.1 on 2.9.10", "bridge 2.9.10"]
    assert Identity("library", "2.10.27", name="mylib").label == "mylib 2.10.27"


@pytest.mark.parametrize("cut", [1, 20])
def test_a_history_cut_short_is_read_up_to_the_cut(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path / "h.jsonl")
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    file.write_text("".join(lines[:-1])[:-cut])
    history = read_history(file)
    assert not history.is_complete
    assert history.records == (RECORDS if cut == 1 else RECORDS[:1])


def test_a_run_that_was_interrupted_is_not_complete(tmp_path: Path) -> None:
    def interrupted() -> None:
        with HistoryWriter(tmp_path / "h.jsonl", {NATIVE.label: NATIVE}) as writer:
            writer.add(RECORDS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    history = read_history(tmp_path / "h.jsonl")
    assert (history.is_complete, history.records) == (False, RECORDS[:1])


def test_what_is_missing_makes_it_incomplete(tmp_path: Path) -> None:
    history = read_history(write(tmp_path / "h.jsonl", missing={"2.13": "no release of the line is known"}))
    assert (history.is_complete, history.missing) == (False, {"2.13": "no release of the line is known"})


@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        (lambda lines: [], ":1:", "begins with a line of record 'start'"),
        (lambda lines: lines[1:], ":1:", "begins with a line of record 'start'"),
        (lambda lines: [lines[0].replace('"history":1', '"history":9'), *lines[1:]], ":1:", "format 9"),
        (lambda lines: [lines[0], "{", *lines[1:]], ":2:", "not JSON"),
        (lambda lines: [lines[0], "[1]", *lines[1:]], ":2:", "JSON object"),
        (lambda lines: [lines[0], '{"record": "else"}', *lines[1:]], ":2:", "'else' is unknown"),
        (lambda lines: [lines[0], '{"record": "observation"}', *lines[1:]], ":2:", "not a record"),
        (lambda lines: [lines[0], lines[1].replace("b3V0", "b3V!"), *lines[2:]], ":2:", "not a record"),
    ],
)
def test_damage_is_reported_with_its_place(tmp_path: Path, change: object, place: str, reason: str) -> None:
    file = write(tmp_path / "h.jsonl")
    file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")  # type: ignore[operator]
    with pytest.raises(HistoryError) as reported:
        read_history(file)
    assert f"{file}{place}" in str(reported.value)
    assert reason in str(reported.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="No such file"):
        read_history(tmp_path / "none.jsonl")


def test_each_line_is_json_that_other_tools_read(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in write(tmp_path / "h.jsonl").read_text().splitlines()]
    assert [line["record"] for line in lines] == ["start", "observation", "not played", "end"]
    assert lines[1]["observation"]["received"][0]["subject"] == "b3V0Lv8="
