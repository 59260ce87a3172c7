"""Copies handed over to the server: real servers, upgraded in place, nothing missing or duplicated in the target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage
from tests.live.commands import command
from tests.live.handoff.handoffs import ACCOUNTS, CASES, UPGRADES, Case, OpenScene, Scene, everything
from tests.live.shared_servers import Servers
from tests.live.tiers import by_turns, with_all
from tests.live.until import until


@pytest.fixture
async def scene(native_server: Servers, tmp_path: Path) -> AsyncIterator[OpenScene]:
    opened: list[Scene] = []

    async def open_scene(case: str | Case, version: str) -> Scene:
        chosen = CASES[case] if isinstance(case, str) else case
        server = native_server(version, config=ACCOUNTS if chosen.away else "").start()
        made = Scene(server, chosen, tmp_path)
        opened.append(made)
        await made.connect()
        await made.create()
        return made

    yield open_scene
    for each in opened:
        await each.close()


async def bridged(here: Scene, messages: int = 5) -> None:
    """Messages copied by a sidecar, some of them while it runs; it is stopped afterwards."""
    await here.publish(messages)
    async with here.sidecar():
        await here.publish(messages)
        await here.complete()


async def natively_exact(here: Scene) -> None:
    """More messages, a restart of the server, more messages: all there, once, in order."""
    await here.complete()
    await here.publish(3)
    await here.complete()
    await here.change_server(here.server.restart)
    await here.publish(3)
    await here.assert_exact()


@pytest.mark.parametrize("versions", UPGRADES, ids=lambda pair: "_to_".join(pair))
@pytest.mark.parametrize("case", CASES)
async def test_an_upgrade_in_place(case: str, versions: tuple[str, str], scene: OpenScene) -> None:
    before, after = versions
    here = await scene(case, before)
    await bridged(here)
    await here.publish(3)
    await here.change_server(lambda: here.server.upgrade(after))
    await here.publish(2)
    ran = await here.handoff()
    # The header is the server's own, so the server finds the place alone.
    assert all("opt_start_seq" not in source for source in ran.document["sources"]), ran.out
    await here.apply(ran.document)
    await natively_exact(here)
    with pytest.raises(RuleRefusedError, match="natively already"):
        async with here.sidecar():
            pass


@by_turns("version, case", ["2.10.27", "2.15.3"], CASES)
async def test_a_live_handoff(case: str, version: str, scene: OpenScene) -> None:
    here = await scene(case, version)
    await bridged(here)
    await here.publish(3)
    ran = await here.handoff()
    starts = [source.get("opt_start_seq") for source in ran.document["sources"]]
    assert all(starts) if version == "2.15.3" else not any(starts), ran.out
    await here.apply(ran.document)
    await natively_exact(here)
    # What has done its work is taken out by a second update.
    again = (await here.handoff()).document
    assert all("opt_start_seq" not in source for source in again["sources"])
    await here.apply(again)
    await natively_exact(here)


@pytest.mark.parametrize("case", ["plain", "filter_subject"])
async def test_a_live_handoff_to_2_9(case: str, scene: OpenScene) -> None:
    here = await scene(case, "2.9.10")
    await bridged(here)
    ran = await here.handoff()
    assert ran.document["sources"][0]["opt_start_seq"]
    await here.apply(ran.document)
    await natively_exact(here)


async def test_the_bridge_continued_after_the_upgrade(scene: OpenScene) -> None:
    """Old copies carry the server's header and newer ones ours: the server would begin behind the old ones."""
    here = await scene("two", "2.10.27")
    await bridged(here)
    await here.change_server(lambda: here.server.upgrade("2.15.3"))
    await bridged(here)
    await here.publish(2)
    ran = await here.handoff()
    assert "in other words" in ran.err
    await here.apply(ran.document)
    await natively_exact(here)


async def test_applied_by_the_command(scene: OpenScene) -> None:
    here = await scene("transforms", "2.15.3")
    await bridged(here)
    ran = await command("handoff", "-c", str(here.config), "rule", "--apply")
    assert ran.code == 0
    assert "was accepted" in ran.err
    await natively_exact(here)


async def test_a_running_sidecar_is_seen(twin_version: str, scene: OpenScene) -> None:
    here = await scene("kv" if twin_version != "2.9.10" else "plain", twin_version)
    await here.publish(2)
    async with here.sidecar():
        await here.complete()
        ran = await here.handoff()
        assert ran.code == 1
        assert "the rule copies from it at this moment" in ran.err
        assert ran.out == ""
    assert (await here.handoff()).code == 0


