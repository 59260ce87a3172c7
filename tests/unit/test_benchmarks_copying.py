"""How the copying benchmarks read times and answers, and what they refuse to measure; never how fast anything is."""

from __future__ import annotations

import json
import socket
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import catch_up, load
from benchmarks.copy_arm import HEADER, Arm, pair
from benchmarks.copy_latency import milliseconds
from benchmarks.copy_scene import bridge_config, native_copy, own_copy
from benchmarks.errors import BenchmarkError
from benchmarks.raw_socket import RawSocket
from benchmarks.stored_times import take_times
from benchmarks.stream_growth import Growth, unix_seconds, watch_growth
from nats_bridge.settings.loading import load as load_configuration

BODY = b"%09d 0000000012345678901xxx"


def delivery(number: int, time_ns: int, block: bytes = b"") -> bytes:
    """A message as a consumer delivers it."""
    reply = b"$JS.ACK.COPY.x7.1.%d.%d.%d.3" % (number + 1, number + 1, time_ns)
    body = BODY % number
    sizes = b"%d %d" % (len(block), len(block) + len(body)) if block else b"%d" % len(body)
    kind = b"HMSG" if block else b"MSG"
    return b"%b copy.%d 1 %b %b\r\n%b%b\r\n" % (kind, number, reply, sizes, block, body)


def test_the_time_of_a_stored_message_is_found_by_its_number() -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: bridge-1\r\nNats-Stream-Source: BENCH 1 > > bench.1\r\n\r\n"
    data = b"PING\r\n" + delivery(2, 30) + delivery(0, 10, block) + b"+OK\r\n" + delivery(1, 20)
    times = array("q", [0]) * 3
    assert take_times(data, times)[0] == 3
    assert list(times) == [10, 20, 30]


@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\nNats-Msg-Id: bridge-1\r\n\r\n"])
def test_a_message_that_is_cut_anywhere_is_found_once_with_the_next_read(block: bytes) -> None:
    whole = delivery(0, 10, block) + delivery(1, 20, block)
    for cut in range(len(whole)):
        times = array("q", [0]) * 2
        before, rest = take_times(whole[:cut], times)
        behind, _ = take_times(rest + whole[cut:], times)
        assert (before + behind, list(times)) == (2, [10, 20]), cut


def test_a_copy_that_is_stored_twice_ends_the_benchmark() -> None:
    with pytest.raises(BenchmarkError, match="message 1 is stored twice"):
        take_times(delivery(1, 20) + delivery(1, 21), array("q", [0]) * 2)


def test_latency_is_the_time_from_storing_a_message_to_storing_its_copy() -> None:
    assert milliseconds([1_000_000_000, 2_000_000_000], [1_000_150_000, 2_003_000_000]) == [0.15, 3.0]


def test_growth_is_read_from_the_stream_s_own_time_stamps() -> None:
    state = {"messages": 201, "first_ts": "2026-11-20T22:52:30.5Z", "last_ts": "2026-11-20T22:52:32.500000999Z"}
    growth = Growth.of(state)
    assert growth.messages == 201
    assert growth.rate == pytest.approx(100.0)


def test_what_was_stored_at_one_time_has_no_rate() -> None:
    with pytest.raises(BenchmarkError, match="too few to measure"):
        _ = Growth(5.0, 5.0, 10).rate


def test_stamps_of_servers_and_of_the_log_are_of_one_clock() -> None:
    assert unix_seconds("1970-01-01T00:01:00.123456789Z") == pytest.approx(60.123456, abs=1e-6)
    assert unix_seconds("1970-01-01T00:01:00.123456Z") == pytest.approx(60.123456, abs=1e-6)


