# SPDX-License-Identifier: Apache-2.0
"""Drive of a rig in a procedure: sends a checked command in every tick, except while a run borrows the port.

Values are untared, in axis coordinates. The first command is the active command of the controller, or the measured
position if that command cannot be read. The command changes only in a motion (``motions.py``), in the safe stop of
a motion, or if the rig does not follow (``following.py``).

A digital output of the rig (horn or lamp) can warn for a few seconds before each motion.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError, show
from rths_nodes.core.limits import HOLD, INTERLOCK
from rths_nodes.core.protocols import Port, why_failed, why_opened
from rths_nodes.core.samples import FLAG_TRIPPED, Array, Command, Measurement, by_force
from rths_nodes.loop.indices.live_columns import MotionCurves
from rths_nodes.loop.interrupts import raised_at_once
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, pacer_of
from rths_nodes.loop.realtime import PRIORITY, quick_switches
from rths_nodes.loop.scenario.rig_file import WarningOutput
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop, held_places
from rths_nodes.procedure.following import LossWatch, command_mismatch, rejected_command
from rths_nodes.procedure.machine import ActRefused, stopped_by_operator
from rths_nodes.procedure.motions import DriveOutcome, GuidedMotion, Steps

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""Timeout for the end of the current tick when another thread borrows the rig, s."""


class HoldLoop:
    """Calls ``tick`` in a thread every ``interval`` s (0: continuously, None: never).

    Between :meth:`borrow` and :meth:`give_back`, another thread drives the rig. ``failed`` receives the error that
    ends the loop.
    """

    def __init__(
        self, tick: Callable[[], object], interval: float | None, failed: Callable[[Exception], None]
    ) -> None:
        self._tick, self._interval, self._failed = tick, interval, failed
        self._turn = threading.Condition()
        self._borrowed = 0
        self._busy = self._over = False
        self._settings = ExitStack()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._over = False
        if self._interval == 0.0:
            self._settings.enter_context(quick_switches())
        if self._interval is not None:
            self._thread = threading.Thread(target=self._run, name="hold loop", daemon=True)
            self._thread.start()

    def borrow(self) -> None:
        """Pause the loop after the current tick. Raises PortError if this tick does not end in time."""
        with self._turn:
            self._borrowed += 1
            if not self._turn.wait_for(lambda: not self._busy, PATIENCE_S):
                self._borrowed -= 1
                raise PortError(f"the current tick of the rig has not ended within {PATIENCE_S:g} s")

    def give_back(self) -> None:
        with self._turn:
            self._borrowed -= 1
            self._turn.notify_all()

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        self.borrow()
        try:
            yield
        finally:
            self.give_back()

    def end(self) -> None:
        with self._turn:
            self._over = True
            self._turn.notify_all()
        self._settings.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_S)

    def ticks(self, items: Iterable[object]) -> None:
        """Call ``tick`` once for each of ``items``. If a call fails, stop and pass the error to ``failed``."""
        try:
            for _ in items:
                self._tick()
        except Exception as error:
            log.debug("the hold loop ends", exc_info=True)
            self._end_tick()
            self._failed(error)

    def _run(self) -> None:
        self._rise()
        self.ticks(iter(self._wait_turn, False))

    def _rise(self) -> None:
        """Set real-time priority, if permitted. Must be repeated after each run, because a run resets it."""
        if self._interval == 0.0:
            with suppress(OSError):
                os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(PRIORITY))

    def _end_tick(self) -> None:
        with self._turn:
            self._busy = False
            self._turn.notify_all()

    def _wait_turn(self) -> bool:
        """End the current tick and wait for the next tick. Return False if the loop has ended."""
        with self._turn:
            self._end_tick()
            if self._interval:
                self._turn.wait(self._interval)
            if self._borrowed:
                self._turn.wait_for(lambda: not self._borrowed or self._over)
                self._rise()
            self._busy = not self._over
            return self._busy


def to_its_end(wait: Callable[[], object], interrupted: Callable[[], object] = lambda: None) -> None:
    """Call ``wait()``, and repeat the call after each interrupt (e.g. Ctrl-C) until it returns.

    ``interrupted()`` is called after each interrupt. The first interrupt is raised after ``wait()`` has returned.
    Other exceptions are raised immediately.
    """
    first: BaseException | None = None
    while True:
        try:
            wait()
            break
        except Exception:
            raise
        except BaseException as error:
            first = first or error
            interrupted()
    if first is not None:
        raise first


