"""Dead letters go back on their original subjects, each once, whatever ends the redrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.cli.connection_options import known_connections
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.errors import RuleRefusedError
from nats_bridge.jobs.redrive import redriving
from nats_bridge.jobs.redrive.journal import JOURNAL, Journal
from nats_bridge.jobs.redrive.redriving import RedriveRequest, RedriveResult
from nats_bridge.kinds.advisories.advisory import Advisory, advisory_block, attached_block
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from tests.live.advisories.test_advisories_rule import dead_letters, holds, terminate
from tests.live.commands import command_here
from tests.live.creation_times import CHANGE_IT, change_creation_time
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until


class Scene:
    """A stream with messages, and a stream with a dead letter of each of them."""

    def __init__(self, url: str, peer: RawPeer, name: str) -> None:
        self.url, self.peer, self.name = url, peer, name
        self.letters = f"{name}dlq"

    @classmethod
    async def make(cls, url: str, peer: RawPeer, name: str, **config: Any) -> Scene:
        here = cls(url, peer, name)
        config = {"storage": "memory", **config}
        await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"], **config})
        await peer.create_stream(name=here.letters, subjects=[f"dlq.{name}.>"], storage=config["storage"])
        return here

    def advisory(self, sequence: int, consumer: str = "workers", reason: str = "") -> Advisory:
        advisory = {
            "type": "io.nats.jetstream.advisory.v1.max_deliver",
            "id": f"{consumer}-{sequence}",
            "timestamp": "2026-11-24T00:00:00Z",
            "stream": self.name,
            "consumer": consumer,
            "stream_seq": sequence,
            "deliveries": 5,
            "reason": reason,
        }
        return Advisory.read(
            f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.name}.{consumer}".encode(), json.dumps(advisory).encode()
        )

    async def given_up(self, count: int, *, consumer: str = "workers", reason: str = "", timed: bool = True) -> None:
        """Store messages `1`, `2`, … and their dead letters."""
        for number in range(1, count + 1):
            subject = f"{self.name}.{number % 3}".encode()
            stored = await self.peer.store(subject, b"%d" % number, b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number)
            message = StoredMessage(
                subject, b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number, b"%d" % number, stored["seq"], number
            )
            block = attached_block(self.advisory(stored["seq"], consumer, reason), message, timed=timed)
            await self.peer.store(f"dlq.{self.name}.{consumer}".encode(), message.payload, block)

    async def redrive(self, **more: Any) -> RedriveResult:
        settings, _ = known_connections(server=self.url, config=None)
        return await redriving.redrive(settings, RedriveRequest(self.letters, **more), asyncio.Event())

    async def messages(self) -> list[StoredMessage]:
        state = (await self.peer.api(f"STREAM.INFO.{self.name}"))["state"]
        return await stored_messages(self.peer, self.name, state["messages"])

    async def put_back(self, before: int) -> list[int]:
        """The numbers of what was put back behind so many first messages, in order."""
        return [int(message.payload) for message in (await self.messages())[before:]]


def header(message: StoredMessage, name: str) -> bytes | None:
    return header_block.read(message.header_block, name.encode())


async def test_what_a_consumer_gave_up_comes_back_once(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("redrive"))
    for number in range(3):
        await here.peer.store(f"{here.name}.{number}".encode(), b"%d" % number, b"NATS/1.0\r\nA: %d\r\n\r\n" % number)
    async with running(settings_for(url, dead_letters(here.name))):
        await terminate(here.peer, here.name, 3)
        await until(lambda: holds(here.peer, here.letters, 3))
    shown = await command_here("redrive", here.letters, "--server", url)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == f"{here.letters} holds 3 dead letters"
    assert shown.out.splitlines()[-1] == "would put back 3; --apply does it"
    assert len(await here.messages()) == 3
    done = await command_here("redrive", here.letters, "--server", url, "--apply")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "put back 3"
    messages = await here.messages()
    assert [(one.subject, one.payload, header(one, "A")) for one in messages[3:]] == [
        (one.subject, one.payload, header(one, "A")) for one in messages[:3]
    ]
    assert all(header_block.read(one.header_block, b"Nats-Bridge-Consumer") is None for one in messages)
    again = await command_here("redrive", here.letters, "--server", url, "--apply")
    assert again.code == 0, again.err
    assert "already put back: 3\nput back 0\n" in again.out
    assert len(await here.messages()) == 6


@pytest.mark.parametrize("version", CHANGE_IT)
async def test_another_creation_time_of_the_letters(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        here = await Scene.make(server.url, await raw_peer(server.url), "S", storage="file")
        await here.given_up(6)
        assert (await here.redrive(apply=True, most=3)).beyond == 3
        for before in (3, 6):  # the second time, its records name what the first one saw
            here.peer = await change_creation_time(server, raw_peer, here.letters)
            await here.redrive(apply=True)
            assert sorted(await here.put_back(6)) == [1, 2, 3, 4, 5, 6], before
        await here.peer.recreate_stream(here.letters)
        await here.given_up(6)
        assert (await here.redrive(apply=True)).done == 0
        assert sorted(await here.put_back(18)) == [1, 2, 3, 4, 5, 6]


async def test_filters_and_the_most(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("filters"))
    await here.given_up(6, reason="No such customer")
    await here.given_up(6, consumer="billing")
    result = await here.redrive(apply=True, consumer="workers", subject=f"{here.name}.1", most=1)
    assert (result.redriven, result.beyond) == (1, 1)
    assert await here.put_back(12) == [1]
    result = await here.redrive(apply=True, consumer="billing")
    assert await here.put_back(13) == [1, 2, 3, 4, 5, 6]
    assert result.redriven == 6
    assert (await here.redrive(apply=True)).good
    assert await here.put_back(19) == [2, 3, 4, 5, 6]


async def test_a_message_that_two_consumers_gave_up_comes_back_once(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("twins"))
    await here.given_up(1)
    (stored,) = await here.messages()
    block = attached_block(here.advisory(1, "billing"), StoredMessage(stored.subject, b"", b"1", 1, 1), timed=True)
    await here.peer.store(f"dlq.{here.name}.billing".encode(), b"1", block)
    result = await here.redrive(apply=True)
    assert (len(result.letters), result.done) == (1, 1)
    assert await here.put_back(1) == [1]
    assert (await here.redrive(apply=True, consumer="billing")).letters == []


async def test_what_cannot_go_back_says_why(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    name = unique_name("obstacles")
    transform = {"src": f"{name}.>", "dest": f"{name}.in.>"}
    here = await Scene.make(url, await raw_peer(url), name, subject_transform=transform)
    await here.given_up(1)
    stray = attached_block(here.advisory(5), StoredMessage(f"{name}x.a".encode(), b"", b"", 5, 5), timed=True)
    await here.peer.store(f"dlq.{name}.w".encode(), b"", stray)
    own = attached_block(here.advisory(6), StoredMessage(f"dlq.{name}.a".encode(), b"", b"", 6, 6), timed=True)
    await here.peer.store(f"dlq.{name}.w".encode(), b"", own)
    await here.peer.store(f"dlq.{name}.w".encode(), b"something else")
    alone = here.advisory(7)
    await here.peer.store(f"dlq.{name}.w".encode(), alone.payload, advisory_block(alone, note="gone"))
    ran = await command_here("redrive", here.letters, "--server", url, "--apply")
    assert ran.code == 1
    assert "no stream that answers takes its subject" in ran.out
    assert f"stream {name} transforms its subject at the ingress" in ran.out
    assert "the dead letters' own stream takes its subject" in ran.out
    assert "its dead letter does not hold the message" in ran.out
    assert f"{here.letters} holds 4 dead letters\n" in ran.out


async def test_a_rejected_copy_does_not_go_to_the_source_that_has_it(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    name = unique_name("rejected")
    here = await Scene.make(url, await raw_peer(url), name, max_msg_size=1000)
    source = f"{name}src"
    await here.peer.create_stream(name=source, subjects=[f"{source}.>"], storage="memory")
    rule = {
        "name": name,
        "kind": "sources",
        "stream": name,
        "sources": [{"name": source, "subject_transforms": [{"src": f"{source}.>", "dest": f"{name}.>"}]}],
        "on_rejected": {"skip": f"dlq.{name}.copies"},
    }
    await here.peer.store(f"{source}.a".encode(), b"x" * 2000)
    async with running(settings_for(url, rule)):
        await until(lambda: holds(here.peer, here.letters, 1))
    result = await here.redrive(apply=True)
    assert [group.outcome for group in result.groups] == [
        f"stream {source} has it already: it is the source of the rule that could not copy it"
    ]
    assert (await here.peer.api(f"STREAM.INFO.{source}"))["state"]["messages"] == 1


async def test_a_rejected_copy_goes_to_the_stream_that_takes_its_subject(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("copy"))
    block = (
        b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: rejected-r-X-7-0f\r\nNats-Stream: X\r\nNats-Subject: %b.a\r\n"
        b"Nats-Sequence: 7\r\nNats-Bridge-Rejected: too large (10054)\r\n\r\n"
    )
    await here.peer.store(f"dlq.{here.name}.copies".encode(), b"1", block % here.name.encode())
    assert (await here.redrive(apply=True)).good
    assert [(one.subject, header(one, "A")) for one in await here.messages()] == [(f"{here.name}.a".encode(), b"1")]


class KilledError(Exception):
    """Stands for kill -9: nothing after it runs."""


KILLS = [(append, when) for append in range(1, 5) for when in ("before", "after")]


@pytest.mark.parametrize(("append", "when"), KILLS, ids=[f"{when}-{append}" for append, when in KILLS])
@pytest.mark.parametrize("window", ["long", "short"])
async def test_a_kill_around_each_record_doubles_and_loses_nothing(
    window: str,
    append: int,
    when: str,
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a short duplicate window, ids are forgotten by the time of the next redrive: the content decides."""
    url = await servers.url(newest_version)
    more = {"duplicate_window": 100_000_000} if window == "short" else {}
    here = await Scene.make(url, await raw_peer(url), unique_name("kill"), **more)
    await here.given_up(9)
    monkeypatch.setattr(redriving, "LARGEST", 3)
    appended, real = 0, Journal.append

    async def killing(self: Journal, **what: Any) -> None:
        nonlocal appended
        appended += 1
        if appended == append and when == "before":
            raise KilledError
        await real(self, **what)
        if appended == append:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", killing)
        with pytest.raises(KilledError):
            await here.redrive(apply=True)
    if window == "short":
        await asyncio.sleep(0.2)  # no event: the server forgets ids by its clock
    result = await here.redrive(apply=True)
    assert result.good
    assert await here.put_back(9) == list(range(1, 10))
    assert (await here.redrive(apply=True)).letters == []


