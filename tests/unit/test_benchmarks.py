"""The benchmarks' arithmetic, their command line, and how they end; never how fast anything is."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import engine, latency, load, plots, processes, republish_arm, rules
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report, median_of, percentile, table
from benchmarks.go_copier import build
from benchmarks.processes import Program
from benchmarks.spark.figures import Figure, slope
from benchmarks.spark.local_jobs import Cost
from benchmarks.spark.targets import report as targets
from benchmarks.workers import Send, worker
from nats_bridge.settings.loading import load as load_configuration


@pytest.fixture(autouse=True)
def terminate_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([7.0], 50, 7.0),
        ([3.0, 1.0, 2.0, 4.0], 50, 2.0),
        ([3.0, 1.0, 2.0, 4.0], 51, 3.0),
        ([float(number) for number in range(1, 101)], 99, 99.0),
        ([float(number) for number in range(1, 101)], 99.9, 100.0),
        ([float(number) for number in range(1, 1001)], 99.9, 999.0),
        ([1.0, 2.0], 100, 2.0),
    ],
)
def test_a_percentile_is_the_nearest_rank(values: list[float], percent: float, wanted: float) -> None:
    assert percentile(values, percent) == wanted


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 100.1), ([1.0], -1)])
def test_there_is_no_percentile_of_nothing_or_outside_a_hundred(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"no .* % of"):
        percentile(values, percent)


def test_added_latency_is_the_difference_of_two_percentiles() -> None:
    native, bridge = [1.0, 2.0, 3.0, 4.0], [5.0, 4.5, 3.5, 6.0]
    assert latency.added(native, bridge, 50) == 4.5 - 2.0
    each = [ours - theirs for ours, theirs in zip(bridge, native, strict=True)]
    assert percentile(each, 50) == 2.0


def test_the_middle_of_an_even_number_of_rounds_lies_between_two() -> None:
    assert median_of([4.0, 1.0, 2.0]) == 2.0
    assert median_of([4.0, 1.0]) == 2.5


@pytest.mark.parametrize(
    ("ratio", "reached", "text"),
    [
        (Ratio("a over b", 1.1, 1.1), True, "a over b: 1.10 x (wanted: at least 1.1; reached)"),
        (Ratio("a over b", 1.0999, 1.1), False, "a over b: 1.10 x (wanted: at least 1.1; MISSED)"),
        (Ratio("p50", 0.3, 0.3, True, "ms"), True, "p50: 0.30 ms (wanted: at most 0.3; reached)"),
        (Ratio("p50", 0.31, 0.3, True, "ms"), False, "p50: 0.31 ms (wanted: at most 0.3; MISSED)"),
        (Ratio("a over b", 0.5), None, "a over b: 0.50 x"),
    ],
)
def test_a_ratio_says_whether_its_target_is_reached(ratio: Ratio, reached: bool | None, text: str) -> None:
    assert ratio.reached is reached
    assert str(ratio) == text
    assert ratio.as_dict()["reached"] is reached


def test_a_table_lines_up() -> None:
    assert table(("what", "n"), [("a", "1"), ("longer", "1,000")]) == (
        "| what   |     n |\n|--------|------:|\n| a      |     1 |\n| longer | 1,000 |"
    )


def test_a_report_holds_the_same_for_people_and_for_programs() -> None:
    report = Report(("what", "n"), [("a", "1")], [Ratio("r", 2.0, 3.0)], ["A note."])
    assert str(report).split("\n\n")[1:] == ["A note.", "- r: 2.00 x (wanted: at least 3; MISSED)"]
    found = json.loads(json.dumps(report.as_dict()))
    assert found["rows"] == [{"what": "a", "n": "1"}]
    assert found["ratios"][0]["name"] == "r"
    assert found["ratios"][0]["reached"] is False


def test_all_benchmarks_run_when_none_is_named() -> None:
    options = command.arguments([])
    assert options.names == [
        *("engine", "latency", "memory"),
        *("sizes", "subjects", "rules", "peers"),
        *("catch-up", "live-copying", "copy-latency", "copy-memory", "distance", "replicated"),
        *("telemetry", "startup"),
    ]
    assert (options.quick, options.server_version, options.json) == (False, "2.15.3", None)


def test_named_benchmarks_run_once_in_the_order_given() -> None:
    given = ["memory", "engine", "memory", "--quick", "--server-version", "2.10.27", "--json", "out.json"]
    options = command.arguments(given)
    assert options.names == ["memory", "engine"]
    assert (options.quick, options.server_version, options.json) == (True, "2.10.27", Path("out.json"))


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.arguments(["speed"])
    assert stopped.value.code == 2
    assert "unknown benchmark 'speed': there are engine, latency, memory, sizes" in capsys.readouterr().err


def test_help_names_the_benchmarks_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.arguments(["--help"])
    assert stopped.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "engine, latency, memory" in shown
    assert "0 every target reached, 1 one missed" in shown


@pytest.mark.parametrize(("value", "code"), [(2.0, 0), (0.5, 1)])
def test_the_exit_code_and_the_file_show_whether_targets_were_reached(
    value: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(("what",), [("a",)], [Ratio("r", value, 1.0)])
    monkeypatch.setattr(engine, "run", lambda **_: report)
    file = tmp_path / "found.json"
    assert command.main(["engine", "--json", str(file)]) == code
    found = json.loads(file.read_text("utf-8"))
    assert found["benchmarks"] == {"engine": report.as_dict()}
    assert set(found["environment"]) >= {"date", "python", "nats-server", "nats-py", "cores"}
    shown = capsys.readouterr().out
    assert shown.startswith(f"date {found['environment']['date']}, python ")
    assert "## engine" in shown


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (BenchmarkError("subscriber: gone"), 2, "benchmarks: subscriber: gone\n"),
        (KeyboardInterrupt(), 130, "benchmarks: interrupted\n"),
    ],
)
def test_what_stops_a_benchmark_is_said_in_one_line(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> Report:
        raise raised

    monkeypatch.setattr(engine, "run", fail)
    assert command.main(["engine"]) == code
    assert capsys.readouterr().err == said


def _echo(send: Send, text: str) -> None:
    send(text)


def _fail(send: Send) -> None:
    raise TimeoutError("3 of 4 messages came")


def _end(send: Send) -> None:
    pass


def _hang(send: Send) -> None:
    threading.Event().wait()


def test_a_worker_reports_what_it_found() -> None:
    with worker("echo", _echo, "found") as process:
        assert process.receive() == "found"


@pytest.mark.parametrize(
    ("work", "said"), [(_fail, "subscriber: 3 of 4 messages came"), (_end, "subscriber: ended before it had a result")]
)
def test_a_worker_that_fails_or_ends_is_not_waited_for(work: object, said: str) -> None:
    with (
        worker("subscriber", work, *()) as process,  # type: ignore[arg-type]
        pytest.raises(BenchmarkError, match=f"^{said}$"),
    ):
        process.receive()


def test_a_worker_that_is_stuck_is_ended() -> None:
    with worker("subscriber", _hang) as process, pytest.raises(BenchmarkError, match=r"nothing for 0\.01 s"):
        process.receive(0.01)


def test_messages_can_have_headers_all_the_same() -> None:
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    body = block + b"x" * 128 + b"\r\n"
    assert load._chunk(0, 2, 10, block=block) == b"HPUB bench.0 %d %d\r\n%bHPUB bench.1 _stored %d %d\r\n%b" % (
        *(len(block), len(block) + 128, body),
        *(len(block), len(block) + 128, body),
    )


def test_the_publisher_sends_each_subject_in_turn_and_asks_once() -> None:
    chunk = load._chunk(998, 4, 1_000)
    lines = [line for line in chunk.split(b"\r\n") if line.startswith(b"PUB")]
    assert lines == [b"PUB bench.998 128", b"PUB bench.999 128", b"PUB bench.0 128", b"PUB bench.1 _stored 128"]
    assert chunk.count(b"\r\n" + b"x" * 128 + b"\r\n") == 4


def test_a_stamped_message_is_recognised_and_a_cut_one_is_not() -> None:
    header = b"NATS/1.0\r\nNats-Stream: BENCH\r\n\r\n"
    whole = b"HMSG bridge.bench.7 2 40 168\r\n" + header + b"000000042 0000000012345678901" + b"x" * 99 + b"\r\n"
    found = latency._COPY.search(whole)
    assert found is not None
    assert found.groups() == (b"bridge", b"000000042", b"0000000012345678901")
    assert latency._COPY.search(whole[: whole.index(b"000000042") + 20]) is None


def test_a_program_s_log_is_read_by_event() -> None:
    program = Program(1, 0.0, said=["starting\n", '{"event": "rule.ready", "known_subjects": 3}\n'])
    assert program.logged("rule.ready")["known_subjects"] == 3
    with pytest.raises(BenchmarkError, match=r"process 1 did not log 'rule\.stopped'"):
        program.logged("rule.stopped")


def test_where_there_is_no_proc_it_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(BenchmarkError, match="run this one on Linux"):
        processes.memory_of(1)


def test_a_process_that_has_ended_has_no_memory() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(BenchmarkError, match=f"process {process.pid}"):
        processes.memory_of(process.pid)


def test_cost_against_size_compares_the_fastest_runs_of_both_extremes() -> None:
    sizes = [Figure("read", 1000, 2, 2.0), Figure("read", 1000, 2, 1.0), Figure("read", 10_000, 2, 15.0)]
    assert slope(sizes) == pytest.approx(1.5)
    assert slope(sizes[:2]) is None
    assert sizes[0].rate == 500
    assert sizes[2].as_dict()["rate"] == 667


def test_pieces_are_of_a_thousand_messages_or_of_a_megabyte() -> None:
    assert [piece.count(b"PUB ") for piece in load.chunks(2_500)] == [1_000, 1_000, 500]
    assert [piece.count(b"PUB ") for piece in load.chunks(40, size=65_536)] == [16, 16, 8]
    assert all(piece.count(b"_stored ") == 1 for piece in load.chunks(2_500, 7))


def test_the_load_of_many_rules_changes_the_rule_with_every_message() -> None:
    (piece,) = load.chunks(4, groups=3)
    assert [line.split()[1] for line in piece.split(b"\r\n") if line.startswith(b"PUB")] == [
        *(b"bench.0.0", b"bench.1.1", b"bench.2.2", b"bench.0.3")
    ]


@pytest.mark.parametrize("streams", [True, False])
def test_many_rules_are_a_configuration_that_the_sidecar_takes(streams: bool, tmp_path: Path) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(rules.bridge_config("nats://127.0.0.1:1", 100, streams=streams), "utf-8")
    found = load_configuration(file, {}).rules
    assert len(found) == 100
    assert len({rule.stream for rule in found}) == (100 if streams else 1)  # type: ignore[union-attr]


def test_points_are_reported_as_numbers() -> None:
    arm = republish_arm.Arm("128 bytes: native", lambda _: nullcontext(None), rates=[1.0, 3.0, 2.0], server_cpu=[4.0])
    point = arm.point("native", 128)
    assert point.values == {"rate": 2.0, "lowest": 1.0, "highest": 3.0, "server_cpu": 4.0}
    found = json.loads(json.dumps(Report(("what",), [("a",)], [], points=[point]).as_dict()))
    assert found["points"] == [{"series": "native", "at": 128, "values": point.values}]


def _run_of(benchmark: str, **environment: str) -> dict[str, Any]:
    known = {"nats-server": "2.15.1", "python": "3.11", "machine": "Linux", "cores": "2"}
    return {"environment": known | environment, "benchmarks": {benchmark: {"points": []}}}


def test_runs_of_one_machine_and_the_same_versions_are_put_together() -> None:
    assert set(plots.merged([_run_of("sizes"), _run_of("rules")])["benchmarks"]) == {"sizes", "rules"}
    with pytest.raises(ValueError, match="do not belong together"):
        plots.merged([_run_of("sizes"), _run_of("rules", cores="8")])


def test_the_version_of_the_go_client_is_that_of_its_module() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", build.client_version())


def test_where_there_is_no_go_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_BRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match="install it, or leave out 'peers'"):
        build.built()


@pytest.mark.parametrize(
    ("read", "parquet", "wanted"),
    [
        (4.4, 5.7, [True, None, True]),  # 0.7 of the reader is less than 180,000/s
        (4.5, 5.8, [False, None, False]),
    ],
)
def test_reads_on_spark_are_compared_with_the_best_turn_of_the_reader(
    read: float, parquet: float, wanted: list[bool | None]
) -> None:
    seconds = {
        "read, noop": [9.0, read],
        "reader without Spark": [4.0, 8.0],
        "read, Parquet": [parquet],
        "nats.go, ordered consumer": [1.0],
    }
    costs = {arm: [Cost(each, 1, 0) for each in turns] for arm, turns in seconds.items()}
    assert [ratio.reached for ratio in targets(costs, 1_000_000).ratios] == wanted


@pytest.mark.parametrize(("messages", "seconds", "wanted"), [(10**6, 50, None), (10**7, 45, True), (10**7, 46, False)])
def test_jobs_on_spark_have_targets_at_ten_million_messages(messages: int, seconds: int, wanted: bool | None) -> None:
    found = targets({"diff of two streams": [Cost(seconds, 1, 0)]}, messages)
    assert [ratio.reached for ratio in found.ratios] == [wanted]
