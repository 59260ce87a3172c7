"""Scenarios for the same store under another version: from 2.9.10 to the tested version, and back.

Each begins on a 2.9.10 server, the oldest one of the suite. The tested version takes over its store.
"""

import asyncio
from functools import partial
from typing import Any

from nats_conformance.native_servers import NativeServer
from nats_conformance.scenarios.account import REPUBLISH, Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, register, scenario
from nats_conformance.scenarios.texts import (
    header_of,
    headers_named,
    messages_of,
    payloads_of,
    record_of,
    subjects_of,
)
from nats_conformance.scenarios.waiting import arrived

_OLDEST = "2.9.10"
_BETWEEN = ("2.10.27", "2.12.15")
_TRANSFORM = {"src": "in.*", "dest": "t.$1"}


@scenario
async def republish_through_an_upgrade(laboratory: Laboratory) -> Facts:
    """A stream that republishes: the headers of the first message after the upgrade."""
    server, account = await laboratory.opened(version=_OLDEST)
    await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    received = await account.subscribe("out.>")
    await account.publish_all("in.a", ["1", "2"])
    (before,) = (await arrived(received, 2))[1:]
    account = await laboratory.replace(server)
    received = await account.republished("3")
    behind = received.messages[0]
    return {
        "headers_before": headers_named(before.message),
        "headers_behind": headers_named(behind),
        "republished_behind": payloads_of(received),
        "last_sequence": header_of(behind, "Nats-Last-Sequence"),
    }


@scenario
async def republish_edited_behind_an_upgrade(laboratory: Laboratory) -> Facts:
    """Edit republish, which 2.9 refuses: the same stream accepts the edit as soon as the server is newer."""
    server, account = await laboratory.opened(version=_OLDEST)
    created = await account.create("S", subjects=["in.*"], republish=REPUBLISH)
    changed = {**created, "republish": {"src": "in.*", "dest": "other.$1"}}
    before = await account.refusal("STREAM.UPDATE.S", changed)
    account = await laboratory.replace(server)
    received = await account.subscribe("other.>")
    updated = await account.update("S", republish=changed["republish"])
    await account.publish_all("in.a", ["1"])
    await account.client.flush()
    return {"err_code_before": before, "republish": updated["republish"], "republished_on": subjects_of(received)}


@scenario
async def ignored_transforms_behind_an_upgrade(laboratory: Laboratory) -> Facts:
    """Upgrade with transforms that 2.9 silently dropped: they stay ignored until an update adds them."""
    server, account = await laboratory.opened(version=_OLDEST)
    await account.create("S", subjects=["in.*"], subject_transform=_TRANSFORM)
    await account.publish_all("in.a", ["1"])
    account = await laboratory.replace(server)
    await account.publish_all("in.a", ["2"])
    configured = (await account.info("S"))["config"].get("subject_transform")
    await account.update("S", subject_transform=_TRANSFORM)
    await account.publish_all("in.a", ["3"])
    return {"configured_behind": configured, "stored_on": subjects_of(await account.stored("S"))}


@scenario
async def source_through_an_upgrade(laboratory: Laboratory) -> Facts:
    """Source two messages with 2.9: the newer server resumes after them, with its own form of records."""
    server, account = await laboratory.with_source(version=_OLDEST)
    await account.create("T", sources=[{"name": "O", "filter_subject": "in.a"}])
    await account.publish_all("in.a", ["1", "2"])
    await account.holding("T", 2)
    account = await laboratory.replace(server)
    stored = await account.copied("T", "3")
    return {"stored": payloads_of(stored), "records": [record_of(each) for each in messages_of(stored)]}


@scenario
async def transforms_added_behind_an_upgrade(laboratory: Laboratory) -> Facts:
    """A plain source of 2.9 gets its transform by an update on the newer server: it resumes at its position."""
    server, account = await laboratory.with_source(version=_OLDEST)
    await account.create("T", sources=[{"name": "O"}])
    await account.publish_all("in.a", ["1", "2"])
    await account.holding("T", 2)
    account = await laboratory.replace(server)
    await account.update("T", sources=[{"name": "O", "subject_transforms": [_TRANSFORM]}])
    stored = await account.copied("T", "3")
    return {"stored": payloads_of(stored), "stored_on": subjects_of(stored)}


