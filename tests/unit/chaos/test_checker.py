"""The judge of the randomised run, on planted histories: it sees every kind of wrong, and allows what is promised."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import judge, judge_history
from tests.chaos.findings import Judgement
from tests.chaos.history import digest_of
from tests.chaos.plan import RULES
from tests.chaos.story import Story

Event = dict[str, Any]
Change = Callable[[list[Event]], object]
COUNT = 12
BEGAN = 1_700_000_000
_TIMES = {sequence: (BEGAN + sequence) * 10**9 + 500_000_000 for sequence in range(1, COUNT + 1)}


def _block(number: int) -> str:
    return "" if number % 3 == 0 else f"NATS/1.0\r\nChaos-Number: {number}\r\nTwice: 1\r\ntwice: 2\r\n\r\n"


def _payload(number: int) -> list[Any]:
    payload = b"payload %d" % number
    return [len(payload), digest_of(payload)]


def _row(subject: str, number: int, block: str | None = None) -> list[Any]:
    return [subject, _block(number) if block is None else block, *_payload(number)]


def _subject(prefix: str, number: int) -> str:
    return f"{prefix}.eu.{number % 4}"


def _with(number: int, *lines: str) -> str:
    return (_block(number)[:-2] or "NATS/1.0\r\n") + "".join(f"{line}\r\n" for line in lines) + "\r\n"


def _added(number: int) -> str:
    return _with(number, f"Nats-Incr: {number}")


def _planned(number: int) -> str:
    """A schedule, what it has fired, or neither."""
    if number % 3 == 2:
        return _with(number, "Nats-Schedule: @at 2099-01-01T00:00:00Z", "Nats-Rollup: sub")
    return _with(number, "Nats-Scheduler: plans.eu.2") if number % 3 == 1 else _block(number)


_BLOCKS = {"CLICKS": _added, "VIEWS": _added, "PLANS": _planned}


def _sent(place: str, prefix: str) -> list[Event]:
    block = _BLOCKS.get(place, _block)
    # Of the leases the last are delete markers, which no client sends.
    count = COUNT - 4 if place == "LEASES" else COUNT
    rows = [[number, *_row(_subject(prefix, number), number, block(number))] for number in range(1, count + 1)]
    if place in ("events", "SCRATCH"):
        rows = [[number, *_row(f"{prefix}.k1.n{number}", number)] for number in range(1, COUNT + 1)]
    events = []
    for row in rows:
        events.append({"t": float(row[0]), "event": "sent", "to": place, "rows": [row]})
        events.append({"t": row[0] + 0.5, "event": "stored", "to": place, "rows": [[row[0], row[0]]]})
    return events


def _final(stream: str, rows: list[list[Any]]) -> Event:
    return {"t": 100.0, "event": "final", "stream": stream, "rows": rows}


def _stored(prefix: str) -> list[list[Any]]:
    block = _BLOCKS.get(prefix.upper(), _block)
    return [[n, _TIMES[n], *_row(_subject(prefix, n), n, block(n))] for n in range(1, COUNT + 1)]


def _summed() -> list[list[Any]]:
    """Counters of two sources in one stream, one after the other."""
    rows, totals = [], [0] * 4
    for place, (stream, n) in enumerate(((stream, n) for stream in ("CLICKS", "VIEWS") for n in _TIMES), 1):
        totals[n % 4] += n
        total = b'{"val":"%d"}' % totals[n % 4]
        lines = f"Nats-Bridge-Source: {stream} {n} > > x", f'Nats-Bridge-Counter-Sources: {{"{stream}":{{"x":"{n}"}}}}'
        block = _with(n, f"Nats-Incr: {n}", f"Nats-Msg-Id: bridge-0123456789ab-{n}-{_TIMES[n]}", *lines)
        rows.append([place, _TIMES[n], f"sums.eu.{n % 4}", block, len(total), digest_of(total)])
    return rows


def _markers() -> list[list[Any]]:
    """What is left of four leases that have expired."""
    rows = []
    for n in range(COUNT - 3, COUNT + 1):
        block = (
            "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 72h0m0s\r\nNats-Rollup: sub\r\n"
            f"Nats-Msg-Id: bridge-0123456789ab-{n}-{_TIMES[n]}\r\nNats-Bridge-Source: LEASES {n} > > x\r\n\r\n"
        )
        rows.append([n, _TIMES[n], f"held.eu.{n % 4}", block, 0, digest_of(b"")])
    return rows


def _changed_copies(stream: str, prefix: str) -> list[list[Any]]:
    rows = []
    for n in _TIMES:
        block = _BLOCKS.get(stream, _block)(n).replace("Nats-Schedul", "Nats-Bridge-Schedul")
        added = f"Nats-Msg-Id: bridge-0123456789ab-{n}-{_TIMES[n]}\r\nNats-Bridge-Source: {stream} {n} > > x\r\n"
        block = (block[:-2] or "NATS/1.0\r\n") + added + "\r\n"
        rows.append([n, _TIMES[n], *_row(_subject(prefix, n), n, block)])
    return rows


def _republished(name: str, number: int) -> list[Any]:
    before = number - 4 if number > 4 else 0
    block = (_block(number)[:-2] or "NATS/1.0\r\n") + (
        f"Nats-Stream: ORDERS\r\nNats-Subject: orders.eu.{number % 4}\r\nNats-Sequence: {number}\r\n"
        f"Nats-Time-Stamp: 2023-11-14T22:13:{20 + number}.5Z\r\nNats-Last-Sequence: {before}\r\n\r\n"
    )
    return _row(f"{name}.{number % 4}.eu", number, block)


def _copied(stream: str, subject: str, number: int, *, record: bool = True) -> list[Any]:
    added = f"Nats-Msg-Id: bridge-0123456789ab-{number}-{_TIMES[number]}\r\n"
    if record:
        added += f"Nats-Bridge-Source: {stream} {number} > > orders.eu.{number % 4}\r\n"
    return _row(subject, number, (_block(number)[:-2] or "NATS/1.0\r\n") + added + "\r\n")


def _fine() -> list[Event]:
    """A run in which everything went well."""
    events: list[Event] = [{"t": 0.0, "event": "run", "seed": "x", "began": BEGAN, "topology": "single"}]
    for place, prefix in (
        ("ORDERS", "orders"),
        ("LEGACY", "legacy"),
        ("JOBS", "jobs"),
        ("TASKS", "tasks"),
        ("CLICKS", "clicks"),
        ("VIEWS", "views"),
        ("PLANS", "plans"),
        ("LEASES", "leases"),
        ("PASSES", "passes"),
        ("SCRATCH", "scratch"),
        ("events", "events"),
    ):
        events += _sent(place, prefix)
    settings = [[n, f"$KV.SETTINGS.k{n % 4}", "", *_payload(n)] for n in range(1, COUNT + 1)]
    events += [
        {"t": 1.0, "event": "sent", "to": "KV_SETTINGS", "rows": settings},
        {"t": 1.5, "event": "stored", "to": "KV_SETTINGS", "rows": [[n, n] for n in range(1, COUNT + 1)]},
    ]
    for name in ("once", "never-lost"):
        for number in range(1, COUNT + 1):
            received = {"event": "received", "name": name, "rows": [_republished(name, number)]}
            events.append({"t": number + 0.6, **received})
    for number in range(1, COUNT + 1):
        added = f"Nats-Stream: SCRATCH\r\nNats-Subject: scratch.k1.n{number}\r\nNats-Sequence: {number}\r\n"
        added += "Nats-Time-Stamp: 2023-11-14T22:13:21.5Z\r\nNats-Last-Sequence: 0\r\n\r\n"
        echo = _row(f"echo.n{number}.k1", number, (_block(number)[:-2] or "NATS/1.0\r\n") + added)
        events.append({"t": number + 0.6, "event": "received", "name": "echo", "rows": [echo]})
    for number in range(1, COUNT + 1):
        reported = {"id": f"id{number}", "stream": "JOBS", "stream_seq": number}
        row = ["$JS.EVENT", "", 0, "", json.dumps(reported)]
        events.append({"t": number + 0.7, "event": "received", "name": "advisories", "rows": [row]})
    events.append({"t": 99.0, "event": "settled", "waiting": []})
    events += [
        _final("ORDERS", _stored("orders")),
        _final("LEGACY", _stored("legacy")),
        _final("JOBS", _stored("jobs")),
        _final("TAKEN", [[n, _TIMES[n], *_copied("TASKS", f"taken.eu.{n % 4}", n)] for n in _TIMES]),
        _final("COPY", [[n, _TIMES[n], *_copied("ORDERS", f"copy.eu.{n % 4}", n)] for n in _TIMES]),
        _final("GATHERED", [
            *([n, _TIMES[n], *_copied("ORDERS", f"gathered.orders.{n % 4}.eu", n)] for n in _TIMES),
            *([COUNT + n, _TIMES[n], *_copied("LEGACY", f"gathered.legacy.eu.{n % 4}", n)] for n in _TIMES),
        ]),
        _final("TWIN", [[n, _TIMES[n], *_copied("", f"twin.at.eu.{n % 4}", n, record=False)] for n in _TIMES]),
        _final("KV_SETTINGS", [[n, _TIMES[n], f"$KV.SETTINGS.k{n % 4}", "", *_payload(n)] for n in _TIMES]),
        _final("KV_SETTINGS_COPY", [[n, _TIMES[n], f"$KV.SETTINGS_COPY.k{n % 4}",
            f"NATS/1.0\r\nNats-Msg-Id: bridge-0123456789ab-{n}-{_TIMES[n]}\r\n"
            f"Nats-Bridge-Source: KV_SETTINGS {n} > > x\r\n\r\n",
            *_payload(n)] for n in _TIMES]),
        _final("EVENTS", [[n, _TIMES[n], *_row(f"stored.n{n}.k1", n)] for n in _TIMES]),
        _final("CLICKS", _stored("clicks")),
        _final("VIEWS", _stored("views")),
        _final("SUMS", _summed()),
        _final("PLANS", _stored("plans")),
        _final("AGENDA", _changed_copies("PLANS", "agenda")),
        _final("PASSES", _stored("passes")),
        _final("PASSED", _changed_copies("PASSES", "passed")),
        # It has begun again after half of the messages.
        _final("SCRATCH", [[n, _TIMES[n + 6], *_row(f"scratch.k1.n{n + 6}", n + 6)] for n in range(1, COUNT - 5)]),
        _final("SCRATCHED", [[n, _TIMES[n], *_copied("SCRATCH", f"scratched.k1.n{n}", n)] for n in _TIMES]),
        {"t": 98.0, "event": "marked", "stream": "LEASES",
            "rows": [[n, f"leases.eu.{n % 4}"] for n in range(COUNT - 3, COUNT + 1)]},
        _final("LEASES", []),
        _final("HELD", _markers()),
        _final("DEAD", [[n, _TIMES[n], *_row("dead.JOBS.workers", n, (_block(n)[:-2] or "NATS/1.0\r\n") +
            f"Nats-Sequence: {n}\r\nNats-Bridge-Advisory-Id: id{n}\r\nNats-Msg-Id: id{n}\r\n\r\n")] for n in _TIMES]),
    ]  # fmt: skip
    return events


def _judged(events: list[Event]) -> dict[str, Judgement]:
    return {each.rule: each for each in judge(Story.of(copy.deepcopy(events)), RULES)}


def _rows(events: list[Event], stream: str) -> list[list[Any]]:
    (event,) = (event for event in events if event["event"] == "final" and event["stream"] == stream)
    rows: list[list[Any]] = event["rows"]
    return rows


def _received(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == "received" and event["name"] == name]


def _crash(begin: float, end: float) -> list[Event]:
    ended = {"code": -9, "expected": "killed", "last": {"counters": {}, "error": ""}}
    return [
        {"t": begin, "event": "sidecar", "replica": 0, "pid": 1, "what": "killed"},
        {"t": begin, "event": "sidecar", "replica": 0, "pid": 1, "what": "ended", **ended},
        {"t": end, "event": "sidecar", "replica": 0, "pid": 2, "what": "ready"},
    ]


def _found(events: list[Event], rule: str) -> dict[str, int]:
    return _judged(events)[rule].counts


def test_a_faultless_run_has_no_findings() -> None:
    judgements = _judged(_fine())
    assert {name: judgement.counts for name, judgement in judgements.items()} == {name: {} for name in judgements}
    assert [judgements[rule.name].expected for rule in RULES] == [12, 12, 24, *[12] * 6, 24, 12, 4, 12, 6, 6]
    assert [judgements[rule.name].seen for rule in RULES] == [12, 12, 24, *[12] * 6, 24, 12, 4, 12, 12, 12]


REPUBLISHED = ["once", "never-lost"]
NUMBERED = ["events", "echo", "saved"]
"""Rules whose messages are known by their subject alone."""
TARGETS = {
    "gathered": "GATHERED",
    "copy": "COPY",
    "twin": "TWIN",
    "taken": "TAKEN",
    "settings": "KV_SETTINGS_COPY",
    "events": "EVENTS",
    "sums": "SUMS",
    "agenda": "AGENDA",
    "held": "HELD",
    "passed": "PASSED",
}
NO_TARGETS = {"dead-letters": "DEAD", "saved": "SCRATCHED"}
"""Streams to which others than the rule's copies belong."""


