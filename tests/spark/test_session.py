"""Where a job's session comes from, and what a person reads when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nats_bridge_spark.errors import SparkMissingError
from nats_bridge_spark.session import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def test_the_format_is_known_by_its_name(spark: SparkSession) -> None:
    frame = spark.read.format("jetstream").option("servers", "nats://127.0.0.1:1").option("stream", "S").load()
    assert frame.columns == ["stream", "subject", "sequence", "time", "time_ns", "headers", "data"]


def test_what_a_local_session_is(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None


def fake_java(folder: Path, body: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    return java


def test_java_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, """echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == 21


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkMissingError, match=r"^Java is not installed: Spark needs Java 17 or newer on the path"):
        require_java()


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkMissingError, match=rf"^JAVA_HOME={tmp_path} has no bin/java: set it to a Java 17"):
        require_java()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "is Java 11: Spark needs Java 17 or newer"),
        ("""echo 'java version "1.8.0_292"' >&2""", "is Java 8: Spark needs Java 17 or newer"),
        ("echo 'no JVM is configured' >&2; exit 1", "-version: exit code 1, and it says: no JVM is configured"),
    ],
)
def test_a_java_that_cannot_be_used(tmp_path: Path, body: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, body)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    with pytest.raises(SparkMissingError) as error:
        require_java()
    assert str(error.value) == f"{java} {said}"


JOB = """
import sys
from importlib.abc import MetaPathFinder
class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Hidden())
from nats_bridge_spark.session import job_session
from nats_bridge.errors import BridgeError
try:
    with job_session("a job", settings={"spark.driver.memory": "512m"}) as spark:
        print(spark.range(3).count())
except BridgeError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def run_job(*hidden: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOB, *hidden],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


PLAIN = """
import pyspark_jetstream
from nats_bridge_spark.subject_column import transform_subject
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
spark = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").getOrCreate()
print(spark.range(1).select(transform_subject(lit("orders.eu.1"), "orders.eu.*", "eu.$1")).first()[0])
pyspark_jetstream.register(spark)
print(spark.read.format("jetstream").options(servers="nats://127.0.0.1:1", stream="S").load().columns[:2])
"""


@pytest.mark.java
@pytest.mark.parametrize("activated", [False, True])
def test_a_session_of_ones_own_needs_no_activated_environment(activated: bool, tmp_path: Path) -> None:
    # `python3` on PATH is one without anything; Spark would have taken it for its workers.
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    first = Path(sys.executable).parent if activated else tmp_path
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    ran = subprocess.run(
        [sys.executable, "-c", PLAIN],
        cwd=tmp_path,
        env={**environment, "PATH": f"{first}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "eu.1\n['stream', 'subject']\n"), ran.stderr
    assert "replaced" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_package_is_missing(missing: str) -> None:
    ran = run_job(missing)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{missing} is not installed: pip install nats-bridge-spark\n"


def test_a_job_without_java(tmp_path: Path) -> None:
    ran = run_job(JAVA_HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        f"JAVA_HOME={tmp_path} has no bin/java: set it to a Java 17 or newer, or unset it"
    ]


def test_java_that_cannot_start_spark(tmp_path: Path) -> None:
    java = fake_java(
        tmp_path,
        """case "$1" in -version) echo 'openjdk version "17.0.1"' >&2;; """
        """*) echo 'Error: Could not reserve enough space for object heap' >&2; exit 1;; esac""",
    )
    ran = run_job(JAVA_HOME=str(java.parents[1]))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "Spark does not start: Error: Could not reserve enough space for object heap\n"


@pytest.mark.java
@pytest.mark.timeout(900)  # starts Java
def test_a_job_says_nothing_but_its_result_and_leaves_no_java(tmp_path: Path) -> None:
    ran = run_job(TMPDIR=str(tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3\n", "")
    assert list(tmp_path.glob("nats-bridge-*")) == []
    assert str(tmp_path) not in _environments()


def _environments() -> str:
    """The environments of all processes that can be seen: those a job has started have its TMPDIR."""
    found = []
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            found.append(process.read_text("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)