async def _handed_over(laboratory: Laboratory, record: str | None, **source: Any) -> list[str]:
    """Publish two of three messages like a bridge on 2.9. Then the newer server copies the source itself."""
    server, account = await _with_three_messages(laboratory)
    for number in (1, 2):
        headers = [f"Nats-Stream-Source: {record.format(number)}"] if record else []
        await account.publish_all("t.a", [f"bridged {number}"], headers)
    account = await laboratory.replace(server)
    await account.update("T", sources=[{"name": "O", "subject_transforms": [_TRANSFORM], **source}])
    await account.publish_all("in.a", ["4"])
    await account.ending_with("T", "4")
    account = await laboratory.restart(server)
    return payloads_of(await account.copied("T", "end"))


async def _all_handed_over(laboratory: Laboratory, **records: str | None) -> Facts:
    stored = await asyncio.gather(*(_handed_over(laboratory, record) for record in records.values()))
    return dict(zip(records, stored, strict=True))


_RECORD = "O {} in.* t.$1"
# A bridge wrote the server's own record on each message: the newer server resumes after the last one.
register(
    "handoff-by-records",
    partial(_all_handed_over, two_fields="O {}", four_fields=_RECORD, five_fields=f"{_RECORD} in.a"),
)
# No record, or one with other texts than the configuration: everything is sourced again.
register(
    "handoff-that-doubles",
    partial(_all_handed_over, no_record=None, other_texts="O {} in.> t.>", other_stream="P {} in.* t.$1"),
)


@scenario
async def handoff_by_start_sequence(laboratory: Laboratory) -> Facts:
    """Hand over without records: `opt_start_seq` after the last bridged message is exact, even after a restart."""
    return {"stored": await _handed_over(laboratory, None, opt_start_seq=3)}


@scenario
async def handoff_of_odd_targets(laboratory: Laboratory) -> Facts:
    """Hand over with the last record alone, out of order, deleted, or purged: the last one in the target decides."""
    targets: dict[str, list[tuple[str, int | None]]] = {
        "one_marker_behind_messages_without_records": [("bridged 1", None), ("bridged 2", 2)],
        "bridged_out_of_order": [("bridged 2", 2), ("bridged 1", 1)],
    }
    facts: Facts = {}
    for name, bridged in targets.items():
        server, account = await _with_three_messages(laboratory)
        for payload, sequence in bridged:
            headers = [] if sequence is None else [f"Nats-Stream-Source: {_RECORD.format(sequence)}"]
            await account.publish_all("t.a", [payload], headers)
        facts[name] = await _taken_over(laboratory, server)
    for name, request in (("last_one_deleted", "STREAM.MSG.DELETE.T"), ("purged", "STREAM.PURGE.T")):
        server, account = await _with_three_messages(laboratory)
        for sequence in (1, 2):
            headers = [f"Nats-Stream-Source: {_RECORD.format(sequence)}"]
            await account.publish_all("t.a", [f"bridged {sequence}"], headers)
        await account.request(request, {"seq": 2} if name == "last_one_deleted" else {})
        facts[name] = await _taken_over(laboratory, server)
    return facts


async def _with_three_messages(laboratory: Laboratory) -> tuple[NativeServer, Account]:
    server, account = await laboratory.with_source("1", "2", "3", version=_OLDEST)
    await account.create("T", subjects=["t.*"])
    return server, account


async def _taken_over(laboratory: Laboratory, server: NativeServer) -> list[str]:
    account = await laboratory.replace(server)
    await account.update("T", sources=[{"name": "O", "subject_transforms": [_TRANSFORM]}])
    return payloads_of(await account.copied("T", "end"))


