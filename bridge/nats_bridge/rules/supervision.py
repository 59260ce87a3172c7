"""The decisions of a rule's supervisor, without I/O and without a clock.

Theory of operation. The drawn table `SUPERVISION` defines which state follows an event. Each state has one action,
listed in the second drawing. The supervisor performs that action, and its result is the next event: `done`, or one of
the others. So the supervisor does one thing at a time for a rule, and the state alone decides which.

Worked example: there are two replicas, A leads, and the stream exists. Then A's server is away for a while. In B:

    new --resume--> checking --done--> electing --done--> standby     B waits until A's lease is over
    standby --done--> starting --away--> unstarted                    B leads, but its server does not answer:
                                                                      it releases the lease and pauses for 0.25 s
    unstarted --done--> electing --done--> standby                    A has the lead again, or B gets it again
    standby --done--> starting --done--> ready                        the run of B works
    ready --lost--> cut --done--> electing --done--> standby          B's lease is over: nothing more is sent

Invariants:

* A run is open only in `starting`, `ready`, `cut`, `yielding`, `failed`, `given_up`, `halting` and `closing`.
* `starting` and `ready` are reached only with the lead.
* A rule is tried again unless a caller waits for its start, or the sidecar fails fast: then it is `given_up`.
* An interrupted action has no effect on the state after a halt.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from nats_bridge.client.waiting import RULE_FAILED, SERVER_AWAY
from nats_bridge.errors import BridgeError, RuleRefusedError, StreamMissingError
from nats_bridge.states import StateTable

_STABLE = 60.0  # seconds that a rule has run before a failure, after which the pauses begin again with the first

SupervisorState: TypeAlias = Literal["waiting", "standby", "starting", "ready", "draining", "stopped", "failed"]
"""The states in status, metrics and logs. `waiting`: a stream that the rule needs does not exist; `standby`: another
replica leads the rule; `failed`: the rule is started again after a pause, or never with `fail_fast`."""

SupervisionState: TypeAlias = Literal[
    "new",
    "checked",
    "absent",
    "checking",
    "unchecked",
    "waiting",
    "electing",
    "standby",
    "starting",
    "unstarted",
    "ready",
    "cut",
    "yielding",
    "failed",
    "given_up",
    "halting",
    "closing",
    "stopped",
]
SupervisionEvent: TypeAlias = Literal[
    "resume", "done", "missing", "away", "led", "lost", "surplus", "failed", "given_up", "halt", "halted"
]
SupervisionAction: TypeAlias = Literal[
    "check",
    "pause",
    "await_stream",
    "keep_start",
    "await_lead",
    "start_run",
    "leave_and_pause",
    "watch_run",
    "cut_run",
    "hand_over",
    "recover",
    "none",
]

SUPERVISION: StateTable[SupervisionState, SupervisionEvent] = StateTable(
    """
              resume    done      missing  away       led       lost      surplus   failed   given_up  halt     halted
    new       checking  checked   absent   -          -         -         -         -        -         halting  -
    checked   electing  checked   absent   -          -         -         -         -        -         halting  -
    absent    waiting   checked   absent   -          -         -         -         -        -         halting  -
    checking  -         electing  waiting  unchecked  -         -         -         failed   given_up  halting  -
    unchecked -         checking  -        -          -         -         -         failed   given_up  halting  -
    waiting   -         electing  -        -          -         -         -         failed   given_up  halting  -
    electing  -         standby   -        -          starting  -         -         failed   given_up  halting  -
    standby   -         starting  -        -          -         -         -         failed   given_up  halting  -
    starting  -         ready     waiting  unstarted  -         electing  -         failed   given_up  halting  -
    unstarted -         electing  -        -          -         -         -         failed   given_up  halting  -
    ready     -         -         -        -          -         cut       yielding  failed   given_up  halting  -
    cut       -         electing  -        -          -         -         -         failed   given_up  halting  -
    yielding  -         electing  -        -          -         -         -         failed   given_up  halting  -
    failed    -         checking  -        -          -         -         -         failed   given_up  closing  -
    given_up  checking  checked   absent   -          -         -         -         -        -         closing  given_up
    halting   -         halting   halting  halting    halting   halting   halting   halting  halting   halting  stopped
    closing   -         closing   closing  closing    closing   closing   closing   closing  closing   closing  given_up
    stopped   checking  checked   absent   -          -         -         -         -        -         halting  stopped
    """
)
"""`resume` starts a rule that does nothing, and `halt` ends its action and its run, until it is `halted`.

