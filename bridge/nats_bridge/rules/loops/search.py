"""Searches for loops: cycles of streams, native features and rules in which messages would never end. Pure.

Theory of operation. A state is a place and the pattern of subjects that messages can have there. Every move leads from
states to states. A message in a loop takes an endless path through states, and because their number is finite, that
path contains a cycle. So the search takes only moves that can be part of a cycle for some subjects, starts messages
with any subject at each place, collects the states that occur, and searches for cycles among them.

A path on which the subjects end (`orders.raw.>` becomes `work.>`, and that becomes `orders.done.>`, which the first
rule does not read) is not a loop, even if it passes the same stream several times. Patterns may match more than can
occur (functions with unknown results, subjects that grow or shrink in every turn). So a loop may be reported although
messages would only pass several times, but no loop is missed.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nats_bridge.rules.loops.moves import Landscape, MessageLocation, Move, Reach
from nats_bridge.settings import Settings
from nats_transforms.subject_patterns import EVERYTHING, Pattern


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop.

    Attributes:
        rule: the name of a rule in it; None for a native loop without rules.
        path: the cycle, from a place to itself.
    """

    rule: str | None
    path: str

    def __str__(self) -> str:
        if self.rule is None:
            return f"native loop, which no rule takes part in: {self.path}"
        return f"rule '{self.rule}': loop: {self.path}: choose a destination outside"


def find_loops(settings: Settings, reaches: Mapping[str, Reach]) -> list[Loop]:
    """Return one loop for each rule that is in one, and the loops of servers alone.

    Args:
        reaches: the reach of each connection, by name. A rule with a missing connection is left out.
    """
    moves = Landscape(reaches).moves(settings)
    several = len({reach.space for reach in reaches.values()}) > 1
    found = []
    steps = _steps(moves)
    for rule in settings.rules:
        turn = _shortest_turn([step for step in steps if step.move.rule == rule.name], steps)
        if turn:
            found.append(Loop(rule.name, _path(turn, several=several)))
    native = _steps([move for move in moves if move.rule is None])
    reported: set[Move] = set()
    for step in native:
        if step.move not in reported and (turn := _shortest_turn([step], native)):
            reported |= {each.move for each in turn}
            found.append(Loop(None, _path(turn, several=several)))
    return found


@dataclass(frozen=True, slots=True)
class _State:
    place: MessageLocation
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class _Step:
    """A move made by messages with certain subjects."""

    move: Move
    before: _State
    after: _State


class _Exits:
    """The moves from one place, with an index: an account can have thousands of streams."""

    def __init__(self) -> None:
        self._all: list[Move] = []
        self._by_first: dict[bytes | None, list[Move]] = defaultdict(list)

    def add(self, move: Move) -> None:
        self._all.append(move)
        self._by_first[move.selects.first].append(move)

    def for_subjects(self, pattern: Pattern) -> list[Move]:
        """Return the moves that may take some of these subjects."""
        if pattern.first is None:
            return self._all
        return self._by_first.get(pattern.first, []) + self._by_first.get(None, [])


def _steps(all_moves: Sequence[Move]) -> list[_Step]:
    """Return all steps of messages that begin with any subject, without those that cannot be part of a cycle."""
    moves = _in_rounds(all_moves, lambda move: (move.takes, move.puts))
    exits: dict[MessageLocation, _Exits] = defaultdict(_Exits)
    for move in moves:
        exits[move.takes].add(move)
    # Tokens beyond those that any move reads make no difference, so growing subjects reach the same pattern again.
    depth = max((move.depth for move in moves), default=0) + 1
    most = 64 + 16 * len(moves)
    states = {_State(place, EVERYTHING) for place in exits}
    steps: list[_Step] = []
    waiting = deque(sorted(states, key=str))
    patterns: dict[MessageLocation, int] = defaultdict(int)
    while waiting:
        state = waiting.popleft()
        for move in exits[state.place].for_subjects(state.pattern):
            carried = move.carry(state.pattern)
            if carried is None:
                continue
            after = _State(move.puts, carried.shortened(depth))
            if after not in states:
                patterns[move.puts] += 1
                if patterns[move.puts] > most:
                    # There are too many to follow one by one, so include all subjects.
                    after = _State(move.puts, EVERYTHING)
            if after not in states:
                states.add(after)
                waiting.append(after)
            steps.append(_Step(move, state, after))
    return _in_rounds(steps, lambda step: (step.before, step.after))


_Edge = TypeVar("_Edge")
_Node = TypeVar("_Node", bound=Hashable)


def _in_rounds(edges: Iterable[_Edge], ends: Callable[[_Edge], tuple[_Node, _Node]]) -> list[_Edge]:
    """Return the edges without those that can be part of no round: nothing leads to them, or on from them."""
    kept = list(edges)
    while True:
        begins = {ends(edge)[0] for edge in kept}
        reached = {ends(edge)[1] for edge in kept}
        fewer = [edge for edge in kept if ends(edge)[0] in reached and ends(edge)[1] in begins]
        if len(fewer) == len(kept):
            return kept
        kept = fewer


def _shortest_turn(through: Iterable[_Step], steps: Sequence[_Step]) -> list[_Step]:
    """Return the shortest cycle that begins with one of these steps; empty if none exists."""
    leaving: dict[_State, list[_Step]] = defaultdict(list)
    for step in steps:
        leaving[step.before].append(step)
    turns = [turn for step in through if (turn := _way_back(step, leaving))]
    return min(turns, key=len, default=[])


def _way_back(first: _Step, leaving: Mapping[_State, Sequence[_Step]]) -> list[_Step]:
    came: dict[_State, _Step] = {first.after: first}
    waiting = deque([first.after])
    while waiting and first.before not in came:
        state = waiting.popleft()
        for step in leaving.get(state, ()):
            if step.after not in came:
                came[step.after] = step
                waiting.append(step.after)
    if first.before not in came:
        return []
    way = [came[first.before]]
    while way[-1] is not first:
        way.append(came[way[-1].before])
    return _once(way[::-1])


def _once(way: list[_Step]) -> list[_Step]:
    """Return a single turn of a cycle that repeats the same moves until the subjects are equal as well."""
    moves = [step.move for step in way]
    for length in range(1, len(way)):
        if len(way) % length == 0 and moves == moves[:length] * (len(way) // length):
            return way[:length]
    return way


def _path(way: Sequence[_Step], *, several: bool) -> str:
    """Return a path as text. With `several` spaces, streams are shown with their connection."""

    def place_of(step: _Step) -> str:
        place = step.before.place
        where = f" on '{place.space}'" if several else ""
        if place.kind == "store":
            return f"stream {place.stream}{where}"
        # A stream that takes the message names the place itself.
        return f"subjects {step.move.selects}{where}" if place.kind == "space" and step.move.text else ""

    first = next(number for number, step in enumerate(way) if place_of(step))
    turned = [*way[first:], *way[:first], way[first]]
    said = [text for step in turned for text in (place_of(step), step.move.text) if text]
    return " → ".join(said[:-1])  # ends with the place that it began with