@scenario
async def handoff_of_a_bucket(laboratory: Laboratory) -> Facts:
    """Buckets that keep one value for each key: the last bridged value was overwritten by a put of the target's own."""
    server, account = await laboratory.opened(version=_OLDEST)
    await account.create("KV_A", subjects=["$KV.A.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
    await account.create("KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
    for sequence, key in enumerate(("x", "y"), 1):
        await account.publish_all(f"$KV.A.{key}", [f"{key} of A"])
        record = f"KV_A {sequence} $KV.A.> $KV.B.>"
        await account.publish_all(f"$KV.B.{key}", [f"{key} of A"], [f"Nats-Stream-Source: {record}"])
    await account.publish_all("$KV.B.y", ["y of B"])
    account = await laboratory.replace(server)
    source = {"name": "KV_A", "subject_transforms": [{"src": "$KV.A.>", "dest": "$KV.B.>"}]}
    await account.update("KV_B", sources=[source])
    await account.publish_all("$KV.A.end", ["end"])
    stored = await account.ending_with("KV_B", "end")
    return {"values": dict(zip(subjects_of(stored), payloads_of(stored), strict=True))}


@scenario
async def records_through_several_upgrades(laboratory: Laboratory) -> Facts:
    """Run 2.9.10, 2.10.27, 2.12.15 and the tested version on one store: each writes its own form of the record."""
    server, account = await laboratory.with_source(version=_OLDEST)
    await account.create("T", sources=[{"name": "O", "filter_subject": "in.a"}])
    await account.publish_all("in.a", ["1"])
    await account.holding("T", 1)
    for number, version in enumerate([*_BETWEEN, ""], 2):
        account = await laboratory.replace(server, version)
        await account.publish_all("in.a", [str(number)])
        await account.ending_with("T", str(number))
    stored = await account.stored("T")
    return {"stored": payloads_of(stored), "records": [record_of(each) for each in messages_of(stored)]}


@scenario
async def mirror_through_an_upgrade(laboratory: Laboratory) -> Facts:
    """A mirror made by 2.9 continues, and may republish as soon as the server is newer."""
    server, account = await laboratory.with_source("1", "2", version=_OLDEST)
    created = await account.create("M", mirror={"name": "O"})
    await account.holding("M", 2)
    before = await account.refusal("STREAM.UPDATE.M", {**created, "republish": REPUBLISH})
    account = await laboratory.replace(server)
    await account.update("M", republish=REPUBLISH)
    received = await account.subscribe("out.>")
    await account.publish_all("in.a", ["3"])
    await arrived(received, 1)
    return {
        "err_code_before": before,
        "republished": payloads_of(received),
        "stored": payloads_of(await account.stored("M")),
    }


@scenario
async def back_to_2_9_10(laboratory: Laboratory) -> Facts:
    """A store of the tested version under 2.9.10, as after a rolled back upgrade."""
    server, account = await laboratory.opened()
    transform = {"src": "in.*", "dest": "in.x.$1"}
    await account.create("S", subjects=["in.*"], republish=REPUBLISH, subject_transform=transform)
    await account.publish_all("in.a", ["1", "2"])
    account = await laboratory.replace(server, _OLDEST)
    answer = await account.client.api("STREAM.INFO.S")
    if "error" in answer:
        return {"stream_info_err_code": answer["error"]["err_code"]}
    await account.publish_all("in.a", ["3"])
    stored = await account.stored("S")
    return {
        "stream_info_err_code": None,
        "subject_transform": answer["config"].get("subject_transform"),
        "stored": payloads_of(stored),
        "stored_on": subjects_of(stored),
    }


@scenario
async def source_back_to_2_9_10(laboratory: Laboratory) -> Facts:
    """Run a sourcing stream of the tested version under 2.9.10, which only reads records of two fields."""
    server, account = await laboratory.with_source()
    await account.create("T", sources=[{"name": "O"}])
    await account.publish_all("in.a", ["1", "2"])
    await account.holding("T", 2)
    account = await laboratory.replace(server, _OLDEST)
    return {"stored": payloads_of(await account.copied("T", "end"))}
