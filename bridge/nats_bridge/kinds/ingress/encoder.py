"""The hot loop of an ingress rule: batches of published messages in, protocol operations out.

A message keeps its payload, its raw header block and its reply subject, so the stream answers the publisher. For each
subject, the start of the operation is built once, so a message costs one look-up and one bytes operation.

A message that the stream cannot store is not published. Its publisher gets an answer in the form of the stream's own
errors, if it waits for one. A server would store some of these messages under a subject that clients cannot publish on,
or that the stream does not have.

The publisher also chooses the reply subject. Servers before 2.14.10 and 2.15.3 send a PubAck to any subject: if it is
`$JS.API.STREAM.MSG.DELETE.ORDERS`, this deletes the message with the PubAck's sequence. All servers refuse a client's
message with a reply subject of a service import. So a message with a reserved reply subject is refused. It gets an
answer only if a service import waits for it, because any service may answer there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.client.wire import Delivered
from nats_bridge.observability.counters import Counters
from nats_bridge.rules.known_subjects import KnownSubjects
from nats_transforms.republish import Refusal, unpublishable
from nats_transforms.reserved import is_reserved_reply, is_service_reply
from nats_transforms.subject import matches, text_of
from nats_transforms.transform import Transform

_LONGEST_LINE = 4000  # bytes of subject and reply; servers end a connection at lines longer than 4096
_ERROR_CODE = 10156  # the server's own for a stream transform whose destination is invalid


@dataclass(slots=True)
class IngressCounters(Counters):
    """Counts of one ingress rule since the process started, in messages unless the name says otherwise.

    Attributes:
        received: received from publishers.
        passed_on: published on their new subjects.
        bytes_out: bytes of the written operations.
        refused: not passed on, because the new subject cannot be stored or the reply subject is reserved.
        answered: refusals that were sent to publishers.
        overloaded: dropped, because too many bytes were waiting to be written.
        too_large: dropped, because the server lowered its `max_payload` while they waited.
        in_doubt: written when the connection broke, unknown whether they arrived.
        repeated_out: always 0: an ingress rule writes nothing twice.
        pauses: how often the rule unsubscribed because the stream was deleted or recreated.
        reconnects: how often the rule resumed after a lost connection.
    """

    received: int = 0
    passed_on: int = 0
    bytes_out: int = 0
    refused: int = 0
    answered: int = 0
    overloaded: int = 0
    too_large: int = 0
    in_doubt: int = 0
    repeated_out: int = 0
    pauses: int = 0
    reconnects: int = 0


class _RefusedError(Exception):
    """Messages with a subject cannot be published; the text has the reason."""


class IngressEncoder:
    """Turns published messages into operations for a stream.

    Args:
        transform: from the publisher's subject to the stream's.
        source: the subject that the rule subscribes to.
        subjects: the stream's subjects.
    """

    def __init__(
        self, transform: Transform, source: bytes, stream: str, subjects: Sequence[bytes], counters: IngressCounters
    ) -> None:
        self.last_refusal = ""
        self._transform = transform
        self._source = source
        self._stream = stream
        self._subjects = tuple(subjects)
        self._counters = counters
        self._known = self._no_subjects()

    def take(self, subjects: Sequence[bytes]) -> None:
        """Replace the stream's subjects."""
        self._subjects = tuple(subjects)
        self._known = self._no_subjects()

    def _no_subjects(self) -> KnownSubjects[bytes]:
        # The new subject by the old one, followed by a space.
        return KnownSubjects(self._becomes, kept=not self._transform.is_random)

    def run(self, batch: Sequence[Delivered], out: list[bytes]) -> None:
        """Append the operations for a batch, in order: messages for the stream, and answers to publishers."""
        get, append = self._known.young.get, out.append
        passed = 0
        for subject, reply, block, payload in batch:
            target = get(subject) or self._target(subject)
            if not target or len(target) + len(reply) > _LONGEST_LINE or is_reserved_reply(reply):
                self._refuse(subject, target, reply, out)
                continue
            passed += 1
            answered = reply + b" " if reply else reply
            if block:
                size = len(block)
                append(b"HPUB %b%b%d %d\r\n%b%b\r\n" % (target, answered, size, size + len(payload), block, payload))
            else:
                append(b"PUB %b%b%d\r\n%b\r\n" % (target, answered, len(payload), payload))
        self._counters.received += len(batch)
        self._counters.passed_on += passed

    def _target(self, subject: bytes) -> bytes:
        """Return the new subject and a space; empty if the message is refused, with the reason in `last_refusal`."""
        try:
            return self._known.enter(subject)
        except _RefusedError as error:
            self.last_refusal = f"'{text_of(subject)}' {error}"
            return b""

    def _becomes(self, subject: bytes) -> bytes:
        destination = self._transform.apply(subject)
        reason = self._reason(destination)
        if destination is None or reason:
            raise _RefusedError(reason)
        return destination + b" "

    def _reason(self, destination: bytes | None) -> str:
        """Return the reason why a message is refused; empty if it is not."""
        if destination is None:
            return "holds a wildcard as a token, which no transform matches"
        code = unpublishable(destination)
        if code is not None:
            return f"becomes {Refusal(code, destination, native=False).reason}"
        if not any(matches(destination, own) for own in self._subjects):
            return f"becomes '{text_of(destination)}', which is none of the stream's subjects"
        if matches(destination, self._source):
            return f"becomes '{text_of(destination)}', which is what the rule takes: a loop"
        return ""

    def _refuse(self, subject: bytes, target: bytes, reply: bytes, out: list[bytes]) -> None:
        if target and is_reserved_reply(reply):
            self.last_refusal = f"'{text_of(subject)}' wants its answer on '{text_of(reply)}', where no stream answers"
        elif target:
            self.last_refusal = f"'{text_of(subject[:40])}…' becomes too long for a line of the protocol"
        self._counters.refused += 1
        if reply and (not is_reserved_reply(reply) or is_service_reply(reply)):
            self._counters.answered += 1
            error = {
                "code": 400,
                "err_code": _ERROR_CODE,
                "description": f"stream transform: nats-bridge: {self.last_refusal}",
            }
            answer = json.dumps({"error": error, "stream": self._stream, "seq": 0}).encode()
            out.append(b"PUB %b %d\r\n%b\r\n" % (reply, len(answer), answer))
