# SPDX-License-Identifier: Apache-2.0
"""Acts of a session: guards, stops, and the begin and end of their motions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.procedure_record import NOT_VERIFIED, SIGNED, ProcedureRecord
from rths_nodes.loop.scenario.judgement.rule import Judgement
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, UNCONDITIONAL, ActRefused, why_not
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.machine import ActUnderWay, Seen, SessionMachine, stopped_by_operator
from rths_nodes.procedure.motions import DriveOutcome
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.rungs import RungUnderWay
from rths_nodes.procedure.warning import MotionWarning

CHANNELS = ("displacement", "force")


@dataclass(frozen=True)
class ToSign:
    """An item to sign for: ``name``, ``words`` for people; a scale has ``axis`` and the sensor's ``channel``."""

    name: str
    words: str
    axis: str
    channel: str = ""

    @property
    def called(self) -> tuple[str, ...]:
        """Names for it in an answers file; an axis means all of its scales."""
        return (self.name, self.words, self.axis) if self.channel else (self.name, self.words)


class Clearance:
    """Findings of the checks in ``record`` on the ``axes`` of the rig, and signatures of the operator.

    ``cautions`` concern numbers of scenario and rig file; one signature lasts.
    """

    def __init__(
        self, record: ProcedureRecord, axes: Mapping[str, RigAxis], cautions: Sequence[Judgement] = ()
    ) -> None:
        self._record, self._axes = record, axes
        self.cautions = [ToSign(each.name, each.words, "") for each in cautions]
        self._offsets: Offsets | None = None
        self._signed: set[str] = set()
        """Words of the signed items."""

    def begin(self, offsets: Offsets) -> None:
        """Discard checks and signatures, after new ``offsets`` or before a new check."""
        self._offsets = offsets
        self._record.checks = {}
        self._signed = self.signed_cautions

    def signed_before(self, earlier: Mapping[str, str]) -> None:
        """Take over signatures of an earlier test on the same rig: words and person."""
        for each in self.cautions:
            if each.words in earlier and each.words not in self._signed:
                self._signed.add(each.words)
                self._record.deviations.append(f"{each.words}: signed for {earlier[each.words]}")

    @property
    def signed_cautions(self) -> set[str]:
        return self._signed.intersection(caution.words for caution in self.cautions)

    def barred(self) -> str:
        """Return why the rig must not move to the start, or empty."""
        checks = self._record.checks
        if not checks:
            return "the axes were not checked"
        found = [words for each in checks.values() for words in each.findings]
        return "\n".join(
            found + [f"{each.words}: verify it, or sign for it ({each.name})" for each in self.wanting()]
        )

    def unsigned(self) -> list[str]:
        """Return the names of items that are neither verified nor signed for."""
        return [each.name for each in self.wanting()]

    def wanting(self) -> list[ToSign]:
        """Return these items."""
        found = list(self.cautions)
        found += [
            ToSign(f"scale of {channel} of {name}", f"scale of {channel} of {name} not verified", name, channel)
            for name, checks in self._record.checks.items()
            for channel in CHANNELS
            if getattr(checks, f"{channel}_scale") == NOT_VERIFIED
        ]
        found += [
            ToSign(f"stiffness of {name}", words, name)
            for name, checks in self._record.checks.items()
            for words in checks.unlike
        ]
        if self._offsets is not None:
            at_rest = self._offsets.forces_at_rest(self._axes)
            found += [ToSign(f"force at rest of {name}", words, name) for name, words in at_rest.items()]
        return [each for each in found if each.words not in self._signed]

    def meant(self, what: str) -> ToSign:
        """Return the item with exactly this name or these words. Raises ConfigError."""
        wanting = self.wanting()
        meant = next((each for each in wanting if what in (each.name, each.words)), None)
        if meant is None:
            names = "; ".join(each.name for each in wanting)
            raise ConfigError(
                f"sign_for: {what or 'empty'}: is not to be signed for; by its whole name that is: {names}"
            )
        return meant

    def sign(self, what: str, by: str) -> None:
        """Record that the operator signs for ``what``. Raises ConfigError as :meth:`meant`."""
        meant = self.meant(what)
        self._signed.add(meant.words)
        self._record.deviations.append(f"{meant.words}: signed for by {by or 'the operator'}")
        if meant.channel:
            setattr(self._record.checks[meant.axis], f"{meant.channel}_scale", SIGNED)


ARMED_FOR_S = 60.0
"""Time after which an armed rung is disarmed, because the operator may have left, s."""

ON_LOST_RIG = ("rehearse", "stop", "note", "finish")
"""Acts that remain possible after the loss of a rig."""

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Acting")


