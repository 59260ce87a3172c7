"""The likely reason for a stalled link, with its remedy. Pure: it judges one look."""

import base64
import re
from dataclasses import dataclass
from typing import Final

from nats_bridge.client.jetstream_api import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND
from nats_bridge.errors import NotPermittedError
from nats_bridge.kinds.watching.looking import Sight
from nats_transforms.dialect import Dialect

_EXPECTED: Final = re.compile(rb"(?<=\n)Nats-Expected-[^:\r\n]+:")
_ROLLUP: Final = re.compile(rb"(?<=\n)Nats-Rollup:")
_DOMAIN: Final = re.compile(r"\$JS\.([^.]+)\.API")
_TWO_BEATS: Final = 2_000_000_000
"""Nanoseconds; the consumers of mirrors and sources send a heartbeat every second (2.9 to 2.15)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a link is stalled.

    Attributes:
        code: for programs.
        text: in words.
        new_leader_helps: whether the target's server may copy again once another one leads the target.
    """

    code: str
    text: str
    remedy: str
    new_leader_helps: bool = False


def not_permitted(error: NotPermittedError) -> Reason:
    """Return the reason for a link without any facts, because the watching user lacks permissions."""
    return Reason("not_permitted", str(error), "allow the permissions printed by nats-bridge --permissions watch")


def leaderless(target: str) -> Reason:
    """Return the reason for a target whose leader does not answer, although the cluster does."""
    return Reason(
        "target_leaderless",
        f"stream {target} has no leader, or its leader does not answer",
        f"bring back the servers that hold {target}: nats stream info {target}",
    )


def overtaken(sight: Sight) -> int:
    """Return how many sequences the source removed before they were copied; 0 if none, or if it is another stream."""
    if sight.source is None or sight.is_another_source or not sight.position or sight.link.filters:
        return 0
    return max(int(sight.source["state"]["first_seq"]) - 1 - sight.position, 0)


def reason_of(sight: Sight, server: Dialect, account: dict[str, int]) -> Reason:
    """Return the likely reason.

    Args:
        sight: the newest observation.
        server: the dialect of the target's server.
        account: `storage`, `memory`, `max_storage` and `max_memory` of the target's account, in bytes.
    """
    return _unreadable(sight) or _another(sight) or _full(sight, account) or _message(sight, server) or _silent(sight)


def _unreadable(sight: Sight) -> Reason | None:
    link, error = sight.link, sight.error
    if error is None:
        return None
    if error.err_code == STREAM_NOT_FOUND:
        return Reason(
            "source_missing",
            f"stream {link.source} does not exist{_there(sight)}",
            f"create stream {link.source}, or remove it from the configuration of {link.target}",
        )
    if error.err_code:
        return Reason(
            "source_refuses", f"the API there refuses: {error.description}", "make the source's JetStream available"
        )
    if domain := _DOMAIN.fullmatch(link.api):
        return Reason(
            "leaf_away",
            f"domain {domain[1]} does not answer at {link.api}: its leafnode is not connected, or may not send that",
            "check the leafnode on both sides, nats server report leafnodes, and its user's permissions and deny lists",
        )
    if link.is_external:
        return Reason(
            "api_not_imported",
            f"nothing answers at {link.api}: the API's export or import is missing, or its account is away",
            f"export $JS.API.> as a service in the source's account, and import it as {link.api}.>",
        )
    return Reason("source_away", f"stream {link.source} gives no answer: {error.description}", "check its leader")


def _another(sight: Sight) -> Reason | None:
    if not sight.is_another_source:
        return None
    assert sight.source is not None
    return Reason(
        "source_recreated",
        f"stream {sight.link.source} was recreated at {sight.source['created']}: it ends at"
        f" {sight.source['state']['last_seq']}, and {sight.link.target} has copies up to {sight.position}",
        f"recreate {sight.link.target} too, or copy into a new stream; its messages are not those of the source",
    )


def _full(sight: Sight, account: dict[str, int]) -> Reason | None:
    config, state, target = sight.target["config"], sight.target["state"], sight.link.target
    if config.get("discard") == "new":
        for limit, used in (("max_msgs", "messages"), ("max_bytes", "bytes")):
            room = int(config.get(limit, -1))
            size = _size(sight) if limit == "max_bytes" else 1
            if room > 0 and int(state[used]) + size > room:
                return Reason(
                    "target_full",
                    f"stream {target} is full: {limit} {room} with discard new",
                    f"raise {limit} of {target}, remove messages, or let it discard old ones",
                )
    kind = "memory" if config.get("storage") == "memory" else "storage"
    most = account.get(f"max_{kind}", -1)
    if most > 0 and account.get(kind, 0) + _size(sight) > most:
        return Reason(
            "account_full",
            f"the account of {target} has used its {kind}: {account[kind]} of {most} bytes",
            "raise the account's limit, or remove data that is not needed",
        )
    return None