# -- what breaks it ----------------------------------------------------------------------------------------------------


async def delete_newest(here: Scene, stream: str, count: int = 1) -> None:
    last = (await here.home.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    for sequence in range(last, last - count, -1):
        answer = await here.home.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
        assert answer.get("success"), answer


def at_home(entry: dict[str, Any]) -> Case:
    """One source in the same account."""
    return Case(
        {"kind": "sources", "stream": "T", "sources": [{"name": "S", **entry}]},
        {"S": {"subjects": ["a.>"]}},
        ["b.>", "local"],
        {"S": ["a.x", "a.y"]},
    )


RENAMED = at_home({"subject_transforms": [{"src": "a.*", "dest": "b.$1"}]})


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_the_last_copy_deleted(version: str, scene: OpenScene) -> None:
    here = await scene(RENAMED, version)
    await bridged(here, 3)
    deleted = (await here.expected())["S"][-1]
    await delete_newest(here, "T")
    ran = await here.handoff()
    assert ran.code == 1
    assert "the newest copy left in 'T' is of 5, and 1 messages after it are lost" in ran.err
    assert "--after S=SEQUENCE, the last one copied (5 to 6)" in ran.err
    await here.publish(2)
    await here.apply((await here.handoff("--after", "S=6")).document)
    await here.complete()
    stored = [(m.subject, m.payload) for m in await _all(here)]
    assert stored == [copy for copy in (await here.expected())["S"] if copy != deleted]


async def test_no_times_say_that_a_lost_message_was_no_copy(newest_version: str, scene: OpenScene) -> None:
    """The clock of the target's server may be behind the source's."""
    here = await scene(RENAMED, newest_version)
    await bridged(here, 3)
    await here.home.store(b"local")
    await delete_newest(here, "T")
    await here.home.store(b"local")
    await here.publish(1)
    ran = await here.handoff()
    assert (ran.code, "1 messages after it are lost (deleted?): 7 may have been copied, too, or not" in ran.err) == (
        1,
        True,
    )


async def _all(here: Scene) -> list[StoredMessage]:
    return await everything(here.home, here.target_name)


@pytest.mark.parametrize("version", ["2.9.10", *with_all("2.10.27"), "2.15.3"])
async def test_the_target_purged(version: str, scene: OpenScene) -> None:
    here = await scene("filter_subject", version)
    await bridged(here, 6)
    kept = len((await here.expected())["S"])
    last = (await here.away.api("STREAM.INFO.S"))["state"]["last_seq"]
    await here.home.api("STREAM.PURGE.T")
    ran = await here.handoff()
    assert ran.code == 1
    assert "'T' was purged and holds no copy any more, so the next message is unknown" in ran.err
    await here.publish(6)
    await here.apply((await here.handoff("--after", f"S={last}")).document)
    await here.complete()
    await here.change_server(here.server.restart)
    await here.publish(4)
    await here.complete()
    assert [(m.subject, m.payload) for m in await _all(here)] == (await here.expected())["S"][kept:]


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_local_put_over_the_last_key(version: str, scene: OpenScene) -> None:
    bucket = {**CASES["kv"].target, "max_msgs_per_subject": 1}
    source = {"KV_A": {"subjects": ["$KV.A.>"], **bucket}}
    case = Case(CASES["kv"].rule, source, ["$KV.B.>"], {"KV_A": ["$KV.A.color", "$KV.A.size"]}, target=bucket)
    here = await scene(case, version)
    async with here.sidecar():
        await here.publish(2)
        await here.complete()
    await here.home.store(b"$KV.B.size", b"local")
    ran = await here.handoff()
    assert ran.code == 1
    assert "may have been copied, too, and put again locally on '$KV.B.size'" in ran.err
    await here.apply((await here.handoff("--after", "KV_A=2")).document)
    await here.away.store(b"$KV.A.name", b"KV_A new")
    await here.newest_is(b"$KV.B.name", b"KV_A new")
    assert {m.subject: m.payload for m in await _all(here)} == {
        b"$KV.B.color": b"KV_A 0",
        b"$KV.B.size": b"local",
        b"$KV.B.name": b"KV_A new",
    }


async def test_a_local_put_over_another_key_blocks_no_copy(scene: OpenScene) -> None:
    bucket = {**CASES["kv"].target, "max_msgs_per_subject": 1}
    source = {"KV_A": {"subjects": ["$KV.A.>"], **bucket}}
    case = Case(CASES["kv"].rule, source, ["$KV.B.>"], {"KV_A": ["$KV.A.color", "$KV.A.size"]}, target=bucket)
    here = await scene(case, "2.10.27")
    async with here.sidecar():
        await here.publish(2)
        await here.complete()
    await here.home.store(b"$KV.B.color", b"local")
    await here.publish(2)
    assert (await here.handoff()).code == 0


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_copies_out_of_order_at_the_end(version: str, scene: OpenScene) -> None:
    """As an interruption leaves them: every message there, the newest not the last one stored."""
    here = await scene(RENAMED, version)
    await bridged(here, 2)
    await here.publish(3)
    header = "Nats-Bridge-Source" if version == "2.15.3" else "Nats-Stream-Source"
    for sequence in (5, 7, 6):
        (message,) = [m for m in await everything(here.away, "S") if m.sequence == sequence]
        block = f"NATS/1.0\r\n{header}: S {sequence} a.* b.$1\r\n\r\n".encode()
        await here.home.store(message.subject.replace(b"a.", b"b."), message.payload, block)
    await here.publish(2)
    ran = await here.handoff()
    assert ran.document["sources"][0]["opt_start_seq"] == 8
    assert ("in other words" in ran.err) == (version == "2.10.27")
    await here.apply(ran.document)
    await here.complete()
    await here.change_server(here.server.restart)
    await here.publish(2)
    await here.complete()
    expected = (await here.expected())["S"]
    expected[5], expected[6] = expected[6], expected[5]
    assert [(m.subject, m.payload) for m in await _all(here)] == expected


async def test_copies_left_out_by_an_interruption(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.10.27")
    await bridged(here, 2)
    await here.publish(2)
    (message,) = [m for m in await everything(here.away, "S") if m.sequence == 6]
    block = b"NATS/1.0\r\nNats-Stream-Source: S 6 a.* b.$1\r\n\r\n"
    await here.home.store(message.subject.replace(b"a.", b"b."), message.payload, block)
    ran = await here.handoff()
    assert ran.code == 1
    assert "1 messages in front of the newest copy are not in 'T'" in ran.err
    async with here.sidecar():
        await until(lambda: _holds(here, 6))
    await here.apply((await here.handoff()).document)
    await here.publish(1)
    await here.complete()
    payloads = sorted(m.payload for m in await _all(here))
    assert payloads == sorted(payload for _, payload in (await here.expected())["S"])


async def _holds(here: Scene, messages: int) -> bool:
    return int((await here.home.api("STREAM.INFO.T"))["state"]["messages"]) == messages


async def test_the_source_recreated(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.10.27")
    await bridged(here, 2)
    await here.home.api("STREAM.DELETE.S")
    await here.home.create_stream(name="S", subjects=["a.>"])
    ran = await here.handoff()
    assert ran.code == 1
    assert "stream 'S' is a new one" in ran.err
    assert "on_recreated: restart" in ran.err


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_filter_into_a_stream_that_renames(version: str, scene: OpenScene) -> None:
    """From 2.11.12 on the server looks for copies of a filter on subjects that match it, where there are none."""
    case = CASES["filter_subject"]
    target = {"subject_transform": {"src": "a.x.>", "dest": "stored.>"}}
    here = await scene(Case(case.rule, case.sources, case.subjects, case.sent, target, away=True), version)
    async with here.sidecar():
        await here.publish(8)
        await renamed_are_complete(here)
    await here.apply((await here.handoff()).document)
    for _ in range(2):
        await here.change_server(here.server.restart)
        await here.publish(4)
        await renamed_are_complete(here)
        stored = [m.payload for m in await _all(here)]
        assert stored == [payload for _, payload in (await here.expected())["S"]]


async def renamed_are_complete(here: Scene) -> None:
    subject, payload = (await here.expected())["S"][-1]
    await here.newest_is(subject.replace(b"a.x.", b"stored."), payload)


# -- what cannot be handed over ----------------------------------------------------------------------------------------


async def test_2_9_knows_no_transforms(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.9.10")
    await bridged(here, 2)
    ran = await here.handoff()
    assert ran.code == 1
    assert "server 2.9.10 ignores subject_transforms: upgrade it first" in ran.err


async def test_what_servers_do_not_have(scene: OpenScene) -> None:
    here = await scene("plain", "2.10.27")
    here.configure(sources=[{"name": "S", "from": "away", "exclude": ["a.secret"]}])
    ran = await here.handoff()
    assert (ran.code, ran.out) == (1, "")
    assert "exclude a.secret: servers have no such option" in ran.err
    here.configure(sources=[{"name": "S", "from": "away", "where": {"header": "A", "equals": "b"}}])
    assert "where: servers cannot select messages by a header" in (await here.handoff()).err
    here.configure(sources=[{"name": "S", "from": "away"}])
    ran = await here.handoff()
    assert "it is on connection 'away'" in ran.err
    assert "add external" in ran.err


async def test_what_a_server_refuses_is_reported_in_its_words(scene: OpenScene) -> None:
    here = await scene(at_home({"subject_transforms": [{"src": "a.*", "dest": "b.{{left(1,1)}}"}]}), "2.10.27")
    ran = await here.handoff()
    assert ran.code == 1
    assert "source transform destination is invalid (10146)" in ran.err or "does not take it" in ran.err


async def test_a_mirror_rule_resumes_as_sources(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.10.27")
    sources = here.rule["sources"]
    del here.rule["sources"]
    here.configure(kind="mirror", mirror=sources[0])
    await here.publish(5)
    async with here.sidecar():
        await here.newest_is(b"b.x", b"S 4")
    ran = await here.handoff()
    assert (ran.code, ran.out) == (1, "")
    assert "cannot become a native mirror: servers refuse that (10055)" in ran.err
    del here.rule["mirror"]
    here.configure(kind="sources", sources=sources)
    await here.apply((await here.handoff()).document)
    await natively_exact(here)


# -- the way back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [pytest.param("2.10.27", marks=pytest.mark.exhaustive), "2.15.3"])
async def test_back_and_forth(case: str, version: str, scene: OpenScene) -> None:
    here = await scene(case, version)
    await bridged(here)
    for _ in range(2):
        await here.apply((await here.handoff()).document)
        await here.publish(3)
        await here.complete()
        back = await here.handoff("--back")
        if back.code:
            # Handed over in other words: the rule takes them over before it takes the stream back.
            assert "in other words" in back.err
            native = (await here.home.api(f"STREAM.INFO.{here.target_name}"))["config"]["sources"]
            here.configure(**in_words_of(here.rule, native))
            back = await here.handoff("--back")
        assert "sources" not in back.document
        await here.apply(back.document)
        await here.publish(2)
        async with here.sidecar():
            await here.publish(2)
            await here.complete()
        await here.assert_exact()


def in_words_of(rule: dict[str, Any], native: list[dict[str, Any]]) -> dict[str, Any]:
    """The rule's sources, written as the server's."""
    if rule["kind"] == "kv_sources":
        transforms = [
            {name: text.split(".", 2)[2] for name, text in each.items()} for each in native[0]["subject_transforms"]
        ]
        return {"sources": [{"bucket": "A", "key_transforms": transforms}]}
    rewritten = []
    for entry in rule["sources"]:
        (theirs,) = [each for each in native if each["name"] == entry["name"]]
        words = {name: theirs[name] for name in ("filter_subject", "subject_transforms") if name in theirs}
        kept = {name: value for name, value in entry.items() if name in ("name", "external", "from")}
        rewritten.append({**kept, **words})
    return {"sources": rewritten}


async def test_back_needs_the_servers_words(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.10.27")
    await bridged(here, 2)
    await here.apply((await here.handoff()).document)
    here.configure(sources=[{"name": "S", "subject_transforms": [{"src": "a.*", "dest": "b.{{wildcard(1)}}"}]}])
    ran = await here.handoff("--back")
    assert ran.code == 1
    assert '[{"src": "a.*", "dest": "b.$1"}]' in ran.err


async def test_back_to_a_stream_without_subjects(scene: OpenScene) -> None:
    here = await scene(RENAMED, "2.10.27")
    await bridged(here, 2)
    update = (await here.handoff()).document
    del update["subjects"]
    await here.apply(update)
    await natively_exact(here)
    back = (await here.handoff("--back")).document
    assert back["subjects"] == ["b.*"]
    await here.apply(back)
    async with here.sidecar():
        await here.publish(2)
        await here.complete()
    await here.assert_exact()


async def test_headers_of_local_messages_stay_what_they_are(scene: OpenScene) -> None:
    """A message of the target's own between the copies does no harm."""
    here = await scene(RENAMED, "2.10.27")
    await bridged(here, 2)
    await here.home.store(b"local", b"mine", b"NATS/1.0\r\nA: 1\r\n\r\n")
    here.local.append(b"mine")
    await here.apply((await here.handoff()).document)
    await natively_exact(here)
    (mine,) = [m for m in await _all(here) if m.payload == b"mine"]
    assert header_block.read(mine.header_block, b"A") == b"1"