def _lose(stream: str, place: int = 5) -> Change:
    return lambda events: _rows(events, stream).pop(place)


def _store_again(stream: str, place: int = 5) -> Change:
    return lambda events: _rows(events, stream).append([99, *_rows(events, stream)[place][1:]])


def _exchange(stream: str, one: int, other: int, since: int = 1) -> Change:
    """Let two copies change places; `since` is the first column that goes with them."""

    def exchange(events: list[Event]) -> None:
        rows = _rows(events, stream)
        rows[one][since:], rows[other][since:] = rows[other][since:], rows[one][since:]

    return exchange


def _exchange_received(rule: str) -> Change:
    def exchange(events: list[Event]) -> None:
        one, other = _received(events, rule)[5:7]
        one["rows"], other["rows"] = other["rows"], one["rows"]

    return exchange


def _receive_again(rule: str) -> Change:
    return lambda events: _received(events, rule)[5]["rows"].extend(_received(events, rule)[5]["rows"][:1])


def _rewrite(stream: str, place: int, old: str, new: str) -> Change:
    """Change the header block of a copy."""

    def rewrite(events: list[Event]) -> None:
        row = _rows(events, stream)[place]
        assert old in row[3]
        row[3] = row[3].replace(old, new)

    return rewrite


def _answer_with_another_number(events: list[Event]) -> None:
    [event for event in events if event["event"] == "stored" and event["to"] == "events"][4]["rows"] = [[5, 7]]


