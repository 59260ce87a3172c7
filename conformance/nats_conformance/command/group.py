"""The commands of `nats-conform`. The bridge has them as `nats-bridge conform`."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from nats_conformance.catalogue.case import Level
from nats_conformance.catalogue.reading import read_catalogue, schema
from nats_conformance.catalogue.selection import select
from nats_conformance.command.progress import RunProgress
from nats_conformance.errors import ConformanceError, SubjectError
from nats_conformance.implementations.library_protocol import protocol_schema
from nats_conformance.raw_client import Credentials
from nats_transforms.tested_versions import LIVE_VERSIONS

_EXIT_GOOD, _EXIT_NO, _EXIT_USAGE, _EXIT_UNREACHABLE = 0, 1, 2, 3


class _Listed(click.ParamType[tuple[str, ...]]):
    """Splits `2.9.10,2.10` into a tuple."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(",") if part.strip())


_level_option = click.option(
    "--level",
    type=click.Choice([level.value for level in Level]),
    default=Level.OBSERVED.value,
    show_default=True,
    help="Only cases of at least this requirement level.",
)
_report_option = click.option(
    "--report", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write reports to this folder."
)
_cases_option = click.option(
    "--cases",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Also read your own cases from this folder.",
)


class ConformGroup(click.Group):
    """A group in which options without a command mean `run`, and a file without a command means `stream`."""

    def with_command(self, words: list[str]) -> list[str]:
        """Return the words of a command line with its implied command."""
        first = words[0] if words else "--help"
        if first in self.commands or first in ("-h", "--help", "--version"):
            return words
        if first.startswith("-"):
            return ["run", *words]
        return ["stream", *words] if first.endswith(".json") or Path(first).is_file() else words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of a command line; see `click.Group`."""
        return super().parse_args(ctx, self.with_command(args))


@click.group(cls=ConformGroup, no_args_is_help=True)
def conform() -> None:
    """Compare NATS servers, libraries and the bridge with a catalogue of cases, version by version.

    Give a stream configuration instead of a command to see what changes for that stream between two versions.

    \b
    Example:
      nats-conform run --versions 2.12.15,2.15.3 --subjects native --report report/
      nats-conform orders.json --from 2.9.10 --to 2.15.3
      nats-conform judge report/history.jsonl
    """


@conform.command("run")
@click.option(
    "--versions",
    type=_Listed(),
    metavar="V,…",
    help="Native servers to fetch and start: full versions, minor lines (for their newest patch), or paths of "
    f"your own builds, for example ./nats-server. [default: {','.join(LIVE_VERSIONS)}]",
)
@click.option("--server", metavar="URL", envvar="NATS_URL", help="Test a running server instead of starting some.")
@click.option(
    "--subjects",
    "kinds",
    type=_Listed(),
    metavar="KIND,…",
    help="Any of native, engine, bridge. [default: all that are installed]",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="COMMAND",
    help="A transform library. Repeatable. Without --subjects, the default ones are tested too.",
)
@click.option(
    "--bridge-dialect",
    default="native",
    show_default=True,
    metavar="V",
    help="The server version whose behaviour the bridge reproduces.",
)
@click.option(
    "--select", "patterns", multiple=True, metavar="ID…", help="Case ids, prefixes, or patterns with *. Repeatable."
)
@click.option(
    "--skip", "skipped", multiple=True, metavar="ID…", help="Cases to leave out, named as for --select. Repeatable."
)
@_level_option
@_cases_option
@click.option(
    "--expected-failures",
    "expected_failures",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A file with the ids of cases that fail, one per line. The exit code is 0 if exactly these fail.",
)
@_report_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def run_cases(ctx: click.Context, /, **given: Any) -> int:
    """Run the cases, and judge the results.

    You can run the cases on native servers, the engine, the bridge and libraries. Servers are fetched and started on
    this machine, on loopback.

    With --server, a running server is tested without harming it. Streams and subjects get unique names and are removed
    afterwards, and cases that could stop the server or affect other data are left out. The environment variable
    NATS_CREDS names a credentials file for the server, and SSL_CERT_FILE names a file with trusted certificate
    authorities.

    Exit codes: 0 all results are as expected, including known differences; 1 a case failed; 2 usage error or malformed
    case file; 3 a server is unavailable or unreachable, and all other results are reported.

    \b
    Example:
      nats-conform run --versions 2.9.10,2.10.27,2.15 --subjects native,engine --report report/
      nats-conform run --server nats://127.0.0.1:4222 --level must
      nats-conform run --library 'node adapter.js'
    """
    versions = given["versions"] or (() if given["server"] else LIVE_VERSIONS)
    if given["versions"] and ctx.get_parameter_source("server") == click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--versions starts servers, --server tests a running one; use only one of them", ctx)
    return _run(ctx, given, versions)


def _run(ctx: click.Context, given: dict[str, Any], versions: tuple[str, ...]) -> int:
    from nats_conformance.command.expected_failures import read_expected_failures, surprises
    from nats_conformance.command.plan import RunPlan, chosen_cases, found_servers
    from nats_conformance.command.whole_run import record
    from nats_conformance.history import read_history
    from nats_conformance.identity import KINDS
    from nats_conformance.implementations.bridge_process import missing_package
    from nats_conformance.reports import judged, write_reports

    kinds = given["kinds"] or KINDS
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise click.UsageError(f"--subjects: '{min(unknown)}' is none of {', '.join(KINDS)}", ctx)
    server = "" if given["versions"] else given["server"] or ""
    if "bridge" in kinds and not server and (missing := missing_package()):
        if given["kinds"]:
            raise click.UsageError(f"--subjects: the bridge is not installed: {missing}", ctx)
        kinds = tuple(kind for kind in kinds if kind != "bridge")
        click.echo(f"without the bridge: {missing}", err=True)
    plan = RunPlan(
        versions=versions,
        server=server,
        credentials=Credentials(creds=Path(creds) if (creds := os.environ.get("NATS_CREDS")) else None),
        kinds=kinds,
        level=Level(given["level"]),
        **{name: given[name] for name in ("libraries", "bridge_dialect", "patterns", "skipped", "cases")},
    )
    report: Path | None = given["report"]
    expected = read_expected_failures(given["expected_failures"]) if given["expected_failures"] else None
    cases = chosen_cases(plan)
    progress = RunProgress()
    with tempfile.TemporaryDirectory(prefix="nats-conform-report-") as temporary:
        folder = report or Path(temporary)
        history_file = folder / "history.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            history_file.write_bytes(b"")  # so that no older run is taken for this one
        except OSError as error:
            raise ConformanceError(f"--report {folder}: {error.strerror}") from None
        servers = found_servers(plan.versions, progress.say)
        interrupted = False
        try:
            asyncio.run(record(plan, cases, servers, history_file, progress))
        except KeyboardInterrupt:
            interrupted = True
            if not history_file.stat().st_size:
                raise
        result = judged(read_history(history_file), cases)
        if report is not None:
            for file in write_reports(result, folder):
                progress.say(f"written: {file}")
        _print(result, as_json=given["as_json"])
    if interrupted:
        raise KeyboardInterrupt
    if expected is not None and result.is_complete:
        found = surprises(result, expected)
        for line in found:
            click.echo(line, err=True)
        return _EXIT_NO if found else _EXIT_GOOD
    if not result.passed:
        only_missing = result.history.missing and not result.failures
        return _EXIT_UNREACHABLE if only_missing else _EXIT_NO
    return _EXIT_GOOD


def _print(result: Any, *, as_json: bool) -> None:
    from nats_conformance.reports.json_report import as_report
    from nats_conformance.reports.terminal import summary, wants_colour

    if as_json:
        click.echo(json.dumps(as_report(result), indent=2))
        return
    click.echo(summary(result, shutil.get_terminal_size().columns, wants_colour(sys.stdout, os.environ)))


@conform.command("stream")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE...",
)
@click.option(
    "--from", "older", default=LIVE_VERSIONS[0], show_default=True, metavar="V", help="The version before an upgrade."
)
@click.option("--to", "newer", default=LIVE_VERSIONS[-1], show_default=True, metavar="V", help="The version after it.")
@click.option(
    "--publish",
    multiple=True,
    metavar="SUBJECT",
    help="Show the result for a message on this subject. Repeatable. [default: an example of each subject]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def ask_about_streams(files: tuple[Path, ...], older: str, newer: str, publish: tuple[str, ...], as_json: bool) -> int:
    """Show what changes for your streams between server versions.

    FILE is a stream configuration in JSON: the configuration alone, or the output of `nats stream info --json`. For
    each version, the command starts a private server on loopback, creates the stream there with one replica, and
    publishes a message for each subject. It compares subjects, but not headers.

    Exit codes: 0 nothing changes; 1 something changes; 2 invalid file, or no version accepts the stream; 3 a server is
    unavailable.

    \b
    Example:
      nats-conform orders.json --from 2.9.10 --to 2.15.3
      nats-conform orders.json --from 2.10 --to 2.15 --publish orders.eu.1
    """
    from nats_conformance.command.plan import found_servers
    from nats_conformance.command.stream_question import answers, on_one_server, read_stream, reported, subjects_to_try

    configs = {file: read_stream(file) for file in files}
    servers = found_servers(tuple(dict.fromkeys((older, newer))), RunProgress().say)
    if servers.missing:
        raise SubjectError("\n".join(f"{version}: {reason}" for version, reason in servers.missing.items()))
    results: dict[str, Any] = {}
    changes, compared = False, True
    for file, whole in configs.items():
        config, remarks = on_one_server(whole)
        found = asyncio.run(answers(config, publish or subjects_to_try(config), servers.binaries))
        changes |= any(answer.lines != found[0].lines for answer in found)
        compared &= any(answer.is_accepted for answer in found)
        results[str(file)] = [answer.as_json() for answer in found]
        if not as_json:
            click.echo(reported(file, found, remarks))
    if as_json:
        click.echo(json.dumps(results, indent=2))
    if not compared:
        return _EXIT_USAGE
    return _EXIT_NO if changes else _EXIT_GOOD


@conform.command("list")
@click.argument("patterns", nargs=-1, metavar="[ID]...")
def list_cases(patterns: tuple[str, ...]) -> None:
    """List the cases.

    \b
    Example:
      nats-conform list adr28/headers
    """
    cases = select(read_catalogue(), patterns, Level.OBSERVED)
    width = max(len(case.id) for case in cases)
    for case in cases:
        click.echo(f"{case.id:<{width}}  {case.level:<8}  {case.title}")
    click.echo(f"{len(cases)} cases", err=True)


@conform.command("judge")
@click.argument("history", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@_report_option
@_cases_option
def judge_history(history: Path, report: Path | None, cases: Path | None) -> int:
    """Judge a recorded run again, without any server.

    \b
    Example:
      nats-conform judge report/history.jsonl --report again/
    """
    from nats_conformance.history import read_history
    from nats_conformance.reports import judged, write_reports

    known = read_catalogue() + (read_catalogue(cases) if cases else ())
    result = judged(read_history(history), known)
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
        write_reports(result, report)
    _print(result, as_json=False)
    return _EXIT_GOOD if result.passed else _EXIT_NO


@conform.command("site")
@click.argument("site", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.argument(
    "histories", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="[FILE]..."
)
@_cases_option
def make_site(site: Path, histories: tuple[Path, ...], cases: Path | None) -> None:
    """Add recorded runs to a static site.

    The site shows features by version, changes, every case, and all runs. DIR is also the archive of earlier runs, so
    give a copy of the published site, and publish it again afterwards.

    \b
    Example:
      nats-conform site public/ report/history.jsonl
    """
    from nats_conformance.reports.site import add_run, write_site

    known = read_catalogue() + (read_catalogue(cases) if cases else ())
    try:
        for history in histories:
            add_run(history, known, site)
        click.echo(write_site(site, known)[0])
    except OSError as error:
        raise ConformanceError(f"{error.filename or site}: {error.strerror}") from None


@conform.command("export")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
def export_cases(folder: Path) -> None:
    """Write the cases into a folder.

    DIR gets a YAML file for each clause, with the JSON schema, version, checksum and licence of the cases. It must be
    empty or not exist. The folder does not depend on nats-bridge, and `run --cases DIR` can read it.

    \b
    Example:
      nats-conform export cases/
    """
    from nats_conformance.catalogue.exporting import about, export

    try:
        cases = export(folder)
    except OSError as error:
        raise ConformanceError(f"{error.filename or folder}: {error.strerror}") from None
    click.echo(f"{folder}: {cases} cases, version {about()['version']}, {about()['license']}")


@conform.command("schema")
@click.option("--protocol", is_flag=True, help="Print the schema of the JSON-lines protocol for libraries instead.")
def case_schema(protocol: bool) -> None:
    """Print the JSON schema of case files.

    \b
    Example:
      nats-conform schema > cases.schema.json
      nats-conform schema --protocol > protocol.schema.json
    """
    click.echo(json.dumps(protocol_schema() if protocol else schema(), indent=2))
