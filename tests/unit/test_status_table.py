"""What `nats-bridge status` makes of a state, on screens of any size."""

import itertools
import re
from typing import Any

import click
import pytest

from nats_bridge.cli.status import command as status
from nats_bridge.cli.status.table import clock, count, duration, milliseconds, per_second, status_lines
from tests import status_documents as samples


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line).rstrip() for line in lines]


def test_a_sidecar_with_one_of_everything() -> None:
    lines = plain(status_lines(samples.trouble(), 150))
    assert lines[0] == "orders-bridge is not ready (nats-bridge 0.1.0, up 3 h)"
    assert lines[1] == "connection default: nats-server 2.15.3 n1 at default.example:4222"
    assert lines[2] == (
        "connection west: not connected at nats://west.example:4222, 3 reconnects; last error the connection was lost"
    )
    assert lines[3] == f"  west.example:4222 failed 2 times, last at {clock(samples.FAILED_AT)}: connection refused"
    assert lines[4].startswith("configuration /etc/nats-bridge/config.yaml, loaded at ")
    assert ", last reload applied at " in lines[4]
    table = lines[6:]
    assert table[0].split() == ["RULE", "STATE", "LEADER", "IN", "OUT", "BEHIND", "LATENCY", "P50", "/", "P99"]
    assert table[1].split() == ["monitor", "ready", "yes", "910/s", "882/s", "0", "0.8", "ms", "/", "4.2", "ms"]
    assert table[2].split()[5:8] == ["1.2M", "(90", "min)"]
    assert table[3].split()[:3] == ["settings", "waiting", "-"]
    assert table[4].startswith("  waiting: stream 'KV_SETTINGS' does not exist on connection 'west'")
    assert table[5].split()[:2] == ["copy", "failed"]
    assert table[6] == '  failed: the server refuses a publication (permissions violation for publish to "eu.42")'
    assert table[7].split()[:3] == ["events", "standby", "no"]


def test_a_native_copy_that_is_stalled() -> None:
    lines = plain(status_lines(samples.document(samples.watching()), 90))
    (head,) = [at for at, line in enumerate(lines) if line.startswith("mirrors")]
    assert lines[head].split()[:5] == ["mirrors", "ready", "0/s", "0/s", "1,207"]
    assert lines[head + 1 :] == [
        "  ORDERS_WEST <- ORDERS: stalled for 90 min, 1,204 missing, although the server reports l…",
        "    likely: stream ORDERS answers, but its deliveries do not arrive",
        "    remedy: export and import deliver.> as a stream, and $JS.FC.> as a service; check",
        "    permissions on the path",
    ]


def test_a_server_that_this_release_was_not_compared_with() -> None:
    remark = "nats-server 2.16.0 is of a minor line that this release was not compared with"
    link = {**samples.connection(), "untested_server": remark}
    lines = plain(status_lines(samples.document(samples.rule("monitor"), connections=[link]), 60))
    assert lines[1].startswith("connection default: nats-server ")
    assert " ".join(map(str.strip, lines[2:4])) == remark
    assert lines[4].startswith("configuration ")


def test_why_a_configuration_is_refused_is_not_cut() -> None:
    reason = "bridge.yaml:7:3: rules[0].republish.dest: " + "a long reason " * 9 + "with its remedy at the end"
    refused = samples.document()
    refused["config"]["last_reload"] = samples.reload("refused", reason=reason)
    lines = plain(status_lines(refused, 80))
    assert " ".join(line.strip() for line in lines[3:6]) == f"refused: {reason}"


def test_the_leader_is_shown_only_where_there_are_replicas() -> None:
    lines = plain(status_lines(samples.document(samples.rule("one")), 120))
    assert not any("LEADER" in line for line in lines)


def test_a_ready_sidecar_and_one_without_rules() -> None:
    assert plain(status_lines(samples.document(), 80))[0] == "orders-bridge is ready (nats-bridge 0.1.0, up 3 h)"
    assert plain(status_lines(samples.document(), 80))[-1] == "no rules yet"
    draining = samples.document(draining=True, ready=False)
    assert plain(status_lines(draining, 80))[0].startswith("orders-bridge is draining (")


def test_no_line_is_longer_than_the_screen_is_wide() -> None:
    for width in range(1, 200):
        for line in status_lines(samples.trouble(), width):
            assert len(click.unstyle(line)) <= width


def test_columns_without_room_are_left_out_the_state_last() -> None:
    def heads(width: int) -> list[str]:
        found = plain(status_lines(samples.trouble(), width))[6]
        return [name for name in ("STATE", "LEADER", "IN", "OUT", "BEHIND", "LATENCY") if name in found]

    assert heads(150) == ["STATE", "LEADER", "IN", "OUT", "BEHIND", "LATENCY"]
    left = [len(heads(width)) for width in range(150, 20, -1)]
    assert all(after <= before for before, after in itertools.pairwise(left))
    assert heads(30) == ["STATE", "OUT"]
    assert heads(24) == ["STATE"]


