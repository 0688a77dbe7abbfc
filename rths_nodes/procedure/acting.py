# SPDX-License-Identifier: Apache-2.0
"""Course of the acts of a session: which are possible, how a stop ends them, how their motions begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from rths_nodes.core.samples import Measurement
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, UNCONDITIONAL, ActRefused, why_not
from rths_nodes.procedure.clearance import Clearance
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.machine import ActUnderWay, Seen, SessionMachine, stopped_by_operator
from rths_nodes.procedure.motions import DriveOutcome
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.rungs import RungUnderWay
from rths_nodes.procedure.warning import MotionWarning

ARMED_FOR_S = 60.0
"""After so long without a run nothing is armed any more: who armed it may look elsewhere by then."""

ON_LOST_RIG = ("rehearse", "stop", "note", "finish")
"""Acts that are possible on a rig that was lost."""

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Acting")


def as_act(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """An act of the operator, by the name of its ``method``: a stop from here on ends it.

    Raises ActRefused where it is not possible now.
    """

    @wraps(method)
    def done(self: S, /, *args: P.args, **arguments: P.kwargs) -> T:
        with self.act():
            self._begin(method.__name__)
            return method(self, *args, **arguments)

    return done


def lost(drive: RigDrive) -> str:
    """Return why nothing drives the rig any more; empty while the session with its far end lasts.

    A far end that gives the ticks ends its session itself; any other rig follows again once its interlock closes.
    """
    return drive.broken or (drive.port.interlock if drive.port.follows_rig else "")


class Acting:
    """Base of every act of a session: the ``machine`` of its states, its ``drive`` and what is armed.

    :meth:`hold`, :meth:`resume` and :meth:`stop` may be called from any thread while another act is under way.
    """

    drive: RigDrive
    warning: MotionWarning
    clearance: Clearance
    _taken: Offsets | None

    def __init__(self, machine: SessionMachine, clock: Clock) -> None:
        self._machine, self._clock = machine, clock
        self._rung: RungUnderWay | None = None
        self._losses = 0
        """Number of times that the rig had ceased to follow when it was positioned."""
        self._armed_until = 0
        """By the monotonic clock, ns."""

    def note(self, text: str, by: str = "") -> None:
        """Words for the report."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def reason(self) -> str:
        """Why the state was entered; empty where it goes without saying."""
        return self._machine.reason

    @property
    def seen(self) -> Seen:
        return self._machine.seen

    def act(self, name: str = "", seen: Seen | None = None) -> AbstractContextManager[ActUnderWay]:
        """An act of the operator that is more than one of these: a stop ends what follows in it.

        Entering it raises ActRefused if a stop or another state has come since its sender has ``seen`` them.
        """
        return self._machine.act(name, None if name in UNCONDITIONAL else seen)

    @property
    def stopped(self) -> str:
        """Why the operator has stopped the act in which the caller is, in words; empty while nobody has."""
        act = self._machine.under_way
        return act.stopped if act is not None else ""

    @property
    def at_work(self) -> bool:
        """True while an act is under way, or something is armed."""
        return self._machine.busy or self.state is State.ARMED

    def possible(self) -> dict[str, str]:
        """Every act: empty where it is possible now, else why it is not."""
        with self._machine.lock:
            self._leave_start()
            return {act: self._why_not(act) for act in ACTS}

    def _why_not(self, act: str) -> str:
        if self.state is State.TRIPPED and act not in ON_LOST_RIG and (reason := lost(self.drive)):
            return f"{reason}: nothing drives this rig any more: finish"
        if reason := why_not(act, self.state):
            return reason
        suspended = self._rung is not None and self._rung.suspended
        if act == "resume" and not suspended:
            return "nothing is held that could go on: the rung is over"
        if act == "freeze" and (reason := self._nothing_learns()):
            return reason
        if suspended and act not in ("resume", "freeze", "stop", "note"):
            return "a rung is held: resume or stop it"
        if act in ("hold", "resume") and self._rung is not None and self._rung.stopped:
            return f"the rung is being stopped: {self._rung.stopped}"
        if act == "confirm_offsets" and self._taken is None:
            return "no offsets were taken"
        if act == "sign_for" and not self.clearance.unsigned():
            return "nothing is to be signed for"
        if ACTS[act].moves and (reason := self.drive.unfit()):
            return reason
        return self.clearance.barred() if act in ("position", "arm", "run") else ""

    def _nothing_learns(self) -> str:
        """Why there is nothing to freeze; empty where copies of the specimen learn."""
        if self._rung is None:
            return "nothing learns: the rung is over"
        if self._rung.armed.scenario.updating is None:
            return "nothing learns: the scenario has no section updating"
        return "the copies of the specimen are frozen already" if self._rung.frozen else ""

    # -- hold, resume, stop -------------------------------------------------------------------------------

    def hold(self, reason: str = "") -> None:
        """In slow time the rung stands still until :meth:`resume`; in real time it ends here, held."""
        with self._machine.lock:
            self._begin("hold")
            assert self._rung is not None
            self._rung.hold(reason or "the operator holds the test")

    def freeze(self) -> None:
        """Copies of the specimen stay as they are, from the next sample to the end of the rung; any thread."""
        with self._machine.lock:
            self._begin("freeze")
            assert self._rung is not None
            self._rung.freeze()

    @as_act
    def resume(self) -> None:
        """The rung that is held goes on."""
        with self._warned("resume", held=False), self._machine.lock:
            self._begin("resume")
            assert self._rung is not None
            self._rung.resume()

    def stop(self, reason: str = "") -> None:
        """Whatever moves comes to rest and is held; what is armed is so no more. From any thread.

        Every act that is under way ends, and neither moves nor arms anything from now on.
        """
        reason = reason or "the operator stops the rig"
        with self._machine.lock:
            self._machine.stop(reason)
            if self.state is State.ARMED:
                self._rung = None
                self._machine.to(State.HELD, reason)
            elif self._rung is not None and (self._machine.moving or self._rung.suspended):
                self._rung.stop(reason)
            else:
                self.drive.stop(reason)

    # -- how acts go --------------------------------------------------------------------------------------

    def _begin(self, act: str) -> None:
        """Raises ActRefused where ``act`` is not possible now, or was stopped meanwhile."""
        with self._machine.lock:
            self._leave_start()
            reason = stopped_by_operator(self.stopped) if self.stopped else self._why_not(act)
            if reason:
                raise ActRefused(f"{act}: {reason}")

    def _leave_start(self) -> None:
        """Leave a state at rest if the rig is lost, or start and arming if the rig or the clock demands it.

        Called with each Measurement. The last call, once no tick follows any more, waits for the lock.
        """
        self._machine.leave(self._displaced, wait=bool(self.drive.broken))

    def _ready(self) -> None:
        """The drive goes on in this act, unless that was stopped: raises ActRefused then."""
        with self._machine.lock, self.act() as act:
            act.go_on()
            self.drive.ready()

    def _lapsed(self) -> tuple[State, str] | None:
        """Where the rig gets, and why, because what is armed was armed too long ago."""
        if self._clock.monotonic_ns() <= self._armed_until:
            return None
        return State.HELD, f"armed for {ARMED_FOR_S:g} s without a run: position and arm again"

    def _displaced(self) -> tuple[State, str] | None:
        """The same for anything that the rig, or the clock, may have against what is armed, or at the start."""
        if self.state is State.HELD and self._rung is not None:
            return None  # the port of the rung that is held ends it
        if reason := lost(self.drive):
            self.note(f"the rig was lost in the state {self.state.name}: {reason}", "rths")
            self._rung = None
            return State.TRIPPED, reason
        if self.state not in (State.POSITIONED, State.ARMED):
            return None
        loss = self.drive.loss
        reason = loss.last if loss.count > self._losses else ""
        if self.state is State.POSITIONED:
            return (State.HELD, f"{reason}: position again") if reason else None
        reason = self.drive.unfit() or reason
        then = (State.TRIPPED, reason) if reason else self._lapsed()
        if then is not None:  # no stop goes to it any more
            self._rung = None
        return then

    def _measured(self, measured: Measurement) -> None:
        """Take in a Measurement, in the thread that drives the rig."""
        self.warning.look()
        self._leave_start()

    def _warn(self, act: str, held: bool = True) -> None:
        """Warn of the motion of ``act``; the rig is ``held`` by the drive, or by a rung."""
        if not self.warning.wired:
            return
        self._begin(act)
        if held:
            self._ready()
        under_way = self._machine.under_way
        self.warning.begin(act, lambda: under_way.stopped if under_way is not None else "", held)

    @contextmanager
    def _warned(self, act: str, held: bool = True) -> Iterator[None]:
        """Warn of the motion of ``act`` before the block."""
        self._warn(act, held)
        try:
            yield
        finally:
            self.warning.off()

    @contextmanager
    def _moving(
        self, act: str, state: State, then: State, begins: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """The motions of ``act``: the first one enters ``state``, which ends in ``then``, or held or tripped.

        ``begins`` is called with it. What is refused before the first motion has changed nothing.
        """
        drive, machine = self.drive, self._machine
        entered = False

        def begin() -> None:
            nonlocal entered
            self._warn(act)
            with machine.lock:
                self._begin(act)
                self._ready()
                self._losses = drive.loss.count
                machine.to(state)
                entered = True
                begins()

        drive.expect(begin)
        try:
            yield
        except BaseException:
            drive.expect(lambda: None)  # of an act that is refused before its motion the next one begins nothing
            if entered:
                drive.stop("the act has failed")
                machine.brake("the act has failed")
                machine.to(State.TRIPPED, "the act has failed")
            raise
        finally:
            self.warning.off()
        with machine.lock:
            mishap = drive.mishap or (DriveOutcome(self.stopped) if self.stopped else None)
            if mishap is None:
                machine.to(then)
                return
            machine.brake(mishap.reason)
            machine.to(State.TRIPPED if mishap.tripped else State.HELD, mishap.reason)
        raise ActRefused(mishap.reason)
