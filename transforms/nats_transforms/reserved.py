"""Subjects that are commands to a server: requests of JetStream's API, acknowledgements, internal replies.

Theory of operation. The sidecar publishes messages of other clients with its own permissions. If a message can choose
the subject, its author can send commands with these permissions. So a subject that is computed from a message is never
reserved. Servers apply the same rule in republish, deliveries and snapshots since 2.14.10 and 2.15.3. Before, a client
that may publish to the source of a republish rule could direct it to `$JS.API.STREAM.DELETE.ORDERS`.

Example: the transform `in.*.>` to `{{wildcard(1)}}.>` turns `in.$JS.API.STREAM.DELETE.ORDERS` into
`$JS.API.STREAM.DELETE.ORDERS`. `reserving_subject` finds such a subject, to show it in a warning.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product

from nats_transforms.destination import DestinationPart, Kind
from nats_transforms.subject import ANY, DOT, REST, matcher, matches, tokens
from nats_transforms.transform import Transform

_JETSTREAM = b"$JS."
_INTERNAL = (b"_R_.", b"_GR_.", b"$GR.")
_COMMANDS = frozenset((b"API", b"ACK", b"FC", b"SNAPSHOT", b"EVENT"))

DENIED = (
    "$JS.API.>",
    "$JS.*.API.>",
    "$JS.ACK.>",
    "$JS.FC.>",
    "$JS.SNAPSHOT.>",
    "$JS.EVENT.>",
    "_R_.>",
    "_GR_.>",
    "$GR.>",
)
"""Patterns of all reserved subjects, for a `deny` of a user."""


def is_reserved(subject: bytes) -> bool:
    """Return whether publishing on a subject is a command to the server.

    `$JS.API`, `$JS.<domain>.API`, `$JS.ACK`, `$JS.FC`, `$JS.SNAPSHOT` and `$JS.EVENT`, with all subjects below them;
    all subjects below `_R_`, `_GR_` and `$GR`, which are replies of service imports and gateways. Servers since 2.14.10
    and 2.15.3 decide in the same way.
    """
    if subject.startswith(_INTERNAL):
        return True
    if not subject.startswith(_JETSTREAM):
        return False
    parts = subject.split(DOT, 3)
    return parts[1] in _COMMANDS or (len(parts) > 2 and parts[2] == b"API")


def is_reserved_reply(subject: bytes) -> bool:
    """Return whether a server refuses a client's message with this reply subject, or did not and should have.

    Servers refuse replies below `_R_`, `_GR_`, `$GR` and `$JS.ACK`, and since 2.14.10 and 2.15.3 all below `$JS`.
    Before, a stream answered there with the server's own permissions.
    """
    return subject.startswith((_JETSTREAM, *_INTERNAL))


def is_service_reply(subject: bytes) -> bool:
    """Return whether a reply subject belongs to a service import, on which services answer."""
    return subject.startswith(b"_R_.")


def may_be_reserved(transform: Transform) -> bool:
    """Return whether the start of a destination allows a reserved subject; False is certain."""
    first = transform.parts[0] if transform.parts else None
    if first is None or first.kind is not Kind.LITERAL:
        return True
    return first.text in _FIRST_TOKENS


def always_reserved(transform: Transform) -> bool:
    """Return whether every result of a transform is reserved, for any subject."""
    return bool(transform.parts) and is_reserved(transform.covering)


_FIRST_TOKENS = frozenset(each.partition(DOT)[0] for each in (_JETSTREAM, *_INTERNAL))
_EXAMPLES = (b"$JS.API.STREAM.DELETE.ORDERS", b"$JS.hub.API.STREAM.DELETE.ORDERS", b"_R_.reply")
_MOST_TRIED = 20_000  # subjects; a search takes some hundredths of a second


def reserving_subject(
    transform: Transform, within: Sequence[bytes] = (REST,), exclude: Sequence[bytes] = ()
) -> bytes | None:
    """Search for a subject that a transform turns into a reserved one.

    Args:
        transform: the transform.
        within: patterns of the existing subjects, such as those of the stream.
        exclude: patterns of subjects that never reach the transform.

    Returns:
        The first one found. The search tries the forms of reserved subjects, cut as the destination cuts tokens; a
        contrived transform may have one that it does not find.
    """
    if transform.is_empty or not may_be_reserved(transform):
        return None
    excluded = matcher(exclude)
    for wanted in within:
        for subject in islice(_candidates(transform.pattern, wanted, transform.parts), _MOST_TRIED):
            if not matches(subject, wanted) or (excluded is not None and excluded(subject)):
                continue
            result = transform.apply(subject)
            if result is not None and is_reserved(result):
                return subject
    return None


def _candidates(pattern: bytes, wanted: bytes, parts: Sequence[DestinationPart]) -> Iterator[bytes]:
    """Subjects that may match both patterns, with pieces of reserved subjects for their wildcards."""
    mine, theirs = tokens(pattern), tokens(wanted)
    length = max(len(mine) - (mine[-1] == REST), len(theirs) - (theirs[-1] == REST))
    choices: list[Sequence[bytes]] = []
    for position in range(length):
        literals = [row[position] for row in (mine, theirs) if position < len(row) and row[position] not in (ANY, REST)]
        choices.append(literals[:1] or _pieces(parts))
    open_ended = mine[-1] == theirs[-1] == REST
    if not open_ended:
        yield from map(DOT.join, product(*choices))
        return
    for rest in _rests():
        yield from (DOT.join((*chosen, rest)) for chosen in product(*choices))


def _rests() -> Iterator[bytes]:
    # A form without its first token, whole, and without its first two.
    for form in _EXAMPLES:
        row = tokens(form)
        yield from (DOT.join(row[start:]) for start in (1, 0, 2) if row[start:])


def _pieces(parts: Sequence[DestinationPart]) -> Sequence[bytes]:
    """Tokens that reserved subjects begin with, and such as a function that cuts makes several of them of."""
    pieces = [b"$JS", b"API", b"ACK", b"hub", b"_R_"]
    for part in parts:
        if part.kind is Kind.SPLIT:
            pieces += [part.delimiter.join(row) for row in ((b"$JS", b"API", b"x"), (b"_R_", b"x"))]
        elif part.is_function:
            pieces += [b"$JSAPI", b"_R_x", b"x$JS", b"$JSx"]
    return list(dict.fromkeys(pieces))