def test_the_lag_of_a_stalled_rule_counts_in_flight_and_marks_unknown() -> None:
    def behind(of: dict[str, Any] | None = None, **measured: int | None) -> str:
        rule = of or samples.waiting()
        rule["measures"] |= {"lag_messages": 0, "in_flight": 0, "lag_seconds": 30.0} | measured
        line = next(line for line in plain(status_lines(samples.document(rule), 150)) if line.startswith(rule["name"]))
        return re.split(" {2,}", line)[4]

    assert behind() == "0"
    assert behind(in_flight=3) == "3 (30 s)"
    assert behind(lag_messages=40, in_flight=2) == "42 (30 s)"
    assert behind(lag_messages=None) == "?"
    assert behind(lag_messages=None, in_flight=3) == ">=3 (30 s)"
    assert behind(samples.rule("busy"), lag_messages=40, in_flight=2) == "40 (30 s)"
    assert behind(samples.rule("busy"), lag_messages=None) == "?"
    assert behind(samples.rule("ingress") | {"reads_stream": False}, lag_messages=None) == "-"


def test_an_error_is_not_reported_twice() -> None:
    waiting = samples.waiting()
    waiting["last_errors"] = [{"at": samples.AT, "event": "rule.waiting", "reason": f"rule: {waiting['waiting_for']}"}]
    assert not any("last error" in line for line in status_lines(samples.document(waiting), 300))
    waiting["last_errors"].append({"at": samples.AT, "event": "rule.other", "reason": "something else"})
    assert any("rule.other: something else" in line for line in status_lines(samples.document(waiting), 300))


def test_words_from_elsewhere_cannot_move_the_cursor_or_add_lines() -> None:
    lines = status_lines(samples.document(samples.nasty()), 300)
    assert all("\x1b[2J" not in line and "\n" not in line and "\r" not in line for line in lines)
    assert any("second line" in line for line in lines)


def test_what_is_missing_is_a_dash() -> None:
    bare = {"ready": True, "rules": [{"name": "old", "state": "ready"}]}
    assert plain(status_lines(bare, 100))[-1].split() == ["old", "ready", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0"), (0.25, "0.2"), (9.96, "10.0"), (12.4, "12"), (99_999, "99,999"), (100_000, "100k"),
        (1_204_417, "1.2M"), (250e6, "250M"), (3e9, "3.0G"), (7e12, "7.0T"), (8e15, "8000T"),
    ],
)  # fmt: skip
def test_counts(value: float | None, text: str) -> None:
    assert count(value) == text
    assert per_second(value) == (text if value is None else f"{text}/s")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.31, "0.3 s"), (42, "42 s"), (119, "119 s"), (600, "10 min"), (7200, "2 h"), (400_000, "5 days")],
)
def test_durations(value: float | None, text: str) -> None:
    assert duration(value) == text


def test_other_figures() -> None:
    assert (milliseconds(None), milliseconds(0.42), milliseconds(42), milliseconds(2500)) == (
        "-",
        "0.4 ms",
        "42 ms",
        "2.5 s",
    )
    assert clock("not a time") == "not a time"
    assert clock("2020-01-01T12:00:00.000Z").startswith(("2020-01-01 ", "2019-12-31 ", "2020-01-02 "))


@pytest.mark.parametrize("height", range(1, 40))
def test_a_frame_fits_the_screen_and_shows_what_matters_first(height: int) -> None:
    many = samples.document(*[samples.rule(f"rule-{at}") for at in range(40)], samples.waiting())
    lines = plain(status._frame(many, "", 120, height))
    assert len(lines) <= height
    if height >= 12:
        assert "settings" in "\n".join(lines)


def test_a_frame_without_an_answer_keeps_what_was_known() -> None:
    lines = plain(status._frame(samples.document(samples.rule("one")), "http://x: no sidecar answers", 100, 20))
    assert lines[0] == "http://x: no sidecar answers"
    assert any(line.startswith("one ") for line in lines)
    assert plain(status._frame(None, "http://x: no sidecar answers", 12, 20))[0] == "http://x: no"


def test_an_error_without_a_reason_is_its_name() -> None:
    errors = [{"at": "2026-11-21T11:59:00.000Z", "event": "rule.ended_at_once", "reason": ""}]
    lines = plain(status_lines(samples.document({**samples.rule("monitor"), "last_errors": errors}), 150))
    assert lines[-1].endswith(" rule.ended_at_once")