def _size(sight: Sight) -> int:
    """About how much the next message needs."""
    message = sight.following
    if message is None:
        return 1
    return sum(len(base64.b64decode(message.get(part) or "")) for part in ("hdrs", "data")) + len(message["subject"])


def _message(sight: Sight, server: Dialect) -> Reason | None:
    message = sight.following
    if message is None:
        return None
    source, target, sequence = sight.link.source, sight.link.target, message["seq"]
    most, size = int(sight.target["config"].get("max_msg_size", -1)), _size(sight) - len(message["subject"])
    if 0 < most < size:
        return Reason(
            "message_too_large",
            f"message {sequence} of {source} has {size} bytes, and max_msg_size of {target} is {most}",
            f"raise max_msg_size of {target}, or delete message {sequence} of {source}",
        )
    block = base64.b64decode(message.get("hdrs") or "")
    mirrors = sight.link.is_mirror
    strips = server.mirroring_strips_expectations if mirrors else server.sourcing_strips_expectations
    if not strips and _EXPECTED.search(block):
        since = "2.11.5" if mirrors else "2.10.14"
        return Reason(
            "expectation",
            f"message {sequence} of {source} has Nats-Expected-*, which a server before {since} enforces in {target}",
            f"delete message {sequence} of {source}, or upgrade the server",
        )
    allowed = sight.target["config"].get("allow_rollup_hdrs") or server.sourcing_takes_refused_rollups
    if not allowed and _ROLLUP.search(block):
        return Reason(
            "rollup",
            f"message {sequence} of {source} has Nats-Rollup, which a server before 2.14 refuses in {target}",
            f"set allow_rollup_hdrs in {target}, delete message {sequence} of {source}, or upgrade the server",
        )
    return None


def _silent(sight: Sight) -> Reason:
    if sight.link.is_mirror and sight.source is not None and sight.following is None and sight.missing:
        return Reason(
            "left_out",
            f"{sight.link.target} has skipped messages that it could not store, and a mirror never returns to them",
            f"recreate {sight.link.target}, or copy with a rule of kind mirror, which waits where a target is full",
        )
    if lost := _consumer_lost(sight):
        return lost
    said = str((sight.reported.get("error") or {}).get("description", ""))
    if said:
        return Reason(
            "server_reports",
            f"the server of {sight.link.target} reports: {said}",
            "fix the reported error",
            new_leader_helps=True,
        )
    if sight.link.is_external:
        deliver = (sight.link.entry.get("external") or {}).get("deliver")
        prefix = f"{deliver}.>" if deliver else "the deliver subjects"
        return Reason(
            "deliveries_lost",
            f"stream {sight.link.source} answers, but its deliveries do not arrive",
            f"export and import {prefix} as a stream, and $JS.FC.> as a service; check permissions on the path",
            new_leader_helps=True,
        )
    return Reason(
        "wedged",
        f"stream {sight.link.source} answers, and nothing keeps {sight.link.target} from copying",
        f"have its leader step down: nats stream cluster step-down {sight.link.target}; on one server, restart it",
        new_leader_helps=True,
    )


def _consumer_lost(sight: Sight) -> Reason | None:
    """Return the reason if the consumer that the target's server reads the source with is gone."""
    source, target, reported = sight.link.source, sight.link.target, sight.reported
    error, silent = reported.get("error") or {}, int(reported.get("active", 0))
    is_silent = not (error or sight.link.is_external or 0 <= silent < _TWO_BEATS)
    name = (sight.link.entry.get("consumer") or {}).get("name", "")
    if name and (is_silent or error.get("err_code") == CONSUMER_NOT_FOUND):
        return Reason(
            "consumer_lost",
            f"consumer {name} of {source}, through which {target} copies, sends nothing or does not exist",
            f"create consumer {name} again, or let {target} copy without a consumer of that name",
        )
    if not is_silent:
        return None
    since = "" if silent < 0 else f" for {silent / 1e9:.0f} s"
    return Reason(
        "consumer_lost",
        f"the consumer through which {target} copies {source} sends nothing{since}, not even heartbeats:"
        " it was deleted, or its server is away",
        f"the server of {target} creates another one; if none stays, find who deletes consumers of {source},"
        f" or have the leader step down: nats stream cluster step-down {target}",
        new_leader_helps=True,
    )


def _there(sight: Sight) -> str:
    return f" at {sight.link.api}" if sight.link.is_external else ""