`done`: the state's action has succeeded. `missing`: a stream does not exist. `away`: a server prevents a start for the
moment. `led`: the lead is held, or needs no wait. `lost`: the lead is over, and another replica may work. `surplus`:
another replica should lead. `failed`: an error, after which the rule is started again. `given_up`: an error, after
which it is not.

`checked` and `absent` follow a check that a caller asks for before the start. `closing` ends a rule that has failed,
and remains so.
"""

_STATES: StateTable[SupervisionState, Literal["shown", "action"]] = StateTable(
    """
               shown     action
    new        starting  none
    checked    starting  none
    absent     waiting   none
    checking   starting  check
    unchecked  starting  pause
    waiting    waiting   await_stream
    electing   starting  keep_start
    standby    standby   await_lead
    starting   starting  start_run
    unstarted  starting  leave_and_pause
    ready      ready     watch_run
    cut        standby   cut_run
    yielding   draining  hand_over
    failed     failed    recover
    given_up   failed    none
    halting    draining  none
    closing    draining  none
    stopped    stopped   none
    """
)
"""The public name of each state, and the supervisor's action in it.

`await_stream`: release the lease, and wait until the missing stream exists. `keep_start`: store where a rule without a
position begins, before a long wait for the lead. `leave_and_pause`: release the lease, so that a replica that reaches
the server may lead, and pause. `cut_run`: end the run at once, without sending anything to a server. `hand_over`: drain
the run and release the lease. `recover`: the same, and pause.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rule does not run.

    Attributes:
        tries: how often it failed in a row.
        again_at: the time of the next start; None without one.
    """

    error: BaseException
    tries: int
    again_at: datetime | None

    @property
    def code(self) -> str:
        """The reason for programs."""
        return self.error.code if isinstance(self.error, BridgeError) else "unexpected"


@dataclass(frozen=True, slots=True)
class NoDetails:
    """The details of every state that has none below."""


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """`checking`, `electing`, `standby` and `starting`.

    Attributes:
        failures: how often in a row a server prevented this step.
        obstacle: the reason why a server prevented the last attempt; empty if none did.
    """

    failures: int = 0
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class PauseBefore:
    """`unchecked`, `unstarted` and `failed`.

    Attributes:
        attempt: the attempt that was prevented.
        until: the end of the pause, in the event loop's time.
    """

    attempt: StartAttempt
    seconds: float
    until: float


@dataclass(frozen=True, slots=True)
class AbsentStream:
    """`absent` and `waiting`: names the stream."""

    error: StreamMissingError


@dataclass(frozen=True, slots=True)
class WorkSince:
    """`ready`: the event loop's time at which the run became ready."""

    since: float


StateDetails: TypeAlias = NoDetails | StartAttempt | PauseBefore | AbsentStream | WorkSince

SupervisionReport: TypeAlias = Literal["nothing", "begun", "delayed", "failed", "refused"]
"""The result to report. `begun`: the rule works, or waits for a stream or for the lead. `delayed`: a server prevents
the start for now. `failed`: the rule has failed. `refused`: the rule has failed, and a caller waits for the start."""