async def test_a_work_queue_that_processed_everything_leaves_a_doubt(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored and processed leaves no trace once ids are forgotten: it is reported, and sent only on demand."""
    url = await servers.url(newest_version)
    name = unique_name("queue")
    here = await Scene.make(
        url, await raw_peer(url), name, retention="workqueue", duplicate_window=100_000_000, allow_direct=True
    )
    await here.given_up(3)
    await here.peer.api(f"STREAM.PURGE.{name}")
    real = Journal.append

    async def killed_at_the_end(self: Journal, **what: Any) -> None:
        if what.get("begin") is None:
            raise KilledError
        await real(self, **what)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", killed_at_the_end)
        with pytest.raises(KilledError):
            await here.redrive(apply=True)
    await here.peer.api(f"STREAM.PURGE.{name}")  # as consumers that acknowledge do
    await asyncio.sleep(0.2)  # no event: the server forgets ids by its clock
    shown = await here.redrive()
    assert shown.unsettled == 3
    result = await here.redrive(apply=True)
    assert (sorted(result.doubtful), result.redriven, result.good) == ([1, 2, 3], 0, False)
    again = await here.redrive(apply=True)
    assert (again.doubtful_before, again.good) == (3, False)
    assert (await here.peer.api(f"STREAM.INFO.{name}"))["state"]["messages"] == 0
    await here.redrive(apply=True, resend_doubtful=True)
    assert (await here.peer.api(f"STREAM.INFO.{name}"))["state"]["messages"] == 3
    assert (await here.redrive(apply=True)).good


async def test_two_redrives_at_once(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("two"))
    await here.given_up(30)
    monkeypatch.setattr(redriving, "LARGEST", 1)
    ended = await asyncio.gather(*(here.redrive(apply=True) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, RedriveResult | RuleRefusedError) for one in ended), ended
    while not (await here.redrive(apply=True)).good:
        pass
    assert sorted(await here.put_back(30)) == list(range(1, 31))


async def test_a_second_redrive_ends_before_it_publishes(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one puts everything back while the first one is about to write what it begins."""
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("second"), duplicate_window=100_000_000)
    await here.given_up(3)
    real, others = Journal.append, list[RedriveResult]()

    async def late(self: Journal, **what: Any) -> None:
        if not others:
            monkeypatch.setattr(Journal, "append", real)
            others.append(await here.redrive(apply=True))
            await asyncio.sleep(0.2)  # no event: the server forgets ids by its clock
        await real(self, **what)

    monkeypatch.setattr(Journal, "append", late)
    with pytest.raises(RuleRefusedError, match="another redrive of it runs"):
        await here.redrive(apply=True)
    assert others[0].good
    assert await here.put_back(3) == [1, 2, 3]


