"""Where a job's session comes from, and what a person reads when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


JOB = """
import sys
from importlib.abc import MetaPathFinder
class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Hidden())
from nats_bridge_spark.session import engine_session
from nats_bridge.errors import BridgeError
try:
    with engine_session("a job", "spark", {"spark.driver.memory": "512m"}, lambda: (0, 0), {}) as spark:
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


STARTS = "a job: starting Spark\n"
NEEDS = "(it needs Java 17 or newer, on the path or in JAVA_HOME)\n"


def test_a_job_without_java(tmp_path: Path) -> None:
    ran = run_job(JAVA_HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"{STARTS}Spark does not start: ")
    assert f"{tmp_path}/bin/java" in ran.stderr
    assert ran.stderr.endswith(NEEDS)


@pytest.mark.parametrize("said", ["Could not reserve enough space for object heap", "class file version 61.0"])
def test_java_that_cannot_start_spark(said: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'Error: {said}' >&2; exit 1\n")
    java.chmod(0o755)
    ran = run_job(JAVA_HOME=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{STARTS}Spark does not start: Error: {said} {NEEDS}"


@pytest.mark.java
@pytest.mark.timeout(900)  # starts Java
def test_a_job_says_little_but_its_result_and_leaves_no_java(tmp_path: Path) -> None:
    ran = run_job(TMPDIR=str(tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3\n", STARTS)
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