class Supervision:
    """The state of one rule, for as long as it is in the configuration.

    Attributes:
        details: the data of this state.
        failure: the reason why the rule does not run, kept while it is restarted; None if there is none.
        tries: how often it has failed in a row.
        awaited: whether a caller waits for the result of the start.
        start_kept: whether the rule's start is stored.
        may_loop: whether the next start must first search for a loop.
    """

    def __init__(self) -> None:
        self.state: SupervisionState = "new"
        self.details: StateDetails = NoDetails()
        self.failure: Failure | None = None
        self.tries = 0
        self.awaited = False
        self.start_kept = False
        self.may_loop = False

    @property
    def shown(self) -> SupervisorState:
        """The state as status, metrics and logs show it."""
        return _STATES.rows[self.state]["shown"]  # type: ignore[return-value]

    @property
    def action(self) -> SupervisionAction:
        """The supervisor's next action."""
        return _STATES.rows[self.state]["action"]  # type: ignore[return-value]

    @property
    def attempt(self) -> StartAttempt:
        """The present attempt to start, or the prevented one; a first one otherwise."""
        match self.details:
            case StartAttempt() as attempt:
                return attempt
            case PauseBefore(attempt=attempt):
                return attempt
            case _:
                return StartAttempt()

    @property
    def pause(self) -> PauseBefore:
        """The pause of a state that has one."""
        assert isinstance(self.details, PauseBefore)
        return self.details

    @property
    def absent(self) -> AbsentStream:
        """The missing stream of a state that has one."""
        assert isinstance(self.details, AbsentStream)
        return self.details

    def resume(self, *, awaited: bool) -> SupervisionReport:
        """Start. If a caller has `awaited` it, the first error is raised there."""
        self.failure = None
        self.tries = 0
        self.awaited = awaited
        return self._move("resume", self.details if self.state == "absent" else StartAttempt())

    def happened(self, event: SupervisionEvent, at: float) -> SupervisionReport:
        """Move to the next state.

        Args:
            event: any event but `resume`, and those that have an error.
            at: the event loop's time.

        Raises:
            IllegalTransitionError: the event must not happen now.
        """
        self._leave_work(at)
        if self.state == "waiting" and event == "done":
            self.may_loop = True  # A newly created stream can complete a loop.
        match SUPERVISION.after(self.state, event):
            case "checking" | "electing" | "standby" | "starting":
                return self._move(event, self._next_attempt(event))
            case "ready":
                return self._move(event, WorkSince(at))
            case _:
                return self._move(event, NoDetails())

    def missing(self, error: StreamMissingError) -> SupervisionReport:
        """Move on after a check that did not find a stream."""
        return self._move("missing", AbsentStream(error))

    def prevented(self, error: BaseException, at: float, clock: datetime, *, fail_fast: bool) -> SupervisionReport:
        """Move on after an error of the state's action.

        Args:
            error: the reason; a passing one only delays a start, unless a caller waits for it.
            at: the event loop's time.
            clock: the same time, for people.
            fail_fast: whether a rule that has failed is not started again.
        """
        passing = isinstance(error, BridgeError) and error.passing and not self.awaited
        if not passing or self.state not in ("checking", "starting"):
            return self.failed(error, at, clock, fail_fast=fail_fast)
        attempt = StartAttempt(self.attempt.failures + 1, str(error))
        return self._move("away", _pause(attempt, SERVER_AWAY.after(attempt.failures), at))

    def failed(self, error: BaseException, at: float, clock: datetime, *, fail_fast: bool) -> SupervisionReport:
        """Handle an error that ends the rule's work for now; see `prevented`."""
        self._leave_work(at)
        if SUPERVISION.after(self.state, "failed") != "failed":
            return "nothing"  # it is being halted
        if self.awaited:
            self.awaited = False
            self.failure = Failure(error, 1, None)
            self._move("given_up", NoDetails())
            return "refused"
        self.tries += 1
        self.may_loop = self.may_loop or isinstance(error, RuleRefusedError)
        pause = RULE_FAILED.after(self.tries)
        if fail_fast:
            self.failure = Failure(error, self.tries, None)
            self._move("given_up", NoDetails())
        else:
            self.failure = Failure(error, self.tries, clock + timedelta(seconds=pause))
            self._move("failed", _pause(StartAttempt(), pause, at))
        return "failed"

    def _move(self, event: SupervisionEvent, details: StateDetails) -> SupervisionReport:
        self.state = SUPERVISION.after(self.state, event)
        self.details = details
        match self.state:
            case "waiting" | "standby" | "ready":
                self.failure = None
                self.awaited = False
                return "begun"
            case "unchecked" | "unstarted":
                return "delayed"
            case "halting" | "closing":
                self.details = NoDetails()
                self.awaited = self.start_kept = False
        return "nothing"

    def _next_attempt(self, event: SupervisionEvent) -> StartAttempt:
        # A further one only if the step is repeated and no other replica could lead in between.
        again = self.state in ("unchecked", "unstarted") or event == "led"
        return self.attempt if again else StartAttempt(0, self.attempt.obstacle)

    def _leave_work(self, at: float) -> None:
        if isinstance(self.details, WorkSince) and at - self.details.since >= _STABLE:
            self.tries = 0


def _pause(attempt: StartAttempt, seconds: float, at: float) -> PauseBefore:
    return PauseBefore(attempt, seconds, at + seconds)