async def redriving_process(url: str, stream: str, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nats_bridge", "redrive", stream, "--server", url, "--apply", *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


LETTERS, KILLS_9 = int(os.environ.get("REDRIVE_LETTERS", "1000")), int(os.environ.get("REDRIVE_KILLS", "2"))


@pytest.mark.unstoppable
async def test_kill_9_at_any_moment(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand with REDRIVE_LETTERS=100000 REDRIVE_KILLS=20, and --timeout 3600."""
    monkeypatch.setattr("tests.live.until.LIMIT", max(LIMIT, LETTERS / 50))
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("kill9"))
    await here.given_up(LETTERS)
    for kill in range(1, KILLS_9 + 1):
        process = await redriving_process(url, here.letters)
        least = LETTERS + LETTERS * kill // (KILLS_9 + 2)
        await until(lambda least=least: holds(here.peer, here.name, least))  # type: ignore[misc]
        with contextlib.suppress(ProcessLookupError):  # it was faster than this test
            process.kill()
        await process.communicate()
    process = await redriving_process(url, here.letters)
    out, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"put back" in out
    assert await here.put_back(LETTERS) == list(range(1, LETTERS + 1))


async def test_a_signal_finishes_what_is_in_flight_and_the_next_one_resumes(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("signal"))
    await here.given_up(20)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = len(await here.messages())
        process = await redriving_process(url, here.letters, "--rate", "1")
        await until(lambda before=before: holds(here.peer, here.name, before + 1))  # type: ignore[misc]
        process.send_signal(number)
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate()
        assert process.returncode == code, err
        assert out.decode().endswith("interrupted by a signal; the same command resumes\n")
    shown = await here.redrive()
    assert shown.unsettled == 0
    assert (await here.redrive(apply=True)).good
    assert await here.put_back(20) == list(range(1, 21))


FULL = "accounts {{ A {{ jetstream: {{{limit}: 1MB}}, users: [ {{user: a, password: a}} ] }} }}\nno_auth_user: a\n"


async def fill(peer: RawPeer, storage: str) -> None:
    """Use up what the account may store."""
    await peer.create_stream(name="FILL", subjects=["fill"], storage=storage)
    for size in (100_000, 1_000, 10):
        while "error" not in await peer.store(b"fill", b"x" * size):
            pass


async def test_a_full_stream_ends_it_and_the_next_one_resumes(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("full"), max_msgs=4, discard="new")
    await here.given_up(3)
    ran = await command_here("redrive", here.letters, "--server", url, "--max", "2", "--apply")
    said = f"put back 1\ninterrupted by stream {here.name}: maximum messages exceeded; the same command resumes\n"
    assert (ran.code, ran.out.endswith(said)) == (1, True), ran
    await here.peer.api(f"STREAM.PURGE.{here.name}", {"keep": 1})
    ran = await command_here("redrive", here.letters, "--server", url, "--max", "2", "--apply")
    assert (ran.code, ran.out.endswith("put back 2\n")) == (0, True), ran
    assert await here.put_back(1) == [2, 3]


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_a_full_account_ends_it_with_nothing_in_doubt(
    retention: str, newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Nothing was stored, also where a consumer reads the queue at the same time and ids are forgotten."""
    async with native_server(newest_version, config=FULL.format(limit="max_mem")) as server:
        peer = await raw_peer(server.url)
        here = await Scene.make(server.url, peer, "T", retention=retention, duplicate_window=100_000_000)
        await here.given_up(3)
        await fill(peer, "memory")
        result = await here.redrive(apply=True)
        assert result.interrupted == "by stream T: resource limits exceeded for account"
        await peer.api("STREAM.DELETE.FILL")
        await peer.api("STREAM.PURGE.T")
        result = await here.redrive(apply=True)
        assert (result.unsettled, result.good) == (0, True)
        assert (await peer.api("STREAM.INFO.T"))["state"]["messages"] == 3


async def test_an_account_that_takes_no_record_ends_it(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version, config=FULL.format(limit="max_file")) as server:
        peer = await raw_peer(server.url)
        here = await Scene.make(server.url, peer, "T")
        await here.given_up(3)
        await peer.create_stream(name=JOURNAL, subjects=[f"{JOURNAL}.>"], storage="file")
        await fill(peer, "file")
        with pytest.raises(RuleRefusedError, match="stores no record: resource limits exceeded for account"):
            await here.redrive(apply=True)
        assert await here.put_back(3) == []
        await peer.api("STREAM.DELETE.FILL")
        assert (await here.redrive(apply=True)).good
        assert await here.put_back(3) == [1, 2, 3]


PENDING = b'{"stream":"T","seq":0,"duplicate":true}'
IN_PROCESS = (
    b'{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"T","seq":0}'
)
TOO_LARGE = b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"T"}'


@pytest.mark.parametrize("is_stored", [False, True], ids=["lost", "stored"])
@pytest.mark.parametrize("answer", [PENDING, IN_PROCESS, b"+OK"], ids=["pending", "in-process", "stranger"])
async def test_an_answer_that_leaves_open_what_is_stored_makes_it_look(
    answer: bytes,
    is_stored: bool,
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id that is only pending may be stored, or is lost with its leader; the window forgets ids at once."""
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("open"), duplicate_window=100_000_000)
    await here.given_up(3)
    recorded(monkeypatch, f"{here.name}.".encode(), [answer], is_stored=is_stored)
    assert not (await here.redrive(apply=True)).good
    result = await here.redrive(apply=True)
    assert (result.unsettled, result.good) == (3, True)
    assert await here.put_back(3) == [1, 2, 3]


async def test_what_a_stream_rejects_after_it_may_have_stored_it_is_in_doubt(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("late"), retention="workqueue")
    await here.given_up(1)
    await here.peer.api(f"STREAM.PURGE.{here.name}")
    real = redriving.Redriving._ids_since

    async def read(self: redriving.Redriving, stream: Any, floor: int) -> tuple[set[bytes], bool]:
        ids, _ = await real(self, stream, floor)
        return ids, True  # as where consumers have removed what was stored

    monkeypatch.setattr(redriving.Redriving, "_ids_since", read)
    recorded(monkeypatch, f"{here.name}.".encode(), [PENDING, TOO_LARGE], is_stored=False)
    assert not (await here.redrive(apply=True)).good
    result = await here.redrive(apply=True)
    assert (result.doubtful, result.refused, result.redriven) == ([1], {}, 0)


def recorded(monkeypatch: pytest.MonkeyPatch, subjects: bytes, answers: list[bytes], *, is_stored: bool) -> None:
    """The first publications of each subject get recorded answers; those that are not to be stored are dropped."""
    sent, real = Counter[tuple[bytes, bytes]](), RawRequests.send

    def send(self: RawRequests, subject: bytes, block: bytes, payload: bytes, *more: Any) -> asyncio.Future[Any]:
        which = sent[subject, payload]
        sent[subject, payload] += 1
        if not subject.startswith(subjects) or which >= len(answers):
            return real(self, subject, block, payload, *more)
        if is_stored:
            real(self, subject, block, payload, *more)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result((b"_INBOX.1", b"", b"", answers[which]))
        return answer

    monkeypatch.setattr(RawRequests, "send", send)


async def test_the_printed_permissions_are_enough(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    options = ("--server", "nats://127.0.0.1:1", "--subject", "T.>")
    printed = await command_here("--permissions", "redrive", "DLQ", *options)
    assert printed.code == 0, printed.err
    block = printed.out.partition("permissions:")[2]
    few = f"{{ user: few, password: few, permissions: {block} }}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}\n"
    (tmp_path / "password").write_text("few", "utf-8")
    async with native_server(newest_version, config=users) as server:
        peer = await raw_peer(server.url.replace("://", "://all:all@"))
        await peer.create_stream(name="DLQ", subjects=["dlq.T.>"], storage="memory")
        await peer.create_stream(name="T", subjects=["T.>"], storage="memory")
        here = Scene(server.url, peer, "T")
        await here.given_up(2)
        config = tmp_path / "bridge.yaml"
        config.write_text(
            f"connections: {{default: {{servers: ['{server.url}'], user: few, password_file: password}}}}\n"
            "rules: [{name: a, kind: republish, stream: T, republish: {src: '>', dest: 'seen.>'}}]\n",
            "utf-8",
        )
        ran = await command_here("redrive", "DLQ", "-c", str(config), "--apply")
        assert ran.out.splitlines()[-1:] == ["put back 2"], ran.err
        assert await here.put_back(2) == [1, 2]


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        ("nats-bridge_redrive.>", "allow the user to publish to 'nats-bridge_redrive.DLQ."),
        ("T.>", "allow the user to publish to 'T.a'"),
    ],
    ids=["records", "subjects"],
)
async def test_a_permission_that_is_missing_is_named(
    denied: str, said: str, newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    few = f'{{user: few, password: few, permissions: {{publish: {{deny: "{denied}"}}}}}}'
    everything = "{user: all, password: all}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {everything}, {few} ] }} }}\nno_auth_user: few\n"
    async with native_server(newest_version, config=users) as server:
        peer = await raw_peer(server.url.replace("://", "://all:all@"))
        here = Scene(server.url, peer, "T")
        await peer.create_stream(name="DLQ", subjects=["dlq.T.>"], storage="memory")
        await peer.create_stream(name="T", subjects=["T.>"], storage="memory")
        block = attached_block(here.advisory(1), StoredMessage(b"T.a", b"", b"1", 1, 1), timed=True)
        await peer.store(b"dlq.T.w", b"1", block)
        ran = await command_here("redrive", "DLQ", "--server", server.url, "--apply")
        assert ran.code == 2, (ran.out, ran.err)
        assert said in ran.err


def rejected_block(rule: str, source: str, subject: str) -> bytes:
    """What a rule says of a copy that its target rejected."""
    lines = [
        f"Nats-Msg-Id: rejected-{rule}-{source}-1-0f",
        f"Nats-Stream: {source}",
        f"Nats-Subject: {subject}",
        "Nats-Sequence: 1",
        "Nats-Bridge-Rejected: too large (10054)",
    ]
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


async def test_both_dead_letters_of_one_message_from_two_rules_come_back(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(url, await raw_peer(url), unique_name("rules"))
    for rule in ("eu", "us", "us"):  # one of them twice
        block = rejected_block(rule, "SOURCE", f"{here.name}.{rule}")
        await here.peer.store(f"dlq.{here.name}.copies".encode(), b"1", block)
    result = await here.redrive(apply=True)
    assert result.good
    assert [one.subject for one in await here.messages()] == [f"{here.name}.{rule}".encode() for rule in ("eu", "us")]


async def test_a_missing_stream(newest_version: str, servers: SharedServers) -> None:
    ran = await command_here("redrive", "NONE", "--server", await servers.url(newest_version))
    assert ran.code == 2
    assert ran.err.startswith("stream 'NONE' does not exist on connection 'default'")
    for name in ("a b", "DLQ.x", "*"):
        ran = await command_here("redrive", name, "--server", await servers.url(newest_version))
        assert (ran.code, ran.err) == (
            2,
            f"'{name}' is not a valid stream name: it must not contain spaces, dots or wildcards\n",
        )
