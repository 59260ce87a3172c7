"""Requests to the JetStream API, as plain JSON.

Requests and answers stay JSON here, because nats-py's typed configurations drop members that they do not know. Only
members that every version from 2.9 on supports are sent: servers from 2.12 on refuse unknown ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay

from nats_bridge.api_error_codes import class_of
from nats_bridge.client import nats_py
from nats_bridge.client.consumer_names import Purpose, release_name, take_name, unique
from nats_bridge.client.delivery_limit import DeliveryLimit
from nats_bridge.client.waiting import ANSWER, ANSWER_ELSEWHERE, NOT_IN_CLUSTER, SERVER_BUSY
from nats_bridge.client.wire import WireClient
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.errors import ApiError, InboxRefusedError, NotPermittedError
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import StoredMessage
from nats_transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg


Json: TypeAlias = dict[str, Any]
_Answer = TypeVar("_Answer")

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
CONSUMER_IN_USE = 10013
_CONSUMER_EXISTS = 10148
NOT_ENABLED = 10039
MESSAGE_NOT_FOUND = 10037

_FILES_LEFT = 10051
"""The answer of 2.10 to the deletion of a consumer whose folder was written to at that moment.

The consumer is deleted, and a second request confirms it. The files left in the folder are ignored at a restart.
"""

_PATIENCE = 15.0  # for a request with its repetitions, while the server does not answer or has no leader

_LED = ("stream", "consumer")
"""Objects that have a leader in a cluster. Only the leader's answer counts."""

_DOUBTED = 2
"""Repeated questions after a consumer that a cluster may have."""


def _listed_name(listed: Any) -> str:
    # An entry of a list is a name, a consumer, or a stream.
    return str(listed if isinstance(listed, str) else listed.get("name") or listed["config"]["name"])


def _is_clustered(stream: Json) -> bool:
    # From 2.10 on, a leafnode server outside a cluster reports a cluster named after itself, without other
    # servers, for its streams but not for its consumers.
    name = stream.get("name")
    return bool(name) and (name != stream.get("leader") or bool(stream.get("replicas")))


OWN_API = "$JS.API"
"""The prefix of the API of the connected server's own domain and account."""


def bucket_subject(prefix: str, subject: str) -> str:
    """Return the subject to publish to for a bucket's subject, such as `$KV.leases.a`.

    Leafnodes between domains pass no message below `$KV`. Like other clients, one puts the prefix of the API before it.
    """
    return subject if prefix == OWN_API else f"{prefix}.{subject}"