def _wait_for_ever(events: list[Event]) -> None:
    (settled,) = (event for event in events if event["event"] == "settled")
    settled["waiting"] = ["copy: ORDERS 12 is not in COPY"]


_FIRED = "NATS/1.0\r\nNats-Scheduler: agenda.eu.2\r\nNats-Schedule-Next: purge\r\n\r\n"
_COUNTED = {"t": 50.0, "event": "status", "pid": 1, "rules": {"copy": {"out_of_order": 1}}}
_KILLED = {"event": "fault", "number": 1, "kind": "server killed"}
LOST, DUPLICATED, REORDERED = ({f"{what} (violation)": 1} for what in ("lost", "duplicated", "reordered"))
INVENTED, WRONG_HEADERS, WRONG_SUM = ({f"{what} (violation)": 1} for what in ("invented", "wrong headers", "wrong sum"))
WRONG_BYTES = {"wrong bytes (violation)": 1}
SINGLE: dict[str, tuple[str, dict[str, int], Sequence[Change]]] = {
    "the first can be lost": ("once", LOST, [lambda events: events.remove(_received(events, "once")[0])]),
    "the last can be lost": ("once", LOST, [lambda events: events.remove(_received(events, "once")[COUNT - 1])]),
    **{f"{rule}: a copy that is not there is lost": (rule, LOST, [_lose(target)]) for rule, target in TARGETS.items()
        if rule not in ("sums", "held")},
    "an advisory between two that came is lost": ("dead-letters", LOST, [_lose("DEAD")]),
    "a copy that the server itself removed is not lost": ("copy", {"lost (unknown)": 1}, [
        _lose("COPY", 0), lambda events: events.append({"t": 6.0, "event": "trimmed", "stream": "COPY"})]),
    **{f"{rule}: received twice": (rule, DUPLICATED, [_receive_again(rule)]) for rule in REPUBLISHED},
    **{f"{rule}: stored twice": (rule, DUPLICATED, [_store_again({**TARGETS, **NO_TARGETS}[rule])])
        for rule in ("gathered", "copy", "settings", "events", "saved", "dead-letters")},
    "a marker that comes twice is a duplicate": ("held", DUPLICATED, [_store_again("HELD", -1)]),
    **{f"{rule}: two that changed places": (rule, REORDERED, [_exchange_received(rule)]) for rule in REPUBLISHED},
    **{f"{rule}: two copies that changed places": (rule, REORDERED, [_exchange(TARGETS[rule], 5, 6)])
        for rule in ("gathered", "copy")},
    "values of one key that changed places": ("settings", REORDERED, [_exchange("KV_SETTINGS_COPY", 1, 5, 2)]),
    "an order that the rule itself counted is allowed": ("copy", {"reordered (allowed)": 1}, [
        _exchange("COPY", 5, 6), lambda events: events.insert(-1, _COUNTED)]),
    "a lease behind its marker is reordered": ("held", REORDERED, [
        lambda events: _rows(events, "HELD").append([99, *_changed_copies("LEASES", "held")[7][1:]])]),
    "an answer with another number": ("events", LOST | REORDERED, [_answer_with_another_number]),
    "what is added twice": ("sums", DUPLICATED | WRONG_BYTES | WRONG_SUM, [_store_again("SUMS")]),
    "what is not added": ("sums", LOST | WRONG_SUM, [_lose("SUMS", -1)]),
    "another increment": ("sums", WRONG_HEADERS | WRONG_BYTES | WRONG_SUM, [
        _rewrite("SUMS", -1, "Nats-Incr: 12", "Nats-Incr: 13")]),
    "a sum that a killed server cannot remember is not the rule's doing": ("sums", {"wrong sum (unknown)": 1}, [
        lambda events: events.extend([{"t": 6.0, "phase": "begin", **_KILLED}, {"t": 7.0, "phase": "end", **_KILLED}]),
        _lose("VIEWS", -1)]),
    "what fires in the target is invented": ("agenda", INVENTED, [
        lambda events: _rows(events, "AGENDA").append([99, 0, *_row("agenda.eu.1", 5, _FIRED)])]),
    "a copy that does not expire": ("passed", INVENTED, [_lose("PASSES", 2)]),
    "a schedule that could act in the target": ("agenda", WRONG_HEADERS, [
        _rewrite("AGENDA", 1, "Nats-Bridge-Schedule", "Nats-Schedule")]),
    "another marker": ("held", WRONG_HEADERS, [_rewrite("HELD", -1, "Nats-TTL: 72h0m0s", "Nats-TTL: 72h")]),
    "a run that does not come to rest is stuck": ("(sidecar)", {"stuck (violation)": 1}, [_wait_for_ever]),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "found", "changes"), SINGLE.values(), ids=SINGLE)
