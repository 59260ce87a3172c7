"""States drawn as a table, which the program also follows: an event in a state leads to the next state."""

from typing import Generic, TypeVar

_State = TypeVar("_State", bound=str)
_Event = TypeVar("_Event", bound=str)

_REFUSED = "-"


class IllegalTransitionError(RuntimeError):
    """An event in a state in which it must not happen, because of a bug in the program."""


class StateTable(Generic[_State, _Event]):
    """A table of states.

    Args:
        drawing: a line with the events; then a line for each state: its name, and for each event the next state, or `-`
            if the event must not happen.

    Attributes:
        rows: by state and event, the state that follows.
    """

    def __init__(self, drawing: str) -> None:
        self.drawing = drawing
        events, *lines = [line.split() for line in drawing.strip().splitlines()]
        self.rows = {state: dict(zip(events, following, strict=True)) for state, *following in lines}

    def after(self, state: _State, event: _Event) -> _State:
        """Return the state that follows.

        Raises:
            IllegalTransitionError: the event must not happen in this state.
        """
        following = self.rows[state][event]
        if following == _REFUSED:
            raise IllegalTransitionError(f"'{event}' must not happen in state '{state}'")
        return following  # type: ignore[return-value]
