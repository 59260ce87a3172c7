"""Fetches the message of an advisory from its stream.

The leader reads the message (`STREAM.MSG.GET`), because a replica that lags behind (`DIRECT.GET`) would report an
existing message as missing. Only a message whose subject is not UTF-8, which the leader's JSON cannot contain, is read
from replicas.
"""

from dataclasses import replace

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.client.waiting import NO_ANSWER, QUIET
from nats_bridge.errors import ApiError, NotPermittedError, RuleRefusedError
from nats_bridge.observability.log_throttle import Pace
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage

_log = structlog.get_logger("bridge.rule")

_UNKNOWN = "\ufffd".encode()


class MessageFetch:
    """Fetches stored messages.

    Args:
        rule: the rule's name, for messages.
        connection: the connection that holds the streams.
    """

    def __init__(self, rule: str, connection: Connection) -> None:
        self._rule = rule
        self._connection = connection
        self._raw = RawRequests(connection)
        self._pace = Pace()
        self.waits_for = ""  # the stream whose messages cannot be read at this moment

    async def open(self) -> None:
        """Prepare."""
        await self._raw.open()

    async def close(self) -> None:
        """Stop fetching."""
        await self._raw.close()

    async def get(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return a stored message, waiting for the server without a limit. Return None if it does not exist.

        Raises:
            RuleRefusedError: the user may not read the stream.
            ApiError: the server refuses permanently.
        """
        while True:
            await self._connection.connected()
            try:
                message = await self._connection.api.stored_message(stream, sequence)
            except NotPermittedError as error:
                raise RuleRefusedError(
                    f"rule '{self._rule}': attach_message needs to read stream '{stream}': {error}"
                ) from None
            except ApiError as error:
                if not error.passing:
                    raise
                self.waits_for = stream
                if self._pace.due():
                    _log.warning("rule.message_not_seen", rule=self._rule, stream=stream, reason=str(error))
                await NO_ANSWER.pause()
                continue
            self.waits_for = ""
            if message is None or _UNKNOWN not in message.subject:
                return message
            return replace(message, subject=await self._raw_subject(stream, sequence) or message.subject)

    async def _raw_subject(self, stream: str, sequence: int) -> bytes | None:
        subject = self._connection.api.subject(f"DIRECT.GET.{stream}").encode()
        answer = await self._raw.ask(subject, b"", b'{"seq":%d}' % sequence, within=QUIET)
        return header_block.read(answer[2], b"Nats-Subject") if answer is not None else None
