"""`nats-bridge conform` as a person runs it: real servers, exit codes, what it says and what it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nats_bridge.cli import main
from nats_conformance.history import read_history
from nats_conformance.native_servers import NativeServer
from nats_conformance.raw_client import RawClient
from tests.live.processes import of_session
from tests.live.until import LIMIT, until

FEW = ("--select", "adr28/headers/order", "--select", "adr30/partition/no-separator/1")
T = TypeVar("T")


class Ran:
    """What the command printed and ended with."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def conform(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["conform", *map(str, arguments)])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)

    return call


@pytest.fixture
def server() -> Any:
    with NativeServer("2.15.3") as running:
        yield running


def asked(server: NativeServer, question: Callable[[RawClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        client = await RawClient.connect(server.url)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(ask())


def test_a_few_cases_on_servers_engine_and_bridge(conform: Callable[..., Ran], tmp_path: Path) -> None:
    ran = conform("--versions", "2.15.3", *FEW, "--report", tmp_path / "report")
    assert ran.code == 0, ran.out + ran.err
    for label in ("native 2.15.3", "engine 2.15.3", "bridge 2.15.3"):
        assert label in ran.out
        assert f"{label}: " in ran.err
    history = read_history(tmp_path / "report" / "history.jsonl")
    assert history.is_complete
    assert len(history.subjects) == 3
    assert {file.name for file in (tmp_path / "report").iterdir()} == {
        "badge.json",
        "history.jsonl",
        "report.json",
        "junit.xml",
        "report.md",
        "index.html",
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_servers_and_judges_what_was_played(number: signal.Signals, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'trap "" INT; exec "$@"', "in-a-script-s-background"),
        *(sys.executable, "-m", "nats_bridge", "conform", "--versions", "2.15.3", "--subjects", "native"),
        *("--report", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    history = tmp_path / "history.jsonl"
    await until(lambda: history.exists() and b'"case"' in history.read_bytes())
    assert len(of_session(process.pid)) >= 2, "the command and its servers, of which cases can have their own"
    process.send_signal(number)
    async with asyncio.timeout(LIMIT):
        out, _ = await process.communicate()
    assert (process.returncode, b"PARTIAL" in out) == (128 + number, True), out
    assert not of_session(process.pid)
    assert not await asyncio.to_thread(lambda: list(tmp_path.glob("nats-*")))


def test_a_history_is_judged_again(conform: Callable[..., Ran], tmp_path: Path) -> None:
    ran = conform("--versions", "2.9.10,2.15.3", "--subjects", "native,engine", *FEW, "--report", tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert len(read_history(tmp_path / "history.jsonl").subjects) == 4
    again = conform("judge", tmp_path / "history.jsonl")
    assert again.code == 0
    assert "PASSED" in again.out


def test_the_result_for_programs(conform: Callable[..., Ran]) -> None:
    ran = conform("--versions", "2.10.27", "--subjects", "native,engine", *FEW, "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["passed"] is True
    assert {verdict["outcome"] for verdict in report["verdicts"]} <= {"pass", "observed difference", "not applicable"}


def test_a_history_cut_short_is_a_partial_report(conform: Callable[..., Ran], tmp_path: Path) -> None:
    conform("--versions", "2.10.27", "--subjects", "engine", *FEW, "--report", tmp_path)
    history = tmp_path / "history.jsonl"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:-1]))
    ran = conform("judge", history)
    assert ran.code == 1
    assert "cut short" in ran.out


def test_a_version_that_cannot_be_had(conform: Callable[..., Ran], tmp_path: Path) -> None:
    ran = conform("--versions", "2.10.27,2.13", "--subjects", "engine", *FEW, "--report", tmp_path)
    assert ran.code == 3
    assert "2.13" in ran.err
    assert "2.13 is missing" in ran.out
    assert "engine 2.10.27" in ran.out
    alone = conform("--versions", "2.13", *FEW)
    assert alone.code == 3
    assert "2.13" in alone.err


def test_a_running_server_is_left_as_it_was(conform: Callable[..., Ran], server: NativeServer, tmp_path: Path) -> None:
    config = {"name": "MINE", "subjects": ["in.>"], "storage": "memory"}
    asked(server, lambda client: client.api("STREAM.CREATE.MINE", config))
    before = asked(server, lambda client: client.api("STREAM.INFO.MINE"))["state"]
    ran = conform("--server", server.url, "--select", "adr28/headers", "--select", "adr36/kv", "--report", tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert "native 2.15.3" in ran.out
    assert "skipped" in ran.out, "buckets have subjects of their own, which cannot be moved"
    assert asked(server, lambda client: client.api("STREAM.NAMES"))["streams"] == ["MINE"]
    assert asked(server, lambda client: client.api("STREAM.INFO.MINE"))["state"] == before
    assert asked(server, lambda client: client.api("INFO"))["streams"] == 1


def test_a_server_with_a_subscriber_of_everything(
    conform: Callable[..., Ran], server: NativeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no server answers "no responders", where no stream stores a message."""
    monkeypatch.setenv("NATS_URL", server.url.replace("//", "//user@"))

    async def listening(client: RawClient) -> Ran:
        await client.subscribe(b">")
        return await asyncio.to_thread(conform, "--select", "adr30/dollar/in-function/1")

    ran = asked(server, listening)
    assert ran.code == 0, ran.out + ran.err
    assert f"the running server {server.url}" in ran.out, "what NATS_URL names is said"
    assert f"native 2.15.3: the running server at {server.url}" in ran.err


def test_an_account_with_limits(conform: Callable[..., Ran]) -> None:
    account = "{jetstream: {max_mem: 0, max_file: 1048576, max_streams: 1}, users: [{user: me, password: secret}]}"
    with NativeServer("2.15.3", config=f"accounts {{ A {account} }}") as limited:
        url = limited.url.replace("//", "//me:secret@")
        ran = conform("--server", url, "--select", "adr28/headers/order", "--select", "adr28/validation")
        assert ran.code == 0, ran.out + ran.err
        assert "skipped" in ran.out
        nothing = conform("--server", url, "--select", "adr28/headers/order")
        assert (nothing.code, "no case was played" in nothing.out) == (1, True)
    assert "secret" not in ran.out + ran.err + nothing.out + nothing.err


def test_a_folder_that_cannot_be_written(conform: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = conform("--versions", "2.15.3", *FEW, "--report", tmp_path / "file" / "report")
    assert ran.code == 2
    assert ran.err.startswith("--report ")


def test_no_server_at_the_address(conform: Callable[..., Ran], server: NativeServer) -> None:
    server.stop()
    ran = conform("--server", server.url.replace("//", "//me:secret@"), *FEW)
    assert ran.code == 3
    assert "secret" not in ran.err
    assert ran.err.count("\n") == 1, "said once"
    assert f"no server answers at {server.url} (connection refused): check the address" in ran.err


def test_what_versions_make_of_a_configuration(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    republish = {"src": "orders.>", "dest": "mon.>"}
    config = {
        "subjects": ["orders.>"],
        "republish": republish,
        "subject_transform": {"src": "orders.*", "dest": "p.$1"},
    }
    file.write_text(json.dumps({"config": {"name": "ORDERS", **config}}))
    ran = conform("stream", file, "--from", "2.9.10", "--to", "2.15.3", "--publish", "orders.1", "--publish", "x")
    assert ran.code == 1
    assert ran.out.startswith(f"{file}: changes between 2.9.10 and 2.15.3\n")
    said = [line.split(maxsplit=1) if line[:1] != " " else ["", line.strip()] for line in ran.out.splitlines()[2:]]
    assert said[0] == ["2.9.10", "accepted"]
    assert ["", "orders.1: stored as orders.1; republished as mon.1"] in said
    assert any("silently ignores subject_transform" in line[1] for line in said)
    assert said[-3] == ["2.15.3", "accepted"]
    assert said[-2:] == [["", "orders.1: stored as p.1"], ["", "x: no stream takes it"]]
    answers = json.loads(conform("stream", file, "--from", "2.9.10", "--to", "2.15.3", "--json").out)[str(file)]
    assert [(answer["version"], answer["ignored"]) for answer in answers] == [
        ("2.9.10", ["subject_transform"]),
        ("2.15.3", []),
    ]


def test_what_came_between_versions_and_concerns_a_stream(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    config = {"name": "SUMS", "allow_msg_counter": True, "sources": [{"name": "CLICKS"}], "subjects": ["sums.>"]}
    file.write_text(json.dumps(config))
    said = conform("stream", file, "--from", "2.10.27", "--to", "2.15.3").out.splitlines()
    beginning = said.index("what came in between, and concerns this stream (docs/versions.md):")
    assert said[1] == "played without CLICKS, so copies are not compared"
    assert "ignores allow_msg_counter" in said[4]
    assert [line.split(":")[0].split(maxsplit=1) for line in said[beginning + 1 :]] == [
        ["2.12", "Counters"],
        ["2.14", "Sources of work queues"],
        ["2.15", "Identity of sources"],
    ]
    (old, new) = json.loads(conform("stream", file, "--from", "2.10.27", "--to", "2.15.3", "--json").out)[str(file)]
    assert old["brings"] == []
    assert [(each["since"], each["feature"]) for each in new["brings"]] == [
        ("2.12", "Counters"),
        ("2.14", "Sources of work queues"),
        ("2.15", "Identity of sources"),
    ]


def test_a_stream_for_which_nothing_changes(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text('{"name": "S", "subjects": ["in.*.>"]}')
    ran = conform(file, "--from", "2.10.27", "--to", "2.15.3")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{file}: nothing changes between 2.10.27 and 2.15.3\n")
    assert "in.a.b: stored as in.a.b" in ran.out


def test_a_refused_configuration(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text('{"name": "S", "subjects": ["in.>"], "republish": {"src": "in.>", "dest": "in.>"}}')
    ran = conform("stream", file, "--from", "2.15.3", "--to", "2.15.3")
    assert ran.code == 2
    assert "refused: 10052 stream configuration for republish destination forms a cycle" in ran.out

    ran = conform("stream", file, "--from", "2.12.15", "--to", "2.15.3")
    assert ran.code == 2
    assert f"{file}: nothing was compared, because no version from 2.12.15 to 2.15.3 accepts it\n" in ran.out


# Configurations as people keep them in public repositories, with other names:
# events: every member spelled out for `nats stream add --config`, for a cluster. Two members have names that no server
#   knows, and both transforms have wildcards in the place of functions, so no server takes them.
# inbox: set up by a script of a chat with several sites. Its source renames what the other site's outbox has, into
#   subjects that the stream also takes itself.
# mirror: copies a stream of another account by way of an imported API, and keeps the copies for an hour.
STREAMS = Path(__file__).parents[2] / "data" / "streams"


@pytest.mark.parametrize(
    ("name", "code", "lines"),
    [
        (
            "events",
            2,
            [
                "nothing was compared, because no version from 2.9.10 to 2.15.3 accepts it",
                "played on one server, with num_replicas 1 instead of 3",
                "played on one server, without placement",
                "",
                "2.9.10              refused: 10052 stream configuration for republish not valid",
                '2.15.3              refused: 10025 invalid JSON: json: unknown field "allow_atomic_publish"',
                "                    without allow_atomic_publish, allow_batch_publish:",
                "                    refused: 10156 stream transform: invalid subject",
            ],
        ),
        (
            "inbox",
            1,
            [
                "changes between 2.9.10 and 2.15.3",
                "played without OUTBOX_site-a, so copies are not compared",
                "",
                "2.9.10              accepted",
                "                    ignored: sources[0].subject_transforms",
                "                    beware: the server silently ignores sources.subject_transforms: everything is "
                "sourced, unfiltered and untransformed",
                "                    chat.inbox.site-b.a: stored as chat.inbox.site-b.a",
                "                    chat.inbox.site-b.aggregate.a: stored as chat.inbox.site-b.aggregate.a",
                "2.15.3              accepted",
                "                    chat.inbox.site-b.a: stored as chat.inbox.site-b.a",
                "                    chat.inbox.site-b.aggregate.a: stored as chat.inbox.site-b.aggregate.a",
            ],
        ),
        (
            "mirror",
            0,
            [
                "nothing changes between 2.9.10 and 2.15.3",
                "played on one server, with num_replicas 1 instead of 2",
                "played without east_to_west_orders, so copies are not compared",
                "",
                "2.9.10 … 2.15.3     accepted",
            ],
        ),
    ],
)
def test_streams_of_others(conform: Callable[..., Ran], name: str, code: int, lines: list[str]) -> None:
    file = STREAMS / f"{name}.json"
    ran = conform(file, "--from", "2.9.10", "--to", "2.15.3")
    said = ran.out.splitlines()
    assert (ran.code, said[: len(lines) + 1]) == (code, [f"{file}: {lines[0]}", *lines[1:], ""])
    assert said[len(lines) + 1] == "what came in between, and concerns this stream (docs/versions.md):"


def test_members_that_a_version_does_not_know(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text('{"name": "S", "subjects": ["in.a"], "allow_batch_publish": false}')
    ran = conform(file, "--from", "2.15.3", "--to", "2.15.3")
    assert ran.code == 0, ran.err
    assert "without allow_batch_publish:\n                    accepted\n" in ran.out
    ((answer,),) = json.loads(conform("stream", file, "--from", "2.15.3", "--to", "2.15.3", "--json").out).values()
    assert (answer["refused"]["err_code"], answer["without"], answer["then"]) == (10025, ["allow_batch_publish"], None)


def test_a_stream_with_replicas_and_an_example_that_is_republished(conform: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    republish = {"src": "orders.*.*", "dest": "mon.{{wildcard(2)}}"}
    config = {"name": "S", "subjects": ["orders.>"], "num_replicas": 3, "republish": republish}
    file.write_text(json.dumps(config))
    ran = conform("stream", file, "--from", "2.12.15", "--to", "2.15.3")
    assert ran.code == 0, ran.out
    assert "\nplayed on one server, with num_replicas 1 instead of 3\n" in ran.out
    assert "orders.a.b: stored as orders.a.b; republished as mon.b" in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--select", "adr28/nothing/of/that/kind"], "no case has such an id"),
        (["--versions", "2.10.27", "--server", "nats://127.0.0.1:1"], "use only one of them"),
        (["--subjects", "native,everything"], "'everything' is none of native, engine, bridge"),
        (["nothing.json"], "'nothing.json' does not exist"),
    ],
)
def test_usage(conform: Callable[..., Ran], arguments: list[str], said: str) -> None:
    ran = conform(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("clause: x\ncases:\n  - id: adr28/a/1\n    titel: typo\n", ":4:", "titel"),
        ("clause: x\ncases: [\n", ":3:", "not valid YAML"),
    ],
)
def test_a_malformed_case_file(conform: Callable[..., Ran], tmp_path: Path, text: str, place: str, said: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    ran = conform("--versions", "2.10.27", "--cases", tmp_path)
    assert ran.code == 2
    assert f"{file}{place}" in ran.err
    assert said in ran.err


def test_cases_of_ones_own(conform: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "clause: our rules\n"
        "cases:\n"
        "  - id: native/ours/1\n"
        "    title: Orders go to their partition\n"
        "    level: must\n"
        '    transform: {src: in.*, dest: "out.{{partition(3,1)}}"}\n'
        "    expect: {results: {in.a: out.9}}\n"
    )
    ran = conform("--versions", "2.10.27", "--subjects", "native", "--cases", tmp_path, "--select", "native/ours/1")
    assert ran.code == 1
    assert "expected out.9" in ran.out


def test_the_list_of_cases(conform: Callable[..., Ran]) -> None:
    ran = conform("list", "adr28/headers/order/1")
    assert ran.code == 0
    assert ran.out.startswith("adr28/headers/order/1  must  ")
