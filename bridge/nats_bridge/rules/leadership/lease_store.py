"""Leases in a key-value bucket: one key per rule, read and written with raw requests.

Theory of operation. A key-value bucket is a stream. Its newest message of a key's subject is the key's value, and a
publication that names the sequence which it expects there is a compare and set. Every server from 2.9 on has both. The
bucket's leader answers reads, so that no answer is older than a confirmed write.

Other replicas subscribe to the same subjects. So they learn of a release as it is published, before it is stored, and
read the bucket then. A publication that expects a sequence which no stream reaches is an announcement: subscribers get
it, and the bucket refuses to store it.

Worked example: bucket `locks`, sidecar `shop`, rule `copy`, and two replicas that see a lease which is free.

    both    read $KV.locks.lease.shop.copy              sequence 7, `released`
    A       writes, with Nats-Expected-Last-Subject-Sequence: 7         PubAck: sequence 8; A leads
    B       writes, with Nats-Expected-Last-Subject-Sequence: 7         error 10071: B was overtaken
    B       reads                                       sequence 8, held by A

Invariants:

* Of several writes over the same revision, at most one is stored.
* No request is sent again here: without an answer it is unknown whether a write was stored, and the lease decides.
* A record that cannot be read counts as a revision without a holder. It must still be waited for like a silent holder.
"""

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from math import isnan
from typing import Any, TypeAlias

import structlog
from tenacity import AsyncRetrying, retry_if_result

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import MESSAGE_NOT_FOUND, STREAM_NOT_FOUND, JetStreamApi, Json, bucket_subject
from nats_bridge.client.operations import publication
from nats_bridge.client.permission_violations import refused_subscription
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.waiting import NO_ANSWER
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.errors import ApiError, ConfigError, NotPermittedError
from nats_bridge.rules.leadership.lease import KeptPosition, Record, Sighting, Write
from nats_bridge.rules.leadership.timing import Timing, clock

_log = structlog.get_logger("bridge.leadership")

_NAME_IN_USE = 10058
_NO_CLUSTER = 10074
# not enough servers among those that the cluster has met, which are not all in its first seconds
_TOO_FEW_SERVERS = 10005
_BEYOND = 2**62  # a sequence that no stream reaches
_LONGEST_TTL = 3600.0  # most seconds that a record may make the others wait
_MOST_AGES = 10  # times the lease's time that the bucket must at least keep a record
GATHERING = 10.0
"""Seconds to wait until a cluster has enough servers for the bucket's replicas; their final number is unknown."""
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_REPLICAS = "$replicas"  # no name of a rule


def lease_subject(bucket: str, sidecar: str, rule: str) -> str:
    """Return the subject of a rule's lease; `*` for the rule stands for all of the sidecar's rules."""
    return f"$KV.{bucket}.lease.{sidecar}.{rule}"