def awaited(port: Port, sleep: Callable[[float], None], lost_if_nan: bool) -> Measurement:
    """Wait for the next Measurement. If ``lost_if_nan`` is true, raises PortError if all displacements are NaN."""
    wait = port.wait or sleep
    while not port.ready():
        wait(0.001)  # polling interval, if the port cannot wait
    measured = port.read()
    if lost_if_nan and np.isnan(measured.displacement).all():
        raise PortError(port.interlock or "the port no longer provides measurements")
    return measured


class RigDrive:
    """Drives the rig of ``scenario`` at ``port``: holds it, and moves it along guided motions.

    ``measured`` is the last Measurement, and ``command`` ``(n_axes,)`` m the last command. ``alarm`` is the reason
    not to move the rig now, and ``broken`` the reason why the drive has ended; both may be empty. ``braking`` is
    called with the reason for a stop, and each of ``receivers`` with every Measurement.
    """

    def __init__(
        self,
        port: Port,
        scenario: Scenario,
        realtime: bool,
        clock: Clock = SYSTEM_CLOCK,
        braking: Callable[[str], None] = lambda reason: None,
        receivers: Sequence[Callable[[Measurement], None]] = (),
    ) -> None:
        self.port, self.realtime = port, realtime
        self._scenario, self._clock, self.receivers, self._braking = scenario, clock, list(receivers), braking
        self.mishap: DriveOutcome | None = None
        """Outcome of an aborted motion of the current act, or None if no motion was aborted."""
        self.curves = MotionCurves([axis.limits.of_force for axis in scenario.axes.values()], scenario.servo_rate)
        self.loss = LossWatch(scenario)
        self.alarm = self.broken = ""
        self.pace: Callable[[], int] | None = None
        """Function that waits for the ticks of a simulator, or counts the ticks of a rig; None in lockstep."""
        follows = port.follows_rig
        if realtime:
            transport = scenario.port.transport_samples if follows else None
            self._own_pace = pacer_of(scenario.dt, 1, transport, clock)
        interval = 0.0 if realtime else 0.25 * scenario.port.longest_wait if follows else None
        self.hold_loop = HoldLoop(lambda: self.tick(), interval, self._fail)
        self._passive = np.zeros(len(port.auxiliary_inputs))
        self.begins: Callable[[], None] = lambda: None
        """Function to call when the next motion begins."""
        self._modes = self._before_modes = b""
        self._sent_modes = b"", b""
        """Control modes of the last two commands, ``_before`` and ``command``."""
        self._motion: GuidedMotion | None = None
        self._stop: SafeStop | None = None
        self._asked = ""
        self._outcome = DriveOutcome()
        self._over = threading.Event()
        ticks = self.hold_loop.ticks
        self._until_over = self._over.wait if realtime else lambda: ticks(iter(self._over.is_set, True))
        self._open = False

    def connect(self) -> None:
        """Open the port, and hold the rig from the first tick.

        Raises ConfigError if opening fails, or if the active command differs from the position. Without a readable
        active command, the position must be within the stroke.
        """
        port = self.port
        self.broken = self.alarm = ""
        port.accept_any_start()
        if self.realtime:
            self.pace = self._own_pace
        with raised_at_once():
            port.open((lambda: 0 if self.pace is None else self.pace()) if self.realtime else None)
        self._open = True
        try:
            port.begin()
            self.measured = awaited(port, self._clock.sleep, self.realtime)
            self._first_command()
            self.loss = LossWatch(self._scenario, self.measured.hydraulics, self.measured.control_mode)
            self.loss.receive(port, self.measured, self.command)
            if self.realtime:
                port.arm_watchdog()
                self._own_pace.start()
        except BaseException:
            self.close()
            raise
        self._judge(self.command)
        self.hold_loop.start()

    def _first_command(self) -> None:
        axes, active, measured = self._scenario.axes, self.port.active_command, self.measured.displacement
        self.command = self._before = np.array(measured if active is None else active, float)
        self.remarks: list[str] = []
        self.refer(measured, self.command)
        if active is not None:
            if reason := command_mismatch(axes, active, measured):
                raise ConfigError(reason)
            return
        for name, position in zip(axes, measured.tolist(), strict=True):
            if not abs(position) <= (stroke := axes[name].limits.stroke):  # also refuses NaN
                raise ConfigError(
                    f"axes.{name}: displacement = {position:g} m: must be within +- {stroke:g} m, because the "
                    "active command of the controller cannot be read, and the rig would be held at this position"
                )
            self.remarks.append(
                f"axes.{name}: the active command of the controller cannot be read. The first command is the "
                f"measured position, {position:.6g} m, so expect a bump if the active command differs"
            )

    def close(self) -> None:
        self.hold_loop.end()
        if self._open:
            self._open = False
            self.broken = self.broken or "the port was returned"
            try:
                self.port.disarm_watchdog()
                self.port.safe()
            except PortError as error:  # an unreachable rig must not prevent the end of the test
                self.alarm = self.alarm or str(error)
            finally:
                self.port.close()

    def _fail(self, error: Exception) -> None:
        expected = isinstance(error, (ConfigError, PortError))
        self.broken = self.alarm = str(error) if expected else f"{type(error).__name__}: {error}"
        self._motion = self._stop = None
        self._outcome = DriveOutcome(self.broken, True)
        self._over.set()
        self._report()

    def refer(self, displacement: Array, command: Array) -> None:
        """Set ``displacement`` and ``command`` at rest, ``(n_axes,)`` m, as the reference of tracking errors."""
        port, scenario, limits, dt = self.port, self._scenario, self._scenario.limits, self._scenario.dt
        channels, levels = port.auxiliary_names, scenario.levels
        shift = self.shift = displacement - command
        tares = replace(Tares.none(len(shift)), displacement=np.array(shift, float))
        self._check = LimitCheck(limits, dt, port.auxiliary_inputs, channels, tares, scenario.stop_groups)
        self.levels = LevelWatch(limits, dt, channels, tares, levels.expressions, levels.quantities) or None

    def unfit(self) -> str:
        port, axes = self.port, self._scenario.axes
        reason = self.broken or port.interlock or why_failed(port, port.hydraulics)
        reason = reason or self.loss.reason or self.alarm
        if reason or (active := port.active_command) is None:
            return reason
        at_rest = self.measured.displacement - self.shift
        return rejected_command(axes, active, self.command) or command_mismatch(axes, active, at_rest)

    def drive(self, motion: GuidedMotion) -> DriveOutcome:
        """Move the rig along ``motion`` and return the outcome.

        Nothing moves if ``begins()`` raises an error, or after a safe stop until :meth:`ready` is called.
        """
        begin, self.begins = self.begins, lambda: None
        begin()
        if self.mishap is not None:
            return self.mishap
        self._over.clear()
        outcome = DriveOutcome(self.broken, True)
        if not outcome.reason:  # ``broken`` may change at any time, so it is read once
            with nullcontext() if self.realtime else self.hold_loop.borrowed():
                self._motion = motion
                to_its_end(self._until_over, lambda: self.stop("interrupted"))  # first bring the rig to rest
            outcome = self._outcome
        self.mishap = outcome if outcome.reason else None
        return outcome

    def stop(self, reason: str) -> None:
        """Stop the current or the next motion safely. Only the first reason is stored. Thread-safe."""
        self._asked = self._asked or reason

    def ready(self) -> None:
        """Permit the motions of an act, and clear earlier stops. The caller must hold ``SessionMachine.lock``."""
        self._asked, self.mishap = "", None
        self.loss.accept(self.port.hydraulics)

    def tick(self) -> None:
        sample = self.port.wait_tick()
        command, flags = self._next()
        self.port.write(Command(sample, command, command, self._passive, flags, self._modes))
        self._before, self.command = self.command, command
        self._sent_modes = self._before_modes, self._modes
        self.measured = awaited(self.port, self._clock.sleep, self.realtime)
        if self._motion is not None:
            self.curves.add(self.measured, command)
        self.loss.receive(self.port, self.measured, command, self._modes)
        self._judge(command)
        self._report()

    def receive(self, measured: Measurement, sent: Array, modes: bytes) -> None:
        """Process a Measurement of a run. The last command was ``sent`` ``(n_axes,)``, in control ``modes``."""
        self.measured = measured
        self.loss.receive(self.port, measured, sent, modes)
        self._report()

    def _report(self) -> None:
        for receive in tuple(self.receivers):
            receive(self.measured)

    def _next(self) -> tuple[Array, int]:
        self._before_modes, self._modes = self._modes, b""
        if self.loss.reason:
            self._hold()
        if (waiting := self.loss.next(self.command, self.shift)) is not None:
            if self._stop is not None:
                self._stop.begin(waiting, waiting)
                if self.loss.joined(waiting - self.command):
                    self._end()
            return waiting, FLAG_TRIPPED
        if self._stop is None and self._motion is not None:
            wanted = self._guided(self._motion)
            if wanted is not None:
                return wanted, 0
        if self._stop is None:
            return self.command, 0
        position = self._stop.step()
        if self._stop.at_rest:
            self._end()
        return position, FLAG_TRIPPED

    def _guided(self, motion: GuidedMotion) -> Array | None:
        outcome = DriveOutcome(self._asked)
        if not self._asked:
            before, measured, modes = self.command, self.measured, self._before_modes
            sent = np.where(by_force(modes), measured.displacement - self.shift, before) if modes else before
            try:
                reason = motion.watch(sent, measured)
                wanted = None if reason else motion.step(measured, before)
                if wanted is not None:
                    modes = motion.modes()
                    asked = Command(measured.sample + 1, wanted, wanted, control_mode=modes)
                    reason = self._check.command(asked, before.tolist(), self._before_modes)
                    if not reason:
                        self._modes = modes
                        return np.array(wanted, float)
                outcome = DriveOutcome(reason, bool(reason))
            except Exception as error:  # an unexpected error in a motion must also stop the rig
                outcome = DriveOutcome(f"{type(error).__name__}: {error}", True)
        self._brake(outcome)
        return None

    def _brake(self, outcome: DriveOutcome) -> None:
        self._modes = b""
        self._hold()
        self._outcome = outcome
        if outcome.reason:
            self._braking(outcome.reason)
        self._stop = SafeStop(self._scenario.limits, self._scenario.dt, groups=self._scenario.stop_groups)
        self._stop.begin(self._before, self.command)
        if self._stop.at_rest and not self.loss.reason:
            self._end()

    def _hold(self) -> None:
        self._before, self.command = self.held(self._before, self.command, self._sent_modes)
        self._before_modes, self._sent_modes = b"", (b"", b"")

    def held(self, before: Array, last: Array, modes: tuple[bytes, bytes]) -> tuple[Array, Array]:
        """Return the last two commands ``(n_axes,)`` m, with axis positions in place of commands in N."""
        return held_places((before.copy(), last.copy()), modes, 0, self.loss.places.last - self.shift)

    def _end(self) -> None:
        self._motion = self._stop = None
        reason = self._outcome.reason or self._asked  # a stop requested during the last tick also counts
        self._asked = ""
        self._outcome = replace(self._outcome, reason=reason)
        self._over.set()

    def _judge(self, command: Array) -> None:
        reason, level, action = self.judgement(command)
        if self._motion is None or not (reason or level):
            return
        if action == INTERLOCK:
            self.port.drop_heartbeat()
        outcome = DriveOutcome(reason or self.alarm, tripped=bool(reason) or action != HOLD)
        if self._stop is None:
            self._brake(outcome)
        elif action == INTERLOCK:
            self._outcome = outcome

    def judgement(self, command: Array) -> tuple[str, str, str]:
        """Return the reason to stop the rig, and the reason and action of an exceeded level. Each can be empty.

        An exceeded limit or level sets ``alarm`` until the next Measurement.
        """
        port, measured = self.port, self.measured
        beyond = self._check.measurement(measured, command.tolist(), self._modes) or port.partial_stop
        level = action = ""
        if self.levels is not None:
            sent = Command(measured.sample, command, command, control_mode=self._modes)
            level, action = self.levels.judge(sent, measured)
        self.alarm = beyond or level
        failed = why_opened(port, measured) or why_failed(port, measured.hydraulics) or self.loss.reason
        return failed or beyond, level, action

    def take_back(self, before: Array, last: Array) -> None:
        """Take the port back from a run with last commands ``before`` and ``last``; then brake and hold."""
        self._before, self.command = before, last
        self._over.clear()
        self._motion = None
        try:
            self._judge(self.command)
            if self.realtime:
                self.pace = self._own_pace
                self._own_pace.start()
            self._brake(DriveOutcome())
            if not self.realtime:
                to_its_end(self._until_over)
        except Exception as error:
            self._fail(error)
        finally:
            self.hold_loop.give_back()

    def await_rest(self) -> None:
        """Wait, even if interrupted, until the rig is held and its actuators have settled."""
        to_its_end(self._rest)

    def _rest(self) -> None:
        self._over.wait()
        if self.realtime and not self.broken:
            self._clock.sleep(self.loss.taken_after * self._scenario.dt)
        elif not self.broken:
            with self.hold_loop.borrowed():
                self.hold_loop.ticks(range(self.loss.taken_after))


