"""Generates the function that applies one transform.

Theory of operation. For a given pattern, the number of tokens, the literals to compare and the tokens to pick are
constants, so a specialised function of a few lines is several times faster than a loop over parts. Its text consists of
fixed phrases and integers only. Every user-defined string is passed in as a value.
"""

from collections.abc import Callable

from nats_transforms.destination import DestinationPart, Kind
from nats_transforms.dialect import Dialect
from nats_transforms.functions import bind, bind_random
from nats_transforms.subject import DOT, REST, UNMATCHABLE, is_wild, tokens

Program = Callable[[bytes], "bytes | None"]


class _Writer:
    """Collects the values that the generated function refers to, and names them."""

    def __init__(self, dialect: Dialect) -> None:
        self.by_first_byte = dialect.first_byte_is_wildcard
        self.values: dict[str, object] = {}
        self.lines: list[str] = []

    def is_wild(self, token: bytes) -> bool:
        return is_wild(token, by_first_byte=self.by_first_byte)

    def are_literal(self, source: list[bytes]) -> bool:
        return not any(map(self.is_wild, source))

    def value(self, value: object) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return name

    def build(self) -> Program:
        body = "\n".join(f"        {line}" for line in self.lines)
        text = f"def make({', '.join(self.values)}):\n    def apply(subject):\n{body}\n    return apply\n"
        scope: dict[str, Callable[..., Program]] = {}
        # Only fixed phrases and integers are in the text, see above.
        exec(compile(text, "<transform>", "exec"), scope)
        return scope["make"](**self.values)


def compile_program(
    pattern: bytes, destination: bytes, parts: tuple[DestinationPart, ...], dialect: Dialect, *, without: bytes = b""
) -> Program:
    """Return the function that gives the result for a subject.

    It returns None if `pattern` does not match the subject, or if the result contains one of the bytes `without`.
    """
    writer = _Writer(dialect)
    if pattern == REST and destination == REST:
        writer.lines.append("return subject")  # without any check of tokens, like the server
        return writer.build()
    source = tokens(pattern)
    if source[-1] == REST:
        _match_with_rest(writer, source[:-1], parts)
    else:
        _match_exact(writer, source)
    if without:
        writer.lines.append(f"result = {_result(writer, parts)}")
        # Deleting is the only search for a set of bytes that `bytes` does at C speed.
        writer.lines.append(f"if len(result.translate(None, {writer.value(without)})) != len(result): return None")
        writer.lines.append("return result")
    else:
        writer.lines.append(f"return {_result(writer, parts)}")
    return writer.build()


def _match_exact(writer: _Writer, source: list[bytes]) -> None:
    if writer.are_literal(source):
        writer.lines.append(f"if subject != {writer.value(DOT.join(source))}: return None")
        return
    count = len(source)
    writer.lines.append(f"tokens = subject.split({writer.value(DOT)})")
    writer.lines.append(f"if len(tokens) != {count}: return None")
    writer.lines.append(f"{''.join(f't{n}, ' for n in range(count))}= tokens")
    writer.lines.append(f"if {_differs(writer, source)}: return None")


def _match_with_rest(writer: _Writer, fixed: list[bytes], parts: tuple[DestinationPart, ...]) -> None:
    bad = writer.value(UNMATCHABLE.isdisjoint)
    dot = writer.value(DOT)
    if not fixed:
        writer.lines.append("rest = subject")
    elif writer.are_literal(fixed):
        prefix = DOT.join(fixed) + DOT
        writer.lines.append(f"if not subject.startswith({writer.value(prefix)}): return None")
        writer.lines.append(f"rest = subject[{len(prefix)}:]")
    else:
        writer.lines.append(f"tokens = subject.split({dot}, {len(fixed)})")
        writer.lines.append(f"if len(tokens) != {len(fixed) + 1}: return None")
        writer.lines.append(f"{''.join(f't{n}, ' for n in range(len(fixed)))}rest = tokens")
        writer.lines.append(f"if {_differs(writer, fixed)}: return None")
    writer.lines.append(f"if not {bad}(rest.split({dot})): return None")
    needs_first = any(0 in part.positions and part.kind is not Kind.REST for part in parts)
    if needs_first and (not fixed or writer.are_literal(fixed)):
        writer.lines.append(f"t0 = subject.partition({dot})[0]")


def _differs(writer: _Writer, source: list[bytes]) -> str:
    bad = writer.value(UNMATCHABLE)
    tests = []
    for position, token in enumerate(source):
        if writer.is_wild(token):
            tests.append(f"t{position} in {bad}")
        else:
            tests.append(f"t{position} != {writer.value(token)}")
    return " or ".join(tests)


def _result(writer: _Writer, parts: tuple[DestinationPart, ...]) -> str:
    pieces: list[bytes | str] = []
    for number, part in enumerate(parts):
        if number:
            pieces.append(DOT)
        pieces.append(_piece(writer, part))
    names: list[str] = []
    text = b""
    for piece in [*pieces, ""]:
        if isinstance(piece, bytes):
            text += piece
            continue
        if text:
            names.append(writer.value(text))
            text = b""
        if piece:
            names.append(piece)
    if len(names) > 6:
        return f"{writer.value(b''.join)}(({', '.join(names)}))"
    return " + ".join(names)


def _piece(writer: _Writer, part: DestinationPart) -> bytes | str:
    """Return a constant, or the expression that gives the bytes of a destination token."""
    if part.kind is Kind.LITERAL:
        return part.text
    if part.kind is Kind.REST:
        return "rest"
    if part.kind is Kind.RANDOM:
        return f"{writer.value(bind_random(part))}()"
    key = " + ".join(f"t{position}" for position in part.positions) or "subject"
    if part.kind is Kind.WILDCARD:
        return key
    return f"{writer.value(bind(part))}({key})"
