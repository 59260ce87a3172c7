"""What a change of partitions moves: the question, the counts against the engine, table, picture and command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from bridge.cli import main
from pipeline.errors import OptionError, PipelineError, SchemaError
from pipeline.partition_plan.change import change_of
from pipeline.partition_plan.picture import check, draw
from pipeline.partition_plan.plan import HotKey, Load, Plan, plan_of, skew, subjects_in
from pipeline.partition_plan.table import lines
from tests.live.until import LIMIT
from transforms import compile_transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, DESTINATION = "orders.*.*", "{{partition(8,1)}}.orders.{{wildcard(1)}}.{{wildcard(2)}}"


@pytest.mark.parametrize(
    ("src", "dest", "new", "before", "indexes"),
    [
        (SOURCE, DESTINATION, "{{partition(12,1)}}.orders.{{wildcard(1)}}.{{wildcard(2)}}", 8, (1,)),
        ("a.*.*", "x.{{ Partition( 7, 2,1 ) }}.p(7)", "x.{{ Partition( 12, 2,1 ) }}.p(7)", 7, (2, 1)),
        ("a.*", "{{partition(3)}}", "{{partition(12)}}", 3, ()),
        ("a.b", "{{partition(3,1)}}", "{{partition(12,1)}}", 3, ()),
        ("a.>", "{{partition(3,0)}}.>", "{{partition(12,0)}}.>", 3, (0,)),
    ],
)
def test_a_change_is_read_from_a_transform(
    src: str, dest: str, new: str, before: int, indexes: tuple[int, ...]
) -> None:
    change = change_of(src, dest, 12)
    assert change.new_destination.decode() == new
    assert (change.before, change.after, change.indexes) == (before, 12, indexes)
    assert compile_transform(src.encode(), change.new_destination).destination == new.encode()


@pytest.mark.parametrize(("before", "after", "share"), [(8, 12, 2 / 3), (8, 16, 1 / 2), (8, 8, 0), (3, 4, 3 / 4)])
def test_what_moves_of_very_many_keys(before: int, after: int, share: float) -> None:
    change = change_of("a.*", f"{{{{partition({before},1)}}}}", after)
    assert change.expected == pytest.approx(share)
    numbers = range(before * after)
    assert sum(number % before != number % after for number in numbers) == pytest.approx(share * len(numbers))


@pytest.mark.parametrize(
    ("src", "dest", "to", "dialect", "said"),
    [
        ("orders.*", "o.$1", 4, "2.15", "--dest 'o.$1': has no partition function, such as {{partition(8,1)}}"),
        ("a.*", "{{partition(2,1)}}.{{partition(3,1)}}", 4, "2.15", "has 2 partition functions"),
        ("a.*", "{{partition(2,1)}}", 0, "2.10", "--to 0: partition(0,…) ends a 2.10.27 server at its first message"),
        ("a.*", "{{partition(2,1)}}", 0, "2.15", "--to 0: partition(0,…) gives every message partition 0; say --to 1"),
        ("a.*", "{{partition(2,1)}}", -4, "2.15", "--to -4: a server takes it for 4294967292 partitions"),
        ("a.*", "{{partition(0,1)}}", 4, "2.11", "{{partition(0,1)}} ends a 2.11.17 server at its first message"),
        ("a.*", "{{partition(2,1)}}", 70_000, "2.15", "--to: 70000 partitions; a plan is made for 65536 at most"),
        ("a.*", "{{partition(-1,1)}}", 4, "2.15", "--dest: 4294967295 partitions"),
        ("a.b", "{{partition(2)}}", 4, "2.9", "a 2.9.25 server copies it as it is, since the source has no wildcard"),
        ("a.*", "{{partition(2,2)}}", 4, "2.15", "a 2.15.1 server refuses it: invalid mapping destination: wildcard"),
    ],
)
def test_what_cannot_be_planned_is_said(src: str, dest: str, to: int, dialect: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        change_of(src, dest, to, dialect)


@pytest.mark.parametrize(
    ("src", "dest", "to", "hashed"),
    [
        ("orders.*.*", DESTINATION, 12, (1,)),
        ("orders.*.*", "{{partition(5,2,1)}}", 3, (2, 1)),
        ("orders.*.*", "{{partition(4)}}.$1", 8, (0, 1, 2)),
        ("orders.>", "p.{{partition(3,0)}}.>", 2, (0,)),
        ("*.>", "{{partition(6,1)}}.>", 6, (0,)),
    ],
)
def test_counts_are_the_engines(
    spark: SparkSession, tmp_path: Path, src: str, dest: str, to: int, hashed: tuple[int, ...]
) -> None:
    random = Random(f"{src} {dest}")
    names = ["eu", "us", "é", "日本", "a-1", "q" * 30]
    subjects = [f"orders.{random.choice(names)}.{int(random.paretovariate(1)) % 40}" for _ in range(600)]
    subjects += ["other.x", "orders", "orders..x"]
    spark.createDataFrame([(subject,) for subject in subjects], "subject string").write.parquet(str(tmp_path / "p"))

    change = change_of(src, dest, to)
    plan = plan_of(subjects_in(spark, str(tmp_path / "p")), change)

    def partition(subject: str, destination: bytes) -> int | None:
        made = compile_transform(src.encode(), destination).apply(subject.encode())
        at = next(at for at, token in enumerate(dest.split(".")) if "partition" in token)
        return None if made is None else int(made.split(b".")[at])

    def key(subject: str) -> tuple[str, ...]:
        found = subject.split(".")
        return tuple(found[position] for position in hashed if position < len(found))

    rows = [
        (key(subject), partition(subject, change.destination), partition(subject, change.new_destination))
        for subject in subjects
    ]
    matched = [row for row in rows if row[1] is not None]
    assert plan.unmatched == len(rows) - len(matched) > 0
    for side, loads, count in ((1, plan.before, change.before), (2, plan.after, change.after)):
        keys = Counter(row[side] for row in set(matched))
        messages = Counter(row[side] for row in matched)
        moved_keys = Counter(row[side] for row in set(matched) if row[1] != row[2])
        moved = Counter(row[side] for row in matched if row[1] != row[2])
        assert loads == tuple(Load(n, keys[n], messages[n], moved_keys[n], moved[n]) for n in range(count))
    by_key = Counter(matched)
    assert [(key.messages, key.before, key.after) for key in plan.hottest][:1] == [
        (count, *row[1:]) for row, count in by_key.most_common(1)
    ]
    assert {(key.key, key.messages) for key in plan.hottest} <= {
        (".".join(row[0]), count) for row, count in by_key.items()
    }
    assert plan.messages == len(matched)
    assert plan.keys == len(by_key)
    assert plan.moved_messages == sum(load.moved_messages for load in plan.after)


def test_what_is_no_capture_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nothing: there is no such directory or file"):
        subjects_in(spark, str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="empty: there is no Parquet in it"):
        subjects_in(spark, str(tmp_path / "empty"))
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    with pytest.raises(SchemaError, match="numbers: has no column subject; it has id"):
        subjects_in(spark, str(tmp_path / "numbers"))
    spark.range(3).withColumnRenamed("id", "subject").write.parquet(str(tmp_path / "typed"))
    with pytest.raises(SchemaError, match="column subject is bigint; subjects are string or binary"):
        subjects_in(spark, str(tmp_path / "typed"))


def test_a_file_is_read_as_well_as_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([("a",)], "subject string").coalesce(1).write.parquet(str(tmp_path / "p"))
    (file,) = (tmp_path / "p").glob("*.parquet")
    assert [row.subject for row in subjects_in(spark, str(file)).collect()] == ["a"]


def test_nothing_to_plan_with_is_said(spark: SparkSession) -> None:
    change = change_of("orders.*", "{{partition(8,1)}}", 4)
    with pytest.raises(OptionError, match="there are no messages to plan with"):
        plan_of(spark.createDataFrame([], "subject string"), change)
    with pytest.raises(OptionError, match=r"--src 'orders\.\*' matches none of 2 messages' subjects, such as 'other'"):
        plan_of(spark.createDataFrame([("other",), (None,)], "subject string"), change)


def plan_of_counts(before: list[tuple[int, int]], after: list[tuple[int, int]], unmatched: int = 0) -> Plan:
    """A plan made by hand: messages and moved messages per partition."""
    loads = [tuple(Load(n, 1, all_, 0, moved) for n, (all_, moved) in enumerate(each)) for each in (before, after)]
    change = change_of("a.*", f"{{{{partition({len(before)},1)}}}}.$1", len(after))
    return Plan(change, unmatched, loads[0], loads[1], (HotKey("eu", 10, 0, 2), HotKey("x" * 80, 1, 1, 1)))


def test_the_table() -> None:
    assert lines(plan_of_counts([(10, 4), (20, 6)], [(6, 0), (14, 0), (10, 10)], unmatched=1000)) == [
        "2 → 3 partitions: {{partition(3,1)}}.$1",
        "",
        "keys moved      0 of 2 (0.0 %)",
        "messages moved  10 of 30 (33.3 %)",
        "(of very many keys, 66.7 % would move)",
        "not matched     1,000 messages, counted nowhere below",
        "",
        "          before                   after",
        "partition   keys  messages  leave  keys  messages  arrive",
        "0              1        10      4     1         6       0",
        "1              1        20      6     1        14       0",
        "2              –         –      –     1        10      10",
        "max / mean            1.33                   1.40",
        "",
        "hottest keys                                                  messages   share  before  after",
        "eu                                                                  10  33.3 %       0      2",
        f"{'x' * 59}…         1   3.3 %       1      1",
    ]


def test_many_partitions_are_listed_by_the_fullest() -> None:
    told = lines(plan_of_counts([(n, 0) for n in range(1, 101)], [(50, 0)] * 101))
    assert "(the 16 fullest of 101; --json has all)" in told
    listed = [line.split()[0] for line in told if re.match(r"\d+ +[\d–]+ ", line)]
    assert listed == [str(number) for number in range(84, 100)]


def test_the_skew_of_nothing() -> None:
    assert skew([Load(0), Load(1)]) == 0
    assert skew([Load(0, 1, 9), Load(1), Load(2)]) == 3


def test_pictures(tmp_path: Path) -> None:
    from matplotlib.image import imread

    plan = plan_of_counts([(10, 4), (20, 6)], [(6, 0), (14, 0), (10, 10)])
    draw(plan, tmp_path / "plan.png")
    pixels = imread(tmp_path / "plan.png")
    assert pixels.shape[0] > 400
    assert pixels.shape[1] > 1000
    colours = {tuple((pixel * 255).round().astype(int)) for row in pixels[::5, ::5, :3] for pixel in row}
    assert {(0x48, 0x78, 0xA8), (0xE8, 0xA3, 0x3D)} <= colours

    for name in ("one.svg", "two.svg"):
        draw(plan, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "one.svg").read_text().count("</svg>") == 1

    with pytest.raises(OptionError, match=r"plan\.gif: the name must end in \.png or \.svg"):
        check(tmp_path / "plan.gif")
    with pytest.raises(OptionError, match="there is no folder"):
        check(tmp_path / "nowhere" / "plan.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PipelineError, match=r"--picture .*folder\.png: Is a directory"):
        draw(plan, tmp_path / "folder.png")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--dest", "x.$1", "--to", "4"], "--dest 'x.$1': has no partition function"),
        (["--dest", "{{partition(2,1)}}", "--to", "0", "--dialect", "2.10"], "--to 0: partition(0,…) ends a 2.10.27"),
        (["--dest", "{{partition(2,1)}}", "--to", "4", "--picture", "x.gif"], "--picture x.gif: the name must end"),
        (["--dest", "{{partition(2,1)}}", "--to", "four"], "'four' is not a valid integer"),
    ],
)
def test_bad_input_is_said_before_spark_starts(capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["partition", "plan", "capture", "--src", "a.*", *given])
    told = capsys.readouterr()
    assert left.value.code == 2
    assert said in told.err
    assert told.err.count("\n") <= 2
    assert not told.out


@pytest.mark.timeout(31 * LIMIT)
def test_the_command(spark: SparkSession, tmp_path: Path) -> None:
    subjects = [(f"orders.{number % 10}.{number}",) for number in range(100)]
    spark.createDataFrame(subjects, "subject string").write.parquet(str(tmp_path / "capture"))
    command = [sys.executable, "-m", "bridge", "partition", "plan"]
    given = [
        "--src",
        SOURCE,
        "--dest",
        DESTINATION,
        "--to",
        "12",
        "--hottest",
        "2",
        "--spark",
        "spark.driver.memory=512m",
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "capture"), *given, "--json", "--quiet", "--picture", str(tmp_path / "plan.svg")],
        capture_output=True,
        text=True,
        timeout=30 * LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["new_destination"] == "{{partition(12,1)}}.orders.{{wildcard(1)}}.{{wildcard(2)}}"
    assert told["keys"] == 10
    assert told["messages"] == 100
    assert [len(told[side]) for side in ("before", "after")] == [8, 12]
    assert [key["messages"] for key in told["hottest"]] == [10, 10]
    assert (tmp_path / "plan.svg").stat().st_size > 1000
