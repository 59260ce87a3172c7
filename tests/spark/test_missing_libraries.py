"""The commands where PySpark is not installed, as after `pip install --no-deps`; and capture without its arguments."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nats_bridge.cli import main

_WITHOUT = "import sys; sys.modules['{}'] = None; from nats_bridge.cli import main; main(sys.argv[1:])"
_SERVER = ("--server", "nats://127.0.0.1:1")


@pytest.mark.parametrize("library", ["pyspark", "pyarrow"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("capture", "ORDERS", "orders", *_SERVER),
        ("capture", "--all", "backup", *_SERVER),
        ("restore", "backup", *_SERVER),
        ("backfill", "-c", "eu.yaml", "eu"),
        ("diff", "A", "B", *_SERVER),
    ],
    ids=" ".join,
)
def test_each_command_names_the_package(arguments: tuple[str, ...], library: str) -> None:
    command = [sys.executable, "-c", _WITHOUT.format(library), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{library} is not installed: pip install nats-bridge-spark\n"


def test_a_capture_without_arguments_names_the_one_that_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["capture", *_SERVER])
    assert ended.value.code == 2
    assert "missing argument 'DIR': use STREAM DIR, or --all DIR" in capfd.readouterr().err
