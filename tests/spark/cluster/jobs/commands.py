"""Runs commands of ours one after the other in one session, and writes the output and exit code of each.

Arguments: a file with a list of the commands' words as JSON, and one for the answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from nats_bridge.cli import main as command
from nats_bridge_spark.session import spark_session


def main(commands: str, answers: str) -> None:
    """The job."""
    spark = spark_session("commands")
    reported = []
    for words in json.loads(Path(commands).read_text("utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                command(words)
                code = 0
            except SystemExit as end:
                code = end.code
        reported.append({"code": code, "printed": printed.getvalue()})
    Path(answers).write_text(json.dumps(reported), "utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