def test_a_planted_fault_is_found(rule: str, found: dict[str, int], changes: Sequence[Change]) -> None:
    events = _fine()
    for change in changes:
        change(events)
    assert _found(events, rule) == found


@pytest.mark.parametrize("rule", REPUBLISHED)
def test_a_message_that_was_not_received_is_lost(rule: str) -> None:
    events = _fine()
    events.remove(_received(events, rule)[5])
    assert _found(events, rule) == {"lost (violation)": 1}
    other = next(name for name in REPUBLISHED if name != rule)
    assert _found(events, other) == {}


def test_a_removed_message_written_by_a_killed_process_may_arrive_late() -> None:
    events = _fine()
    one, other = _received(events, "never-lost")[5:7]
    one["rows"], other["rows"] = other["rows"], one["rows"]
    assert _found([*events, *_crash(0.0, 0.01)], "never-lost") == {"reordered (violation)": 1}
    events.append({"t": 0.02, "event": "removing", "stream": "ORDERS", "sequences": [6]})
    assert _found([*events, *_crash(0.0, 0.01)], "never-lost") == {"reordered (allowed)": 1}


def test_a_copy_of_a_lost_message_is_not_a_later_one() -> None:
    events = _fine()
    copies = _rows(events, "COPY")
    copies[-2][2:], copies[-1][2:] = copies[-1][2:], copies[-2][2:]
    assert _found(events, "copy") == {"reordered (violation)": 1}
    _rows(events, "ORDERS").pop()
    assert _found(events, "copy") == {"invented (allowed)": 1}


def _without(events: list[Event], rule: str, number: int) -> list[Event]:
    if rule == "echo":
        return [each for each in events if each not in _received(events, rule) or f".n{number}." not in str(each)]
    rows = _rows(events, "SCRATCHED")
    rows[:] = [row for row in rows if not row[2].endswith(f".n{number}")]
    return events


@pytest.mark.parametrize("rule", ["echo", "saved"])
def test_a_message_in_memory_is_lost_only_if_the_stream_still_holds_it(rule: str) -> None:
    assert _found(_without(_fine(), rule, 3), rule) == {}
    assert _found(_without(_fine(), rule, 7), rule) == {"lost (violation)": 1}


def test_a_message_in_memory_is_received_again_only_after_a_fault() -> None:
    events = _fine()
    again = {**_received(events, "echo")[5], "t": 20.0}
    assert _found([*events, again], "echo") == {"duplicated (violation)": 1}
    assert _found([*events, again, *_crash(8.0, 9.0)], "echo") == {"duplicated (allowed)": 1}


