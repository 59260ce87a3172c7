"""Message TTLs and the markers of expired subjects (2.11), also in copies and in buckets."""

from collections.abc import Mapping

from nats_conformance.catalogue.case import Json
from nats_conformance.observation import Stored
from nats_conformance.scenarios.account import Account
from nats_conformance.scenarios.laboratory import Laboratory
from nats_conformance.scenarios.registry import Facts, scenario
from nats_conformance.scenarios.texts import header_of, headers_named, lines_of, payloads_of
from nats_conformance.scenarios.waiting import first_that

_MINUTE = 60_000_000_000
_MARKED: Mapping[str, Json] = {
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
    "subject_delete_marker_ttl": _MINUTE,
    "max_age": _MINUTE // 60,
}


async def _marker(account: Account, stream: str) -> Stored:
    """Return the marker of a stream that contains nothing else."""

    async def found() -> Stored | None:
        stored = await account.stored(stream)
        alone = len(stored) == 1 and header_of(stored[0].message, "Nats-Marker-Reason")
        return stored[0] if alone else None

    return await first_that(found, f"the marker in stream {stream!r}")


@scenario
async def ttl_of_a_copy(laboratory: Laboratory) -> Facts:
    """Let the TTL of a message pass in the source: see its copies in streams with and without TTLs."""
    account = await laboratory.account()
    await account.create("O", subjects=["in.*"], allow_msg_ttl=True)
    await account.create("ALLOWS", mirror={"name": "O"}, allow_msg_ttl=True)
    await account.create("PLAIN", mirror={"name": "O"})
    await account.create("SOURCE", sources=[{"name": "O"}])
    for copying in ("ALLOWS", "PLAIN", "SOURCE"):
        await account.connected_to_source(copying)
    await account.publish_all("in.a", ["one"], ["Nats-TTL: 10s"])  # longer than copying takes on a slow machine
    await account.publish_all("in.b", ["kept"])
    for copying in ("ALLOWS", "PLAIN", "SOURCE"):
        await account.reached(copying, 2)

    async def expired() -> bool | None:
        return all([(await account.state(name))["messages"] == 1 for name in ("O", "ALLOWS")]) or None

    await first_that(expired, "the end of the TTL")
    return {
        "mirror_that_allows": payloads_of(await account.stored("ALLOWS")),
        "mirror_that_does_not": payloads_of(await account.stored("PLAIN")),
        "source_that_does_not": payloads_of(await account.stored("SOURCE")),
    }


@scenario
async def marker_of_an_expired_subject(laboratory: Laboratory) -> Facts:
    """Let a subject's last message expire: see the marker that the stream stores instead."""
    account = await laboratory.account()
    await account.create("S", subjects=["in.*"], **_MARKED)
    await account.publish_all("in.a", ["1"])
    marker = await _marker(account, "S")
    return {
        "subject": marker.message.subject.decode(),
        "payload": marker.message.payload.decode(),
        "sequence": marker.sequence,
        "headers": lines_of(marker.message),
    }


@scenario
async def marker_of_an_expired_key(laboratory: Laboratory) -> Facts:
    """Let a key expire in a bucket with one value for each key: watchers get the marker as its newest message."""
    account = await laboratory.account()
    await account.create("KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=1, allow_direct=True, **_MARKED)
    await account.publish_all("$KV.B.key", ["1", "2"])
    marker = await _marker(account, "KV_B")
    return {"headers": lines_of(marker.message), "messages": (await account.state("KV_B"))["messages"]}


@scenario
async def marker_in_copies(laboratory: Laboratory) -> Facts:
    """Copy a marker into a mirror and a sourcing stream, which create no markers themselves."""
    account = await laboratory.account()
    await account.create("O", subjects=["in.*"], **_MARKED)
    await account.create("M", mirror={"name": "O"}, allow_msg_ttl=True, allow_rollup_hdrs=True)
    await account.create("T", sources=[{"name": "O"}], allow_msg_ttl=True, allow_rollup_hdrs=True)
    await account.publish_all("in.a", ["1"])
    mirrored, sourced = await _marker(account, "M"), await _marker(account, "T")
    return {"mirrored": headers_named(mirrored.message), "sourced": headers_named(sourced.message)}
