"""`nats-bridge diff`: do two histories hold the same messages?"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.cli.connection_options import connection_named
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.settings import Connection
from nats_bridge_spark.cli.options import progress_options, spark_options

if TYPE_CHECKING:
    from nats_bridge_spark.diff.request import Place, Wanted
    from nats_bridge_spark.diff.run import Result


_MEMORY: Final = "2g"
_PASSWORD: Final = re.compile(r"//[^/@]*@")
_BY: Final = ("auto", "sequence", "provenance", "provenance:right", "id", "subject")


@click.command(name="diff")
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option("--by", type=click.Choice(_BY), default="auto", show_default=True, help="What identifies a message.")
@click.option(
    "--as",
    "like",
    type=click.Choice(["auto", "exact", "bridged"]),
    default="auto",
    show_default=True,
    help="bridged: leave out what native and bridged copies differ in by design.",
)
@click.option("--source", metavar="NAME", default="", help="What the right side's copies call the left stream.")
@click.option("--ignore-header", "ignored", metavar="NAME", multiple=True, help="A header that is not compared.")
@click.option("--allow", "allowed", metavar="KIND", multiple=True, help="A kind of finding that is no difference.")
@click.option(
    "--transform", nargs=2, metavar="SRC DEST", help="Subject transform of the left side before it is compared."
)
@click.option("--rule", metavar="NAME", help="The rule of -c FILE that makes copies of the left side's messages.")
@click.option("--subject", "subjects", metavar="PATTERN", multiple=True, help="Only these subjects, on both sides.")
@click.option("--left-subject", "left_subjects", metavar="PATTERN", multiple=True, help="Only these of the left.")
@click.option("--right-subject", "right_subjects", metavar="PATTERN", multiple=True, help="Only these of the right.")
@click.option(
    "--from-sequence", "first", type=click.IntRange(1), metavar="N", help="From this sequence, on both sides."
)
@click.option("--to-sequence", "last", type=click.IntRange(1), metavar="N", help="Up to this sequence, on both sides.")
@click.option("--left-from-sequence", "left_first", type=click.IntRange(1), metavar="N", help="The left from here.")
@click.option("--left-to-sequence", "left_last", type=click.IntRange(1), metavar="N", help="The left up to here.")
@click.option("--right-from-sequence", "right_first", type=click.IntRange(1), metavar="N", help="The right from here.")
@click.option("--right-to-sequence", "right_last", type=click.IntRange(1), metavar="N", help="The right up to here.")
@click.option("--server", metavar="URL", help="The servers of both sides, with commas between them.")
@click.option("--context", metavar="NAME", help="A context of the `nats` command line, for both sides.")
@click.option("--creds", metavar="FILE", type=click.Path(path_type=Path), help="Credentials file, for both sides.")
@click.option("-c", "--config", metavar="FILE", type=click.Path(path_type=Path), help="A configuration of the bridge.")
@click.option("--left-server", metavar="URL", help="The left side's servers.")
@click.option("--left-context", metavar="NAME", help="Its context.")
@click.option("--left-creds", metavar="FILE", type=click.Path(path_type=Path), help="Its credentials file.")
@click.option("--left-connection", metavar="NAME", help="Its connection in -c FILE.  [default: default]")
@click.option("--right-server", metavar="URL", help="The right side's servers.")
@click.option("--right-context", metavar="NAME", help="Its context.")
@click.option("--right-creds", metavar="FILE", type=click.Path(path_type=Path), help="Its credentials file.")
@click.option("--right-connection", metavar="NAME", help="Its connection in -c FILE.  [default: default]")
@click.option("--out", metavar="DIR", help="Write every finding to this directory, as Parquet.")
@click.option(
    "--report",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the conformance suite's reports: HTML, JUnit, Markdown, JSON.",
)
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="Findings shown of each kind.")
@click.option("--json", "as_json", is_flag=True, help="The result on stdout as JSON.")
@spark_options
@progress_options
def diff_command(left: str, right: str, **given: Any) -> int:
    """Compare two streams or captures, message by message.

    LEFT and RIGHT are streams (NAME or stream:NAME) or directories of captures. Messages are the same if they have
    the same sequence, come from the same message of the same stream, or have the same Nats-Msg-Id; which of these
    holds is found out, or said with --by; with --by subject the newest message of each subject is compared.
    Exit code 0: equal, 1: different.

    \b
    Example:
      nats-bridge diff COPY COPY --left-server nats://old:4222 --right-server nats://new:4222
      nats-bridge diff captures/native captures/bridged --report report/
      nats-bridge diff ORDERS ORDERS_EU --server nats://127.0.0.1:4222 -c bridge.yaml --rule eu
      nats-bridge diff KV_eu KV_us --left-server nats://eu:4222 --right-server nats://us:4222 --by subject
    """
    from nats_bridge_spark.diff.findings import KINDS

    for kind in given["allowed"]:
        if kind not in KINDS:
            raise ConfigError(f"--allow {kind}: is no kind of finding; these are: {', '.join(KINDS)}")
    places = _place("left", left, given), _place("right", right, given)
    if given["report"] is not None and given["report"].is_file():
        raise ConfigError(f"--report {given['report']}: is a file; name a directory")
    wanted = _wanted(places[0], given)

    from nats_bridge_spark.session import job_session

    settings = {"spark.driver.memory": _MEMORY, **given["settings"]}
    with job_session("diff", master=given["master"], settings=settings, quiet=given["quiet"]) as spark:
        from nats_bridge_spark.diff.run import compared
        from nats_bridge_spark.progress import Shown, watched

        job, shown = f"diff {_short(places[0])} {_short(places[1])}", Shown(given["quiet"], given["every"])
        with watched(spark, job, shown=shown) as progress, compared(spark, *places, wanted, progress) as result:
            if given["out"]:
                progress.enter("writing the findings")
                _write(result, given["out"])
        seconds = time.monotonic() - progress.started
    _print(result, given, seconds)
    return EXIT_GOOD if result.is_equal else EXIT_NO


def _short(place: Place) -> str:
    """A name that leaves room on a line of progress."""
    return place.name.rstrip("/").rpartition("/")[2] or place.name


def _place(side: str, text: str, given: dict[str, Any]) -> Place:
    from nats_bridge_spark.diff.request import Place

    is_stream = Place.is_stream(text)
    return Place(
        name=Place.bare(text),
        connection=_connection(side, text, given) if is_stream else None,
        first=given[f"{side}_first"] or given["first"],
        last=given[f"{side}_last"] or given["last"],
        subjects=(*given["subjects"], *given[f"{side}_subjects"]),
    )


def _connection(side: str, text: str, given: dict[str, Any]) -> Connection:
    own = {name: given[f"{side}_{name}"] for name in ("server", "context", "creds")}
    if given["config"] is not None and not any(own.values()) and not given["server"] and not given["context"]:
        own_connection = given[f"{side}_connection"]
        return connection_named(
            server=None, creds=None, context=None, config=given["config"], connection=own_connection
        )
    if not own["server"] and not own["context"]:
        own = {"server": given["server"], "context": given["context"], "creds": own["creds"] or given["creds"]}
    if not own["server"] and not own["context"]:
        raise ConfigError(
            f"{text}: is taken for a stream (there is no such directory): say where, with --{side}-server URL, "
            f"--server URL, --context NAME or -c FILE"
        )
    return connection_named(**own, config=None, connection=None)


def _wanted(left: Place, given: dict[str, Any]) -> Wanted:
    from nats_bridge_spark.diff.request import Wanted
    from nats_bridge_spark.diff.rules import named_by

    return Wanted(
        by=given["by"],
        like=given["like"],
        ignored_headers=tuple(name.encode() for name in given["ignored"]),
        allowed=frozenset(given["allowed"]),
        source=given["source"],
        rule=named_by(given, given["source"] or ("" if left.connection is None else left.name)),
        examples=given["examples"],
    )


def _write(result: Result, folder: str) -> None:
    from pyspark.errors import AnalysisException

    from nats_bridge_spark.errors import OptionError

    try:
        result.findings.write.parquet(folder)
    except AnalysisException as error:
        raise OptionError(f"--out {folder}: {str(error).splitlines()[0]}") from None


def _arguments() -> list[str]:
    """The command's arguments, without passwords."""
    words = sys.argv[sys.argv.index("diff") + 1 :] if "diff" in sys.argv else []
    return [_PASSWORD.sub("//…@", word) for word in words]


def _print(result: Result, given: dict[str, Any], seconds: float) -> None:
    from nats_bridge_spark.diff.summary import as_json, summary

    if given["as_json"]:
        click.echo(json.dumps({**as_json(result), "seconds": round(seconds, 3)}, indent=2))
    else:
        click.echo("\n".join(summary(result)))
    if given["report"] is not None:
        from nats_bridge_spark.diff.report import write_report

        for file in write_report(result, given["report"], _arguments()):
            click.echo(f"written: {file}", err=True)