@pytest.mark.parametrize("rule", ["echo", "saved"])
def test_messages_of_a_stream_in_memory_stay_in_order(rule: str) -> None:
    events = _fine()
    rows = _rows(events, "SCRATCHED")
    rows[5][2:], rows[6][2:] = rows[6][2:], rows[5][2:]
    one, other = _received(events, "echo")[5:7]
    one["rows"], other["rows"] = other["rows"], one["rows"]
    assert _found(events, rule) == {"reordered (violation)": 1}


def test_a_work_queue_copy_is_not_invented_if_its_publisher_got_no_answer() -> None:
    events = _fine()
    events = [each for each in events if not (each["event"] == "stored" and each.get("rows") == [[5, 5]])]
    assert _found(events, "taken") == {}
    _rows(events, "TAKEN")[4][5] += "x"
    assert _found(events, "taken") == {"invented (violation)": 1}


def test_a_schedule_that_the_source_has_fired_and_removed_had_a_publisher() -> None:
    events = _fine()
    del _rows(events, "PLANS")[1]
    assert _found(events, "agenda") == {}
    events = [each for each in events if not (each["event"] == "stored" and each["to"] == "PLANS" and each["t"] < 3)]
    assert _found(events, "agenda") == {}
    _rows(events, "AGENDA")[1][5] = digest_of(b"other")
    assert _found(events, "agenda") == {"invented (violation)": 1}


def test_a_delete_marker_that_is_not_there_is_lost() -> None:
    events = _fine()
    del _rows(events, "HELD")[-1]
    assert _found(events, "held") == {"lost (violation)": 1}
    down = {"event": "fault", "number": 1, "kind": "server killed"}
    kill = [{"t": 98.5, "phase": "begin", **down}, {"t": 99.0, "phase": "end", **down}]
    assert _found(events + kill, "held") == {"lost (unknown)": 1}  # it may not have been written yet


def test_a_lease_that_the_marker_has_not_rolled_up_is_lost() -> None:
    events = _fine()
    events.append({"t": 98.0, "event": "sent", "to": "LEASES", "rows": [[13, *_row("leases.eu.0", 13)]]})
    events.append({"t": 98.5, "event": "stored", "to": "LEASES", "rows": [[13, 13]]})
    assert _found(events, "held") == {"lost (violation)": 1}
    _rows(events, "HELD").append([13, (BEGAN + 99) * 10**9, *_changed_lease("held.eu.0", 13)])
    assert _found(events, "held") == {}


def test_a_lease_is_not_invented_whether_a_power_cut_took_it_or_left_it() -> None:
    events = _fine()
    lease = _row("leases.eu.0", 13)
    events.append({"t": 98.0, "event": "sent", "to": "LEASES", "rows": [[13, *lease]]})
    events.append({"t": 98.5, "event": "stored", "to": "LEASES", "rows": [[13, 13]]})
    events.append({"t": 99.0, "event": "forgotten", "since": 98.2})
    _rows(events, "HELD").append([13, (BEGAN + 99) * 10**9, *_changed_lease("held.eu.0", 13)])
    assert _found(events, "held") == {"invented (allowed)": 1}
    _rows(events, "LEASES").append([13, (BEGAN + 98) * 10**9, *lease])
    assert _found(events, "held") == {}


def _changed_lease(subject: str, number: int) -> list[Any]:
    added = f"Nats-Msg-Id: bridge-0123456789ab-{number}-1\r\nNats-Bridge-Source: LEASES {number} > > x\r\n\r\n"
    return _row(subject, number, (_block(number)[:-2] or "NATS/1.0\r\n") + added)


def test_what_a_server_brought_back_behind_a_purge_is_not_lost() -> None:
    events = _fine()
    purge = "NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
    _rows(events, "KV_SETTINGS")[5][3] = purge  # 6, of key k2; 2 should be gone by it
    copy = _rows(events, "KV_SETTINGS_COPY")[5]
    copy[3] = copy[3].replace("NATS/1.0\r\n", "NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n")
    del _rows(events, "KV_SETTINGS_COPY")[1]
    assert _found(events, "settings") == {"invented (unknown)": 1}
    del _rows(events, "KV_SETTINGS_COPY")[8]  # 10, behind the purge
    assert _found(events, "settings") == {"invented (unknown)": 1, "lost (violation)": 1}


def test_a_twin_at_another_number_is_seen() -> None:
    events = _fine()
    rows = _rows(events, "TWIN")
    rows[5][1:], rows[6][1:] = rows[6][1:], rows[5][1:]
    assert _judged(events)["twin"].violations


def test_answers_out_of_order_are_seen() -> None:
    events = _fine()
    reported = {
        event["rows"][0][0]: event for event in events if event["event"] == "stored" and event["to"] == "events"
    }
    reported[5]["rows"], reported[6]["rows"] = [[5, 6]], [[6, 5]]
    rows = _rows(events, "EVENTS")
    rows[4][0], rows[5][0] = rows[5][0], rows[4][0]
    assert _found(events, "events") == {"reordered (violation)": 1}


def _changed(rule: str, column: int, value: Callable[[Any], Any]) -> dict[str, int]:
    events = _fine()
    if rule in (*REPUBLISHED, "echo"):
        row = _received(events, rule)[4]["rows"][0]
    else:
        row = next(row for row in _rows(events, {**TARGETS, **NO_TARGETS}[rule]) if row[0] == 5)
        column += 2
    assert value(row[column]) != row[column]
    row[column] = value(row[column])
    return _found(events, rule)