async def remove_lease(api: JetStreamApi, bucket: str, sidecar: str, rule: str) -> bool:
    """Remove a rule's lease with its position. Return whether there was one.

    It purges the key as clients of key-value buckets do, which needs no permission beyond those for holding a lease.
    """
    subject = lease_subject(bucket, sidecar, rule)
    newest = await api.last_message(bucket_stream(bucket), subject)
    if newest is None or not newest.payload:  # purged or deleted
        return False
    await api.store(subject, b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    return True


def bucket_stream(bucket: str) -> str:
    """Return the stream of a bucket."""
    return f"KV_{bucket}"


def bucket_config(bucket: str, replicas: int) -> Json:
    """Return the configuration of a bucket's stream, as clients create buckets."""
    return {
        "name": bucket_stream(bucket),
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "storage": "file",
        "num_replicas": replicas,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


Hint: TypeAlias = Callable[[str, bool], None]
"""Called with a rule, and whether its lease was released, when a replica writes a lease, before it is stored."""


class LeaseStore:
    """The leases of one sidecar's rules.

    Args:
        connection: a separate connection, so that nothing else delays it.
        timing: the time limits for answers.
        hint: called for each write of a lease, including this replica's.
        announced: called for each announcement with a replica's name and the number of rules that it leads, or None
            when it stops.
    """

    def __init__(
        self,
        connection: Connection,
        sidecar: str,
        bucket: str,
        timing: Timing,
        hint: Hint,
        announced: Callable[[str, int | None], None],
    ) -> None:
        self._connection = connection
        self._sidecar = sidecar
        self._bucket = bucket
        self._stream = bucket_stream(bucket)
        self._timing = timing
        self._hint = hint
        self._announced = announced
        self._subscriptions: list[BatchSubscription] = []
        self._get = connection.api.subject(f"STREAM.MSG.GET.{bucket_stream(bucket)}")
        self._too_few_since: float | None = None

    async def open(self, rule: str) -> None:
        """Make sure that leases can be read and written. `rule` is any rule that needs one.

        Raises:
            ConfigError: the bucket cannot be used for leases.
            NotPermittedError: the user may not use it.
            ApiError: the server does not answer.
        """
        await AsyncRetrying(retry=retry_if_result(lambda there: not there), wait=NO_ANSWER.wait)(
            self._ensure, check=True
        )
        client, refusals = self._connection.client, list[str]()
        self._connection.on_refusal(refusals.append)
        # A server of the bucket's own domain takes the prefix away before it delivers.
        for subject in {self._subject_of("*"), lease_subject(self._bucket, self._sidecar, "*")}:
            self._subscriptions.append(await client.subscribe_batches(subject, self._on_batch, lambda *_: None))
        await self._connection.flush()
        self._connection.forget(refusals.append)
        if reason := next(filter(refused_subscription, refusals), None):
            _log.warning("leadership.no_hints", reason=reason, meaning="a clean stop is noticed a little later")
        await self._probe(rule)

    async def close(self) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            await subscription.release()

    async def read(self, rule: str) -> Sighting | None:
        """Read the rule's lease from the bucket's leader. Return None without an answer.

        Raises:
            ApiError: the bucket was deleted and cannot be recreated.
        """
        answer = _json_of(await self._ask(self._get, self._read_request(rule)))
        if answer is None:
            return None
        error = answer.get("error")
        if error is None:
            return _sighting(answer["message"])
        if error.get("err_code") == MESSAGE_NOT_FOUND:
            return Sighting(0, None)
        if error.get("err_code") == STREAM_NOT_FOUND:
            _log.warning("leadership.bucket_deleted", bucket=self._bucket, meaning="it is recreated")
            await self._ensure(check=False)
        return None

    async def write(self, rule: str, write: Write) -> PubAck:
        """Write a lease over the expected revision."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")  # for people; no replica reads it
        payload = {**asdict(write.record), "at": at}
        answer = await self._ask(self._subject_of(rule), json.dumps(payload).encode(), {_EXPECTED: str(write.expected)})
        return PubAck.of(None) if answer is None else PubAck.parse(b"", answer)

    def announce(self, replica: str, leads: int | None) -> None:
        """Announce to all replicas how many rules one leads, or None when it stops. Announcements may be lost.

        It uses the subjects of leases, for which replicas have permissions, and expects an unreachable sequence. So
        subscribers receive it, but the bucket does not store it.
        """
        if self._connection.client.is_connected:
            payload = json.dumps({"replica": replica, "leads": leads}).encode()
            block = b"NATS/1.0\r\n%b: %d\r\n\r\n" % (_EXPECTED.encode(), _BEYOND)
            self._connection.client.write_raw(publication(self._subject_of(_REPLICAS).encode(), b"", block, payload))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _subject_of(self, rule: str) -> str:
        return bucket_subject(self._connection.api.prefix, lease_subject(self._bucket, self._sidecar, rule))

    def _read_request(self, rule: str) -> bytes:
        return json.dumps({"last_by_subj": lease_subject(self._bucket, self._sidecar, rule)}).encode()

    async def _ask(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> bytes | None:
        """Return the answer to one request; None without a connection or an answer. It is not sent again."""
        if not self._connection.client.is_connected:
            return None
        try:
            return await self._connection.api.ask(subject, data, headers, within=self._timing.answer_within)
        except ApiError:
            return None

    async def _probe(self, rule: str) -> None:
        """Send a read, and a write that cannot be stored, to check the user's permissions."""
        beyond = {_EXPECTED: str(_BEYOND)}
        requests = (
            (self._get, self._get, self._read_request(rule), None),
            (self._subject_of("*"), self._subject_of(rule), b"", beyond),
        )
        for shown, subject, data, headers in requests:
            try:
                await self._connection.api.ask(subject, data, headers, within=self._timing.answer_within)
            except NotPermittedError:
                raise NotPermittedError(f"leadership: connection '{self._connection.name}'", shown) from None
            except ApiError:
                continue  # no answer; the request is repeated when it is needed

    async def _ensure(self, *, check: bool) -> bool:
        """Create the bucket if it does not exist. Return False if the caller should retry."""
        api, bucket, too_few = self._connection.api, self._bucket, ""
        try:
            info = await api.stream_info(self._stream)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
        else:
            if check:
                self._refuse_unfit(info["config"])
            return True
        for replicas in (3, 1):
            try:
                await api.request(f"STREAM.CREATE.{self._stream}", bucket_config(bucket, replicas))
            except ApiError as error:
                if error.err_code == _NAME_IN_USE:  # another replica was faster, with another number of servers
                    break
                if replicas == 1 or error.err_code not in (_NO_CLUSTER, _TOO_FEW_SERVERS):
                    raise
                if error.err_code == _TOO_FEW_SERVERS:
                    if self._gathering():
                        return False
                    too_few = error.description
            else:
                _log.info("leadership.bucket_created", bucket=bucket)
                break
        if too_few:
            meaning = (
                f"without that server no replica leads: set num_replicas of stream {self._stream} to 3 when it can be"
            )
            _log.warning("leadership.one_server", bucket=bucket, reason=too_few, meaning=meaning)
        self._too_few_since = None
        return True

    def _gathering(self) -> bool:
        """Return whether the cluster may be one whose servers have not all met yet."""
        now = clock()
        if self._too_few_since is None:
            self._too_few_since = now
            meaning = f"it is made when the cluster has enough; after {GATHERING:g} s, on one server"
            _log.info("leadership.few_servers", bucket=self._bucket, meaning=meaning)
        return now - self._too_few_since < GATHERING

    def _refuse_unfit(self, config: dict[str, Any]) -> None:
        reason = ""
        if config.get("mirror"):
            reason = "is a mirror, which takes no writes"
        elif 0 < (age := int(config.get("max_age") or 0) / 1e9) < self._timing.ttl * _MOST_AGES:
            reason = f"forgets its values after {age:g} s, so a lease could vanish while it is held"
        elif f"$KV.{self._bucket}.>" not in (config.get("subjects") or ()):
            reason = f"does not store '$KV.{self._bucket}.>'"
        if reason:
            raise ConfigError(
                f"leadership: bucket '{self._bucket}' {reason}: name another one, which the sidecar makes itself"
            )

    def _on_batch(self, batch: list[Delivered]) -> None:
        for subject, _, _, payload in batch:
            try:
                said = json.loads(payload)
                if "replica" in said:
                    leads = said["leads"]
                    self._announced(str(said["replica"]), None if leads is None else int(leads))
                else:
                    self._hint(subject.decode().rpartition(".")[2], bool(said["released"]))
            except (ValueError, KeyError, TypeError):
                continue


def _json_of(answer: bytes | None) -> Json | None:
    """Return the answer to a request as JSON; None without an answer, or if it is not an object."""
    with contextlib.suppress(ValueError):
        found = None if answer is None else json.loads(answer)
        if isinstance(found, dict):
            return found
    return None


def _sighting(message: Json) -> Sighting:
    try:
        said = json.loads(base64.b64decode(message.get("data") or ""))
        record = Record(
            holder=str(said["holder"]),
            term=int(said["term"]),
            beat=int(said["beat"]),
            ttl=_bounded_ttl(float(said["ttl"])),
            released=bool(said["released"]),
            position=_position(said.get("position")),
        )
    except (ValueError, KeyError, TypeError):
        return Sighting(int(message["seq"]), None)  # deleted, or written by another client
    return Sighting(int(message["seq"]), record)


def _bounded_ttl(seconds: float) -> float:
    if isnan(seconds):
        raise ValueError("the time of a lease is NaN")
    return min(max(seconds, 0.0), _LONGEST_TTL)


def _position(said: Json | None) -> KeptPosition | None:
    # Older versions write none.
    if said is None:
        return None
    return KeptPosition(str(said["stream"]), int(said["sequence"]), int(said["time_ns"]))