@contextmanager
def server(*answers: bytes) -> Iterator[int]:
    """Something that looks like a server for one connection; each request gets the next answer, the last one again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            left = list(answers)
            with connection:
                connection.sendall(b"INFO {}\r\n")
                while data := connection.recv(65536):
                    if b"PING\r\n" in data:
                        connection.sendall(b"PONG\r\n")
                    if b"PUB $JS.API." in data:
                        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def info(messages: int, subjects: int = 1) -> bytes:
    stamps = {"first_ts": "2026-11-20T22:52:30Z", "last_ts": "2026-11-20T22:52:31Z"}
    body = json.dumps({"state": {"messages": messages, "num_subjects": subjects, **stamps}}).encode()
    return b"MSG _answer 900 %d\r\n%b\r\n" % (len(body), body)


def test_a_stream_is_watched_until_all_is_there() -> None:
    with server(info(0), info(3), info(7)) as port:
        assert watch_growth(port, "COPY", 7, subjects=1).messages == 7


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (info(8), "COPY: holds 8 messages, which is more than the 7 there are"),
        (info(7, subjects=3), "COPY: has 3 subjects instead of 1"),
    ],
)
def test_copies_that_are_not_what_was_to_be_copied_are_not_measured(found: bytes, said: str) -> None:
    with server(found) as port, pytest.raises(BenchmarkError, match=f"^{said}$"):
        watch_growth(port, "COPY", 7, subjects=1)


def test_a_ping_behind_an_answer_does_not_hide_it() -> None:
    with server(info(7) + b"PING\r\n") as port, RawSocket(port, timeout=10) as connection:
        assert connection.request("$JS.API.STREAM.INFO.COPY")["state"]["messages"] == 7


def test_an_error_names_the_subject_of_the_request() -> None:
    body = b'{"error":{"code":404,"description":"stream not found"}}'
    refusal = b"MSG _answer 900 %d\r\n%b\r\n" % (len(body), body)
    with (
        server(refusal) as port,
        RawSocket(port, timeout=10) as connection,
        pytest.raises(BenchmarkError, match=r"STREAM\.INFO\.COPY: .*stream not found"),
    ):
        connection.request("$JS.API.STREAM.INFO.COPY")


def test_unacknowledged_messages_in_flight_fit_the_queue_of_a_stream() -> None:
    assert load.FILLING * load._CHUNK < 10_000


def test_messages_with_headers_have_an_id_each_and_ask_once_for_an_answer() -> None:
    chunk = load._chunk(999, 2, 1_000, block=load.TRACED)
    first, second = chunk.split(b"HPUB ")[1:]
    line, _, rest = first.partition(b"\r\n")
    subject, size, total = line.split(b" ")
    assert subject == b"bench.999"
    block = rest[: int(size)]
    assert block.startswith(b"NATS/1.0\r\n")
    assert block.endswith(b"\r\nNats-Msg-Id: order-999\r\n\r\n")
    assert rest[int(size) :] == b"x" * load.PAYLOAD + b"\r\n"
    assert int(total) == int(size) + load.PAYLOAD
    assert second.startswith(b"bench.0 _stored ")
    assert b"Nats-Msg-Id: order-1000\r\n" in second


@pytest.mark.parametrize(
    ("target", "sources"), [("nats://127.0.0.1:1", {"default"}), ("nats://127.0.0.1:2", {"default", "source"})]
)
def test_the_sidecar_s_configuration_is_one_that_it_takes(target: str, sources: set[str], tmp_path: Path) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(bridge_config("nats://127.0.0.1:1", target), "utf-8")
    settings = load_configuration(file, {})
    assert set(settings.connections) == sources


def test_both_sides_are_measured_in_the_same_place_and_distinguished() -> None:
    native, own = pair("2.15.1, memory")
    assert (native.name, own.name) == ("2.15.1, memory: native", "2.15.1, memory: nats-bridge")
    assert (native.copy, own.copy) == (native_copy, own_copy)


def test_an_arm_s_row_has_the_medians_and_no_cpu_where_there_is_no_program() -> None:
    arm = Arm("native", native_copy, rates=[10_000.0, 30_000.0, 20_000.0], server_cpu=[4.0, 5.0])
    assert arm.row() == ("native", "20,000", "10,000", "30,000", "-", "-", "4.5")
    assert len(arm.row()) == len(HEADER)
    arm.steady += [25_000.0]
    arm.cpu += [1.0, 2.0]
    assert arm.row()[4:6] == ("25,000", "1.5")


def test_targets_hold_for_equal_work_and_older_versions_compare_once() -> None:
    cases = catch_up._cases("2.15.1")
    assert {case.name: case.target for case in cases if case.target} == {
        "2.15.1, memory": 0.9,
        "2.15.1, file": 3.0,
        "2.10.27, memory": 0.9,
        "2.10.27, file": 3.0,
    }
    assert [case.name for case in cases][2:] == [
        *("2.15.1, memory, headers", "2.15.1, memory, across servers"),
        *("2.10.27, memory", "2.10.27, file", "2.9.10, memory", "2.9.10, file"),
    ]
    assert [case.name for case in catch_up._cases("2.9.10")].count("2.9.10, memory") == 1