EVERY_RULE = [rule.name for rule in RULES if rule.name != "held"]


@pytest.mark.parametrize("rule", [name for name in EVERY_RULE if name not in NUMBERED])
def test_another_subject_is_seen(rule: str) -> None:
    found = _changed(rule, 0, lambda subject: subject + "x")
    if rule in ("settings", "passed"):
        assert "lost (violation)" in found
    elif rule == "sums":
        # And each later total of the counter that misses it.
        assert found == {"wrong subject (violation)": 1, "wrong bytes (violation)": 5, "wrong sum (violation)": 2}
    else:
        assert found == {"wrong subject (violation)": 1}


@pytest.mark.parametrize("rule", NUMBERED)
def test_another_subject_without_an_original_is_invented(rule: str) -> None:
    # Number 5 is of the time before the stream in memory began again, so there it is not missing.
    missing = {"lost (violation)": 1} if rule == "events" else {}
    assert _changed(rule, 0, lambda subject: subject + "x") == {"invented (violation)": 1, **missing}


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_a_changed_byte_is_seen(rule: str) -> None:
    assert _changed(rule, 3, lambda _: digest_of(b"other")) == {"wrong bytes (violation)": 1}


@pytest.mark.parametrize("rule", [name for name in EVERY_RULE if name != "settings"])
@pytest.mark.parametrize(
    "change",
    [
        lambda block: block.replace("Twice: 1", "Twice:  1"),
        lambda block: block.replace("Twice: 1\r\ntwice: 2", "twice: 2\r\nTwice: 1"),
        lambda block: block.replace("Twice: 1\r\n", ""),
        lambda block: block.replace("NATS/1.0\r\n", "NATS/1.0\r\nAdded: 1\r\n"),
    ],
    ids=["spacing", "order", "missing", "added"],
)
def test_a_wrong_header_is_seen(rule: str, change: Callable[[str], str]) -> None:
    assert _changed(rule, 1, change) == {"wrong headers (violation)": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nats-Stream: ORDERS", "Nats-Stream: OTHERS"),
        ("Nats-Subject: orders.eu.1", "Nats-Subject: orders.eu.2"),
        (":25.5Z", ":25.50Z"),
        (":25.5Z", ":26.5Z"),
        ("Nats-Last-Sequence: 1", "Nats-Last-Sequence: 0"),
        ("Nats-Last-Sequence: 1", "Nats-Last-Sequence: 4"),
    ],
)
def test_a_wrong_line_of_the_bridge_is_seen(old: str, new: str) -> None:
    assert _changed("once", 1, lambda block: block.replace(old, new)) == {"wrong headers (violation)": 1}


def test_what_no_publisher_sent_is_invented() -> None:
    events = _fine()
    _received(events, "once")[-1]["rows"].append(["once.0.eu", "NATS/1.0\r\nNats-Sequence: 77\r\n\r\n", 0, ""])
    _rows(events, "EVENTS").append([99, 0, *_row("stored.n99.k1", 1)])
    _rows(events, "COPY").append([99, 0, "copy.eu.1", "NATS/1.0\r\nNats-Bridge-Source: ORDERS 77 > >\r\n\r\n", 0, ""])
    for rule in ("once", "events", "copy"):
        assert _found(events, rule) == {"invented (violation)": 1}


def test_at_most_once_may_lose_in_a_crash_and_only_there() -> None:
    events = _fine()
    for lost in _received(events, "once")[5:8]:
        events.remove(lost)
    assert _found(events + _crash(6.7, 9.0), "once") == {"lost (allowed)": 3}
    assert _found(events + _crash(10.7, 11.0), "once") == {"lost (violation)": 3}


def test_at_most_once_may_lose_what_it_counts_and_no_more() -> None:
    events = _fine()
    for lost in _received(events, "once")[5:8]:
        events.remove(lost)
    events.append({"t": 50.0, "event": "status", "pid": 1, "rules": {"once": {"in_doubt": 2}}})
    assert _found(events, "once") == {"lost (allowed)": 2, "lost (violation)": 1}


def test_at_most_once_never_doubles_not_even_in_a_crash() -> None:
    events = _fine()
    row = _received(events, "once")[4]["rows"][0]
    _received(events, "once")[5]["rows"].insert(0, row)
    assert _found(events + _crash(5.7, 6.0), "once") == {"duplicated (violation)": 1}


def test_at_least_once_may_double_behind_a_crash_and_never_lose() -> None:
    events = _fine()
    row = _received(events, "never-lost")[4]["rows"][0]
    _received(events, "never-lost")[5]["rows"].insert(0, row)
    assert _found(events + _crash(5.7, 6.0), "never-lost") == {"duplicated (allowed)": 1}
    assert _found(events + _crash(20.0, 21.0), "never-lost") == {"duplicated (violation)": 1}
    events = _fine()
    events.remove(_received(events, "never-lost")[5])
    assert _found(events + _crash(6.0, 7.5), "never-lost") == {"lost (violation)": 1}


def test_at_least_once_may_double_where_the_rule_reports_a_lost_connection() -> None:
    events = _fine()
    row = _received(events, "never-lost")[4]["rows"][0]
    _received(events, "never-lost")[5]["rows"].insert(0, row)
    report = {"event": "status", "pid": 1}
    before = [{"t": 1.0, **report, "rules": {"never-lost": {"reconnects": 1}}}]
    lost = [{"t": 5.9, **report, "rules": {"never-lost": {"reconnects": 2}}}]
    same = [{"t": 9.0, **report, "rules": {"never-lost": {"reconnects": 1}}}]
    after = [{"t": 20.0, **report, "rules": {"never-lost": {"reconnects": 2}}}]
    assert _found(events + before + lost, "never-lost") == {"duplicated (allowed)": 1}
    assert _found(events + before + same + after, "never-lost") == {"duplicated (violation)": 1}