class JetStreamApi:
    """The API of one connection's account, or of another domain or account that a prefix leads to.

    Args:
        connection: its name in the configuration, for messages.
        client_name: the client's name, in names of consumers.
        prefix: the prefix of each request.

    Attributes:
        prefix: the prefix of each request.
        delivery_limit: the number of messages that the connection's consumers may send ahead.
    """

    def __init__(
        self, client: WireClient, connection: str, client_name: str = "nats-bridge", prefix: str = OWN_API
    ) -> None:
        self.client = client
        self.prefix = prefix
        self.connection = connection
        self._client_name = client_name
        self.delivery_limit = DeliveryLimit()
        self._in_flight: dict[asyncio.Task[Msg], str] = {}
        self._refused: dict[asyncio.Task[Msg], ApiError] = {}
        self._refused_inbox: str | None = None
        self._not_to_delete_from: set[str] = set()
        self._in_clusters: set[str] = set()  # streams

    def subject(self, request: str) -> str:
        """Return the subject of a request, such as `STREAM.INFO.ORDERS`."""
        return f"{self.prefix}.{request}"

    def reports(self, advisory: bytes) -> bool:
        """Return whether an advisory is from the API's domain.

        Advisories of all domains arrive, for streams of any name.
        """
        tokens = self.prefix.split(".")
        if len(tokens) != 3 or (tokens[0], tokens[2]) != ("$JS", "API"):
            return True
        try:
            return bool(json.loads(advisory).get("domain", tokens[1]) == tokens[1])
        except (ValueError, AttributeError, RecursionError):
            return True

    async def request(
        self,
        subject: str,
        body: Mapping[str, Any] | None = None,
        *,
        fence: WriteFence = ALWAYS_OPEN,
        patience: float | None = None,
    ) -> Json:
        """Send one API request (`subject` without the prefix). Return the answer's JSON.

        Args:
            body: the request's JSON.
            fence: nothing is sent while it is closed, also when the request is repeated.
            patience: seconds for the request and its repetitions, if not the default; 0 for a single request.

        Raises:
            ApiError: the server's error, or no answer in time.
        """
        data = b"" if body is None else json.dumps(body).encode()

        async def attempt() -> Json:
            await fence.opened()
            return await self._request_once(self.subject(subject), data)

        return await self._patiently(attempt, patience)

    async def store(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Json:
        """Publish into a stream and return its PubAck. Without an answer it sends again: stored twice, perhaps.

        Raises:
            ApiError: the stream refuses, or no answer in time.
        """
        return await self._patiently(lambda: self._request_once(subject, payload, headers))

    async def ask_elsewhere(self, subject: str, data: bytes) -> Json:
        """Send one request to the API at any prefix, once.

        Return the answer's JSON, which may be an error of that server.

        Args:
            subject: what to ask, with its prefix.

        Raises:
            NotPermittedError: the connection's user may not ask that.
            ApiError: no answer in time, or none at all.
        """
        answer: Json = json.loads(await self.ask(subject, data, within=ANSWER_ELSEWHERE))
        return answer

    async def acknowledge(self, reply: bytes, may: Callable[[], bool]) -> bool:
        """Acknowledge a message by its reply subject, and wait until its consumer has processed it.

        Args:
            may: asked before each attempt.

        Returns:
            Whether the consumer has processed it. If `may` returned False, it perhaps has not.

        Raises:
            ApiError: no answer in time, or the consumer does not exist.
        """

        async def attempt() -> bool:
            if may():
                await self.ask(reply.decode(), b"+ACK")
                return True
            return False

        return await self._patiently(attempt)

    async def _patiently(self, request: Callable[[], Awaitable[_Answer]], patience: float | None = None) -> _Answer:
        async for attempt in AsyncRetrying(
            # No answer yet, or a cluster without a leader for the moment.
            retry=retry_if_exception(lambda error: isinstance(error, ApiError) and error.retriable),
            stop=stop_after_delay(_PATIENCE if patience is None else patience),
            wait=SERVER_BUSY.wait,
            reraise=True,
        ):
            with attempt:
                return await request()
        raise AssertionError("tenacity raises or returns")

    async def _request_once(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> Json:
        reply: Json = json.loads(await self.ask(subject, data, headers))
        error = reply.get("error")
        if error:
            code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
            raise ApiError(
                f"connection '{self.connection}': {subject}: {error.get('description')} ({error.get('err_code')})",
                http_code=code,
                err_code=err_code,
                description=str(error.get("description", "")),
                # Seconds give a cluster its leader, but no account its JetStream.
                retriable=code == 503 and err_code != NOT_ENABLED and class_of(err_code) == "passing",
            )
        for what in _LED:
            about = self.subject(f"{what.upper()}.INFO.")
            if not subject.startswith(about) or self._is_from_leader(subject[len(about) :].split(".")[0], reply):
                continue
            raise ApiError(
                f"connection '{self.connection}': {subject}: the {what} has no leader yet",
                http_code=503,
                description=f"{what} without a leader",
                retriable=True,
            )
        return reply

    def _is_from_leader(self, stream: str, info: Json) -> bool:
        # A restarted server answers from its old state until it has found the leader. At first it answers as if it
        # were not in a cluster, and reports another creation time for each stream, from its local store (2.10.27).
        cluster = info.get("cluster")
        return stream not in self._in_clusters if cluster is None else bool(cluster.get("leader"))

    async def ask(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, within: float | None = None
    ) -> bytes:
        """Send one request of any kind, once. Return the answer as it is.

        Args:
            within: seconds for the answer, if not the API's own.

        Raises:
            NotPermittedError: the connection's user may not ask that.
            InboxRefusedError: the connection's user may not receive answers.
            ApiError: no answer in time, or none at all.
        """
        if self._refused_inbox is not None:
            raise self._no_inbox(self._refused_inbox)
        place, limit = f"connection '{self.connection}'", ANSWER if within is None else within
        own = None if headers is None else dict(headers)
        request = asyncio.create_task(self.client.request(subject, data, timeout=limit, headers=own))
        self._in_flight[request] = subject
        try:
            answer = await request
        except asyncio.CancelledError:
            if (refusal := self._refused.get(request)) is None:
                raise
            raise refusal from None
        except nats_py.errors.NoRespondersError:
            raise ApiError(
                f"{place}: JetStream does not answer {subject}: is it enabled for this account?",
                http_code=503,
                err_code=NOT_ENABLED,
                description="no responders",
            ) from None
        except nats_py.errors.TimeoutError:
            raise ApiError(
                f"{place}: no answer to {subject} in {limit:g} s: the server is slow,"
                " or the user lacks permission for this subject",
                description="timeout",
                retriable=True,
            ) from None
        except (nats_py.errors.Error, OSError) as error:
            # Waiting helps only if the buffer is full because the server has not read it, not if the connection is
            # closed, the request too large, or the subject invalid.
            full = isinstance(error, nats_py.errors.OutboundBufferLimitError | OSError)
            retriable = full and not self.client.is_closed
            raise ApiError(f"{place}: {subject}: {error}", description=str(error), retriable=retriable) from None
        finally:
            del self._in_flight[request]
            self._refused.pop(request, None)
        return answer.data

    def refused(self, text: str) -> None:
        """Fail the pending requests that the permissions violation `text` names."""
        for request, subject in self._in_flight.items():
            if f'"{subject}"' in text:
                self._fail(request, NotPermittedError(f"connection '{self.connection}'", subject))

    def inbox_refused(self, inbox: str | None) -> None:
        """Fail all requests from now on, because the server refuses an inbox. None ends that."""
        self._refused_inbox = inbox
        if inbox is not None:
            for request in self._in_flight:
                self._fail(request, self._no_inbox(inbox))

    def _no_inbox(self, inbox: str) -> InboxRefusedError:
        return InboxRefusedError(f"connection '{self.connection}'", inbox)

    def _fail(self, request: asyncio.Task[Msg], error: ApiError) -> None:
        self._refused[request] = error
        request.cancel()

    async def stream_info(self, stream: str, *, deleted: bool = False, subjects: str | None = None) -> Json:
        """Request `STREAM.INFO`, optionally with interior deletes or message counts of some subjects."""
        body: Json = {"deleted_details": True} if deleted else {}
        if subjects:
            body["subjects_filter"] = subjects
        info = await self.request(f"STREAM.INFO.{stream}", body or None)
        if _is_clustered(info.get("cluster") or {}):
            self._in_clusters.add(stream)
        if deleted:
            # A memory store of 2.9 leaves out the deletes at the end.
            listed, state = info["state"].setdefault("deleted", []), info["state"]
            missing = int(state.get("num_deleted", 0)) - len(listed)
            listed.extend(range(int(state["last_seq"]) - missing + 1, int(state["last_seq"]) + 1))
        return info

    async def stream_names(self, *, subject: str = "") -> list[str]:
        """Return the names of all streams of the account, or of those with a subject that overlaps `subject`."""
        return (await self._listed("STREAM.NAMES", "streams", {"subject": subject} if subject else {}))[0]

    async def streams(self) -> tuple[list[Json], list[str]]:
        """Return all streams of the account, each as `STREAM.INFO` gives it, and the names of those that do not answer.

        A stream that comes or goes between two pages may be missed or given twice.
        """
        listed, silent, _ = await self._listed("STREAM.LIST", "streams", {})
        return listed, silent

    async def consumers(self, stream: str) -> list[Json]:
        """Return all listed consumers of a stream, each as `CONSUMER.INFO` gives it."""
        return (await self.consumers_and_silent(stream))[0]

    async def consumers_and_silent(self, stream: str) -> tuple[list[Json], int]:
        """Return the consumers, and the number of those that do not answer, which clusters leave out."""
        listed, _, total = await self._listed(f"CONSUMER.LIST.{stream}", "consumers", {})
        return listed, max(total - len(listed), 0)

    async def _listed(self, subject: str, member: str, body: Json) -> tuple[list[Any], list[str], int]:
        """Return all pages of a list: the entries, the names of those that do not answer, and the total."""
        listed: list[Any] = []
        silent: list[str] = []
        passed = 0
        while True:
            page = await self.request(subject, {"offset": passed, **body})
            # A cluster names entries whose leader did not answer in time. They count for the offset. Entries that are
            # listed as well (if all their servers are down, 2.15) count once.
            found, missing, total = page.get(member) or [], page.get("missing") or [], int(page.get("total", 0))
            listed += found
            silent += missing
            passed += len(found) + len(set(missing).difference(map(_listed_name, found)))
            if not (found or missing) or passed >= total:
                return listed, silent, total

    async def consumer_info(self, stream: str, consumer: str, *, patience: float | None = None) -> Json | None:
        """Return `CONSUMER.INFO`; None if the consumer does not exist. `patience` is that of `request`.

        A cluster's server that has just started answers for a moment as if it were in no cluster, even that the
        consumer does not exist, and before the others do. For a stream in a cluster, only a repeated answer counts.
        """
        subject = f"CONSUMER.INFO.{stream}.{consumer}"
        info = await self._unless(CONSUMER_NOT_FOUND, subject, patience=patience)
        for answers in range(1, _DOUBTED + 1) if stream in self._in_clusters else ():
            if info is not None:
                break
            await NOT_IN_CLUSTER.pause(answers)
            info = await self._unless(CONSUMER_NOT_FOUND, subject, patience=patience)
        return info

    async def create_durable(self, stream: str, config: Json, *, fence: WriteFence = ALWAYS_OPEN) -> Json:
        """Create or update a durable consumer."""
        subject = f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}"
        return await self.request(subject, {"stream_name": stream, "config": config}, fence=fence)

    async def create_ephemeral(self, stream: str, config: Json, purpose: Purpose, prefix: str = "") -> Json:
        """Create an ephemeral consumer. Its name, which the answer contains, begins with the prefix."""
        known = take_name(stream, self._client_name, purpose, prefix)
        # A server treats two consumers with the same configuration as one.
        config = {"description": f"nats-bridge {purpose} {self.client.new_inbox()}", **config}
        if server_dialect(self.client.reported_version).knows_consumer_actions:
            try:
                return await self._create_named(stream, config, known)
            except ApiError as error:
                if error.err_code != _CONSUMER_EXISTS:
                    release_name(stream, known)
                    raise
        release_name(stream, known)
        return await self._create_named(stream, config, unique(known))

    async def _create_named(self, stream: str, config: Json, name: str) -> Json:
        body = {"stream_name": stream, "config": config | {"name": name}, "action": "create"}
        return await self.request(f"CONSUMER.CREATE.{stream}", body)

    async def delete_consumer(self, stream: str, consumer: str, *, fence: WriteFence = ALWAYS_OPEN) -> bool:
        """Delete a consumer. Return False if it did not exist."""
        release_name(stream, consumer)
        request = partial(self._unless, CONSUMER_NOT_FOUND, f"CONSUMER.DELETE.{stream}.{consumer}", fence=fence)
        try:
            return await request() is not None
        except ApiError as error:
            if error.err_code != _FILES_LEFT:
                raise
        await request()
        return True

    async def forget_ephemeral(self, stream: str, consumer: str) -> None:
        """Delete an ephemeral consumer that no longer has a subscriber.

        If the user lacks the permission, only one attempt is made. The server removes inactive consumers seconds later.
        """
        if stream in self._not_to_delete_from:
            release_name(stream, consumer)
            return
        try:
            await self.delete_consumer(stream, consumer)
        except NotPermittedError:
            self._not_to_delete_from.add(stream)

    async def stored_message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return a stored message from the stream's leader, by its sequence.

        None if the message or the stream does not exist.

        Everything is exact except for a subject that is not UTF-8: JSON contains U+FFFD instead of the bytes.
        """
        return await self._stored(stream, {"seq": sequence})

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the newest message of a subject, in the same way: the next one's predecessor."""
        return await self._stored(stream, {"last_by_subj": subject})

    async def message_from(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the first message at or after a sequence, in the same way."""
        return await self._stored(stream, {"seq": sequence, "next_by_subj": ">"})

    async def _stored(self, stream: str, which: Json) -> StoredMessage | None:
        try:
            reply = await self._unless(MESSAGE_NOT_FOUND, f"STREAM.MSG.GET.{stream}", which)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            reply = None
        if reply is None:
            return None
        message = reply["message"]
        return StoredMessage(
            str(message["subject"]).encode(),
            base64.b64decode(message.get("hdrs") or ""),
            base64.b64decode(message.get("data") or ""),
            int(message["seq"]),
            nanoseconds_of(message["time"]),
        )

    async def newest_before(self, stream: str, subject: str, first: int, last: int) -> int:
        """Return the highest sequence in [first, last] of a message with this subject that still exists, 0 if none.

        Works on every version: `next_by_subj` answers the lowest sequence from a given one on, so a binary search
        over the start finds the highest. About log2(last - first) requests.
        """
        best = 0
        low, high = first, last
        while low <= high:
            middle = (low + high) // 2
            found, _ = await self.next_message(stream, subject, middle) or (0, 0)
            if found and found <= last:
                best = found
                low = found + 1
            else:
                high = middle - 1
        return best

    async def next_message(self, stream: str, subject: str, sequence: int) -> tuple[int, int] | None:
        """Return the first message from a sequence on whose subject matches, which may have wildcards.

        Only its sequence, and its time in nanoseconds since 1970; None if no such message exists.
        """
        reply = await self._unless(
            MESSAGE_NOT_FOUND, f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subject}
        )
        return (int(reply["message"]["seq"]), nanoseconds_of(reply["message"]["time"])) if reply else None

    async def _unless(
        self,
        absent: int,
        subject: str,
        body: Json | None = None,
        *,
        fence: WriteFence = ALWAYS_OPEN,
        patience: float | None = None,
    ) -> Json | None:
        try:
            return await self.request(subject, body, fence=fence, patience=patience)
        except ApiError as error:
            if error.err_code == absent:
                return None
            raise
