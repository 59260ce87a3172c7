"""Restores subjects with `@` that a server has cut.

Between two servers, a delivery has its subject after its reply subject and an `@`. Up to 2.10.27 and 2.11.1, the last
server cuts this at the last `@`, even if that one is the subject's own (seen on 2.9.10 and 2.10.27, nats-server#6777).
Then the rest of the subject stays in the reply subject. If an `@` ends the subject, nothing is cut, and the delivery
has the subject of the inbox.
"""

import re

_CUT = re.compile(rb"(\$JS\.ACK(?:\.[^.]+){2}(?:\.[0-9]+){5})@(.*)", re.DOTALL)


def restored(subject: bytes, reply: bytes, inboxes: bytes) -> tuple[bytes, bytes]:
    """Return the subject and the reply subject of a message as its consumer sent them.

    Args:
        subject: as it arrived.
        reply: as it arrived.
        inboxes: how the subjects of the connection's inboxes begin.
    """
    cut = _CUT.fullmatch(reply)
    if cut is None:
        return subject, reply
    ack, front = cut.groups()
    if front.endswith(b"@") and subject.startswith(inboxes):
        return front, ack
    return b"%b@%b" % (front, subject), ack