def test_a_rule_that_fails_although_nothing_is_broken_is_a_finding() -> None:
    report = {"event": "status", "pid": 1, "rules": {}, "errors": {"copy": "refused"}}
    reports: list[Event] = [{"t": at, **report} for at in (50.0, 50.5)]
    assert _found(_fine() + reports, "(sidecar)") == {"ended (violation)": 1}
    again: list[Event] = [{"t": 50.2, **report, "errors": {}}]
    assert _found([*_fine(), reports[0], *again, reports[1]], "(sidecar)") == {"ended (violation)": 2}


def test_a_stop_while_the_server_is_away_may_lose_what_was_in_flight() -> None:
    events = _fine()
    events.remove(_received(events, "once")[5])
    stop: list[Event] = [
        {"t": 5.8, "event": "sidecar", "replica": 0, "pid": 1, "what": "asked to stop"},
        {
            "t": 5.9,
            "event": "sidecar",
            "replica": 0,
            "pid": 1,
            "what": "ended",
            "code": 0,
            "expected": "asked to stop",
            "last": {"counters": {}, "error": ""},
        },
        {"t": 7.4, "event": "sidecar", "replica": 0, "pid": 2, "what": "ready"},
    ]
    away: list[Event] = [
        {"t": at, "event": "fault", "number": 1, "kind": "lame duck", "phase": phase}
        for phase, at in (("begin", 5.5), ("healed", 6.5), ("end", 6.6))
    ]
    assert _found(events + stop, "once") == {"lost (violation)": 1}
    assert _found(events + stop + away, "once") == {"lost (allowed)": 1}


def test_a_message_removed_in_flight_takes_those_before_it_along() -> None:
    """For the server that acknowledges them (kd/messages/removed-in-hand); without a crash they come all the same."""
    events = _fine()
    events.remove(_received(events, "never-lost")[5])
    removal: list[Event] = [{"t": 6.7, "event": "removing", "stream": "ORDERS", "sequences": [8]}]
    for phase, at in (("begin", 6.7), ("healed", 6.8), ("end", 6.9)):
        removal.append({"t": at, "event": "fault", "number": 1, "kind": "messages deleted", "phase": phase})
    crash = _crash(6.0, 7.5)
    assert _found(events + removal, "never-lost")["lost (violation)"] == 1
    assert _found(events + crash + removal, "never-lost")["lost (allowed)"] == 1
    removal[0]["sequences"] = [3]
    assert _found(events + crash + removal, "never-lost")["lost (violation)"] == 1


def test_only_with_replicas_a_pause_may_cost_what_was_in_flight() -> None:
    events = _fine()
    events.remove(_received(events, "once")[5])
    fault = {"event": "fault", "number": 1, "kind": "sidecar paused"}
    events += [{"t": 6.0, "phase": "begin", **fault}, {"t": 7.0, "phase": "end", **fault}]
    assert _found(events, "once") == {"lost (violation)": 1}
    events[0]["replicas"] = 2
    assert _found(events, "once") == {"lost (allowed)": 1}


def test_a_clean_stop_excuses_nothing() -> None:
    ended = {"code": 0, "expected": "asked to stop", "last": {"counters": {}, "error": ""}}
    stop = [
        {"t": 5.7, "event": "sidecar", "replica": 0, "pid": 1, "what": "ended", **ended},
        {"t": 6.0, "event": "sidecar", "replica": 0, "pid": 2, "what": "ready"},
    ]
    events = _fine()
    _received(events, "never-lost")[5]["rows"].insert(0, _received(events, "never-lost")[4]["rows"][0])
    events.remove(_received(events, "once")[5])
    assert _found(events + stop, "never-lost") == {"duplicated (violation)": 1}
    assert _found(events + stop, "once") == {"lost (violation)": 1}


def test_what_the_run_removed_is_not_missed() -> None:
    events = _fine()
    for rule in REPUBLISHED:
        events.remove(_received(events, rule)[5])
    for target in ("ORDERS", "COPY"):
        del _rows(events, target)[5]
    events.append({"t": 6.0, "event": "removing", "stream": "ORDERS", "sequences": [6]})
    for rule in (*REPUBLISHED, "copy"):
        # The one behind it on its subject names it as its predecessor, which may be right or wrong.
        assert _judged(events)[rule].violations == []


def test_an_advisory_without_a_subscriber_is_missed() -> None:
    events = _fine()
    del _rows(events, "DEAD")[5]
    assert _found(events + _crash(6.5, 6.9), "dead-letters") == {"lost (allowed)": 1}
    events = _fine()
    del _rows(events, "DEAD")[COUNT - 1]
    assert _found(events, "dead-letters") == {"lost (unknown)": 1}


def test_a_dead_letter_with_another_job_is_seen() -> None:
    events = _fine()
    _rows(events, "DEAD")[5][3] = _rows(events, "DEAD")[5][3].replace("Advisory-Id: id6", "Advisory-Id: id7")
    assert _judged(events)["dead-letters"].violations


