"""Finds where the replicas of a stream differ, message by message, in what arrives of each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["missing", "extra", "different"]

_ALL: Final = 1 << 64  # above every sequence


class Held(NamedTuple):
    """A message as a replica holds it; `time` is when it was stored, nanoseconds since 1970."""

    subject: bytes
    headers: bytes
    payload: bytes
    time: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with one sequence.

    Attributes:
        kind: `missing`: these servers lack a message that the others hold, or half of them; `extra`: these hold one
            that most lack; `different`: these hold another one than most, or no two hold the same.
        servers: where.
        parts: what is different: fields of `Held`.
    """

    kind: Kind
    servers: tuple[str, ...]
    parts: tuple[str, ...] = ()


class Comparing:
    """Compares what arrives, in order of sequences, from each of some servers.

    Args:
        servers: their names.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self._held: dict[str, dict[int, Held]] = {server: {} for server in servers}
        self._passed = dict.fromkeys(servers, 0)

    def take(self, server: str, messages: Iterable[tuple[int, Held]], passed: int | None) -> None:
        """Take the next messages of a server.

        Args:
            server: its name.
            messages: with their sequences.
            passed: the last sequence of which it is known now whether it is held; None for all.
        """
        self._held[server].update(messages)
        self._passed[server] = _ALL if passed is None else passed

    def leave_out(self, server: str) -> None:
        """Compare the others alone from here on."""
        del self._held[server], self._passed[server]

    @property
    def next_server(self) -> str:
        """Of which most is unknown."""
        return min(self._passed, key=self._passed.__getitem__)

    @property
    def passed(self) -> int:
        """The last sequence that is compared."""
        return min(self._passed.values(), default=_ALL)

    def differences(self) -> Iterator[tuple[int, Difference]]:
        """Compare all sequences up to `passed`, and forget their messages."""
        passed = self.passed
        held = {server: _up_to(messages, passed) for server, messages in self._held.items()}
        first, *others = held.values() if held else ({},)
        if all(other == first for other in others):
            return
        for sequence in sorted(set().union(*held.values())):
            values = {server: messages.get(sequence) for server, messages in held.items()}
            for difference in _differences(values):
                yield sequence, difference


def _up_to(messages: dict[int, Held], last: int) -> dict[int, Held]:
    """Take out the messages up to a sequence."""
    taken = {}
    for sequence in list(messages):
        if sequence > last:
            break
        taken[sequence] = messages.pop(sequence)
    return taken


def _differences(values: Mapping[str, Held | None]) -> Iterator[Difference]:
    (common, times), *_ = Counter(values.values()).most_common(1)
    if times == len(values):
        return
    holding = [server for server, value in values.items() if value is not None]
    if 2 * times > len(values) and common is None:
        yield Difference("extra", tuple(holding))
        return
    if lacking := tuple(server for server, value in values.items() if value is None):
        yield Difference("missing", lacking)
    present = [values[server] for server in holding]
    if len(set(present)) > 1:
        usual = common if 2 * times > len(values) else None
        other = tuple(server for server in holding if values[server] != usual)
        parts = tuple(
            part for at, part in enumerate(Held._fields) if len({each[at] for each in present if each is not None}) > 1
        )
        yield Difference("different", other, parts)