def as_act(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method as the act of its name, ended by a stop. Raises ActRefused if impossible."""

    @wraps(method)
    def done(self: S, /, *args: P.args, **arguments: P.kwargs) -> T:
        with self.act():
            self._begin(method.__name__)
            return method(self, *args, **arguments)

    return done


def lost(drive: RigDrive) -> str:
    """Return why the rig is lost; empty while it is driven.

    A far end that gives the ticks ends its session itself; any other rig follows again once its interlock closes.
    """
    return drive.broken or (drive.port.interlock if drive.port.follows_rig else "")


class Acting:
    """Base of all acts of a session: its ``machine``, its ``drive`` and the armed rung.

    :meth:`hold`, :meth:`resume` and :meth:`stop` are thread-safe and possible during another act.
    """

    drive: RigDrive
    warning: MotionWarning
    clearance: Clearance
    _taken: Offsets | None

    def __init__(self, machine: SessionMachine, clock: Clock) -> None:
        self._machine, self._clock = machine, clock
        self._rung: RungUnderWay | None = None
        self._losses = 0
        """Losses counted when the rig was positioned."""
        self._armed_until = 0
        """Monotonic time, ns."""

    def note(self, text: str, by: str = "") -> None:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def reason(self) -> str:
        return self._machine.reason

    @property
    def seen(self) -> Seen:
        return self._machine.seen

    def act(self, name: str = "", seen: Seen | None = None) -> AbstractContextManager[ActUnderWay]:
        """Context of an act, which may contain others: a stop ends all of them.

        Raises ActRefused if a stop or another state has come since the sender has ``seen`` them.
        """
        return self._machine.act(name, None if name in UNCONDITIONAL else seen)

    @property
    def stopped(self) -> str:
        """Reason of a stop of the current act, or empty."""
        act = self._machine.under_way
        return act.stopped if act is not None else ""

    @property
    def at_work(self) -> bool:
        return self._machine.busy or self.state is State.ARMED

    def possible(self) -> dict[str, str]:
        """Return why each act is not possible; empty if it is."""
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
        """Return why nothing can be frozen; empty if copies of the specimen learn."""
        if self._rung is None:
            return "nothing learns: the rung is over"
        if self._rung.armed.scenario.updating is None:
            return "nothing learns: the scenario has no section updating"
        return "the copies of the specimen are frozen already" if self._rung.frozen else ""

    def hold(self, reason: str = "") -> None:
        """Pause the rung until :meth:`resume`; end it, held, in real time."""
        with self._machine.lock:
            self._begin("hold")
            assert self._rung is not None
            self._rung.hold(reason or "the operator holds the test")

    def freeze(self) -> None:
        """Freeze the copies of the specimen from the next sample to the end of the rung; thread-safe."""
        with self._machine.lock:
            self._begin("freeze")
            assert self._rung is not None
            self._rung.freeze()

    @as_act
    def resume(self) -> None:
        """Continue the held rung."""
        with self._warned("resume", held=False), self._machine.lock:
            self._begin("resume")
            assert self._rung is not None
            self._rung.resume()

    def stop(self, reason: str = "") -> None:
        """Brake, hold and disarm the rig; thread-safe. Acts under way end and cannot move or arm again."""
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

    def _begin(self, act: str) -> None:
        """Raise ActRefused if ``act`` is not possible or was stopped."""
        with self._machine.lock:
            self._leave_start()
            reason = stopped_by_operator(self.stopped) if self.stopped else self._why_not(act)
            if reason:
                raise ActRefused(f"{act}: {reason}")

    def _leave_start(self) -> None:
        """Leave a state at rest, start or arming if the loss of the rig, or the clock, demands it.

        Called with each Measurement. The last call, after which no tick follows, waits for the lock.
        """
        self._machine.leave(self._displaced, wait=bool(self.drive.broken))

    def _ready(self) -> None:
        """Let the drive continue in this act. Raises ActRefused if it was stopped."""
        with self._machine.lock, self.act() as act:
            act.go_on()
            self.drive.ready()

    def _lapsed(self) -> tuple[State, str] | None:
        """Return the next state and the reason if arming has expired."""
        if self._clock.monotonic_ns() <= self._armed_until:
            return None
        return State.HELD, f"armed for {ARMED_FOR_S:g} s without a run: position and arm again"

    def _displaced(self) -> tuple[State, str] | None:
        """Return the next state and the reason if rig or clock contradict the state, or None."""
        if self.state is State.HELD and self._rung is not None:
            return None  # the port of the held rung ends it
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
        if then is not None:  # no stop reaches it any more
            self._rung = None
        return then

    def _measured(self, measured: Measurement) -> None:
        """Handle a Measurement, in the thread that drives the rig."""
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
        self._warn(act, held)
        try:
            yield
        finally:
            self.warning.off()

    @contextmanager
    def _moving(
        self, act: str, state: State, then: State, begins: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Context of the motions of ``act``: the first enters ``state``, which ends in ``then``, or held or
        tripped.

        ``begins`` is called with it. A refusal before the first motion changes nothing.
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
            drive.expect(lambda: None)  # a refused act leaves no begin to the next motion
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