def test_an_unrequested_end_is_seen() -> None:
    ended = {"code": 1, "expected": "", "last": {"counters": {}, "error": "rule.failed copy"}}
    events = [*_fine(), {"t": 50.0, "event": "sidecar", "replica": 0, "pid": 1, "what": "ended", **ended}]
    found = _judged(events)["(sidecar)"]
    assert found.counts == {"ended (violation)": 1}
    assert found.violations[0].detail == "exit code 1: rule.failed copy"


def test_what_a_killed_server_forgot_is_not_the_rules_doing() -> None:
    events = _fine()
    fault = {"event": "fault", "number": 1, "kind": "server killed"}
    events += [{"t": 6.0, "phase": "begin", **fault}, {"t": 7.0, "phase": "end", **fault}]
    del _rows(events, "ORDERS")[-1]
    _received(events, "once")[-1]["rows"][0][1] = "NATS/1.0\r\nNats-Sequence: 77\r\n\r\n"
    assert _found(events, "once") == {"invented (unknown)": 1}


def _power_cut(*, restarted: bool) -> list[Event]:
    """The last message is lost, and another one stored and published under its sequence."""
    events = _fine()
    (stored,) = (row for row in _rows(events, "ORDERS") if row[0] == COUNT)
    sent = [13, *_row("orders.eu.0", 13)]
    stored[1:] = _TIMES[COUNT], *sent[1:]
    fault = {"event": "fault", "number": 1, "kind": "power cut"}
    again = _republished("once", COUNT)
    again[1] = (_block(13)[:-2]) + again[1][again[1].index("Nats-Stream") :]
    again[2:] = _payload(13)
    events += [
        {"t": 12.2, "phase": "begin", **fault},
        {"t": 13.0, "event": "forgotten", "since": 12.2},
        {"t": 13.5, "phase": "end", **fault},
        {"t": 14.0, "event": "sent", "to": "ORDERS", "rows": [sent]},
        {"t": 14.5, "event": "stored", "to": "ORDERS", "rows": [[13, COUNT]]},
        *(_crash(13.1, 13.4) if restarted else []),
        {"t": 15.0, "event": "received", "name": "once", "rows": [again]},
    ]
    return events


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recorded_run_is_judged_alike_rule_by_rule(restarted: bool, tmp_path: Path) -> None:
    events, history = _power_cut(restarted=restarted), tmp_path / "history.jsonl"
    history.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    story, judgements = judge_history(history, RULES)
    assert judgements == judge(Story.of(copy.deepcopy(events)), RULES)
    assert story.acknowledged.keys() == Story.of(events).acknowledged.keys()
    assert not story.sent


def test_what_a_power_cut_took_back_is_not_missed_and_not_repeated() -> None:
    events = _power_cut(restarted=False)
    assert _found(events, "once") == {}
    # The other rule is at the old message still: the new one is lost, though the sequence came.
    assert _found(events, "never-lost") == {"lost (violation)": 1}


def test_what_precedes_a_message_that_a_power_cut_took_back_is_unknown() -> None:
    events, rows = _power_cut(restarted=False), [row for row in _stored("orders") if row[0] < 9]
    # 9 to 12 are lost, and the new message has sequence 9: with its subject, it would be the predecessor of 12.
    _rows(events, "ORDERS")[:] = [*rows, [9, _TIMES[9], *_row("orders.eu.0", 13)]]
    (stored,) = (event for event in events if event["event"] == "stored" and event["rows"] == [[13, COUNT]])
    stored["rows"] = [[13, 9]]
    events[:] = [event for event in events if event["event"] != "received" or event["t"] < 15]
    found = _found(events, "once")
    assert found.pop("wrong headers (unknown)") == 1
    assert "wrong headers (violation)" not in found


def test_only_a_sidecar_that_starts_with_a_forgotten_position_repeats() -> None:
    for restarted, verdict in ((False, "violation"), (True, "allowed")):
        events = _power_cut(restarted=restarted)
        events.append({"t": 16.0, "event": "received", "name": "once", "rows": [_republished("once", 11)]})
        found = _found(events, "once")
        assert found[f"duplicated ({verdict})"] == 1


@pytest.mark.parametrize(
    ("killed", "crash", "verdict"),
    [
        (12.5, (13.0, 13.5), "allowed"),
        (12.5, (15.5, 15.8), "violation"),  # the sidecar ended when the server was back
        (12.5, None, "violation"),
        (15.0, (15.1, 15.3), "violation"),  # the position was written long before
    ],
)
def test_a_killed_server_has_not_written_its_last_position(
    killed: float, crash: tuple[float, float] | None, verdict: str
) -> None:
    fault = {"event": "fault", "number": 1, "kind": "server killed"}
    events = _fine() + (_crash(*crash) if crash else [])
    events += [{"t": killed, "phase": "begin", **fault}, {"t": killed + 1.5, "phase": "end", **fault}]
    events.append({"t": 17.0, "event": "received", "name": "once", "rows": [_republished("once", COUNT)]})
    assert _found(events, "once")[f"duplicated ({verdict})"] == 1


def test_another_replica_begins_with_a_forgotten_position() -> None:
    events = [{**event, "replicas": 2} if event["event"] == "run" else event for event in _power_cut(restarted=False)]
    events.append({"t": 16.0, "event": "received", "name": "once", "rows": [_republished("once", 11)]})
    assert _found(events, "once")["duplicated (allowed)"] == 1


def test_an_event_that_a_power_cut_took_back_is_not_missed() -> None:
    events = _fine()
    del _rows(events, "EVENTS")[-1]
    assert _found(events, "events") == {"lost (violation)": 1}
    assert _found([*events, {"t": 13.0, "event": "forgotten", "since": 12.2}], "events") == {}