def warning_of(scenario: Scenario, port: Port) -> WarningOutput | None:
    """Return the rig file's warning output, or None. Raises ConfigError if ``port`` has no such output."""
    section = scenario.rig_file.warning if scenario.rig_file is not None else None
    if section is not None and not port.can_warn:
        raise ConfigError(
            f"rig: warning.output = {show(section.output)}: the port {type(scenario.port).type_name!r} "
            f"{f'at {port.address} ' if port.address else ''}has no warning output. Connect a warning output, "
            "or delete the key"
        )
    return section


class MotionWarning:
    """Switches the warning output that the rig file of ``scenario`` declares.

    ``left`` is the time until the motion may begin, s. Raises ConfigError if the port has no warning output.
    """

    def __init__(self, drive: RigDrive, scenario: Scenario, clock: Clock) -> None:
        self._drive, self._dt, self._clock = drive, scenario.dt, clock
        self.section = warning_of(scenario, drive.port)
        self.left = 0.0
        self._start: Array | None = None
        """Command ``(n_axes,)`` m before the motion while the output is on, otherwise None."""

    @property
    def text(self) -> str:
        if self.section is None or not self.left:
            return ""
        return f"{self.section.output} is on: motion in {math.ceil(self.left)} s"

    def begin(self, act: str, stopped: Callable[[], str], held: bool) -> None:
        """Switch the output on before ``act``, and wait for the warning time. The caller must call :meth:`off`.

        If ``held`` is true, the drive holds the rig during this time; otherwise a rung holds it. Raises ActRefused
        if ``stopped()`` returns a reason, or if the rig can no longer be held.
        """
        section, drive, reason = self.section, self._drive, ""
        assert section is not None  # checked by the callers
        if self._start is not None:
            raise ActRefused(f"{act}: {section.output} is already on for another motion")
        self._start = drive.command
        try:
            drive.port.warn(True)
            if held:
                motion = GuidedMotion(lambda command: self._samples(command, section.seconds, stopped))
                reason = drive.drive(motion).reason
            else:
                self._sleep(section.seconds, stopped)
            if why := stopped():
                reason = stopped_by_operator(why)
            if reason:
                raise ActRefused(f"{act}: nothing has moved: {reason}")
        except BaseException:
            self.off()
            raise
        finally:
            self.left = 0.0

    def off(self) -> None:
        if self._start is not None:
            self._start = None
            self._drive.port.warn(False)

    def look(self) -> None:
        """Switch the output off once the command has changed. Must be called for each Measurement."""
        if self._start is not None and not np.array_equal(self._drive.command, self._start):
            self.off()

    def _samples(self, command: Array, seconds: float, stopped: Callable[[], str]) -> Steps[None]:
        for left in range(math.ceil(seconds / self._dt), 0, -1):
            self.left = left * self._dt
            if stopped():
                return
            yield command

    def _sleep(self, seconds: float, stopped: Callable[[], str]) -> None:
        end = self._clock.monotonic_ns() + round(1e9 * seconds)
        while not stopped() and (left := end - self._clock.monotonic_ns()) > 0:
            self.left = left * 1e-9
            self._clock.sleep(0.01)  # polling interval for a stop
