# SPDX-License-Identifier: Apache-2.0
"""Unloading of the specimen to zero force in steps, within bounds of travel and velocity.

After each step, the rig rests and the forces F are measured. The next step d is a damped Newton step of all axes
together, so that axes on one specimen do not load each other:

    d = -a J^-1 F,    J <- J + (dF - J d) d^T / (d^T d)

The factor a damps the step, and dF is the change of force. J is the tangent of the forces with respect to the
commands. It is measured with a small step of each axis towards less force. The secant of each step updates J
(Broyden 1965), so that J also fits a yielded specimen. Unloading ends, without moving back, if the forces do not
decrease or the permitted travel is reached. Axes that carry weight are unloaded last.

A load cell may fail unnoticed. Within the travel of the small move, the force must therefore show the stiffness
of that move. Otherwise unloading ends, and the operator can sign for a motion to positions (:func:`goal_of`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError, Problems, unknown
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import Unloading
from rths_nodes.loop.procedure_record import VERIFIED, AxisChecks, UnloadingRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import Guard, GuidedMotion, QuasiStatic, Stand, Steps
from rths_nodes.procedure.small_move import LEAST_FORCE, LOUDEST, SEEN, section_of

Indices = NDArray[np.intp]

FIRST_STEP = 0.02
"""First step of an axis, as a fraction of the permitted travel."""
BLIND = 0.25
"""Travel within which the force must respond if there is no small move, as a fraction of the permitted travel."""
BLIND_STEP = 0.25
"""Step before the force has responded, as a fraction of the travel within which it must respond."""
IN_MOTION = 2.0
"""Safety factor for the change of force that is attributed to velocity and damping."""
LEAST_ANSWER, MOST_ANSWER = 0.1, 10.0
"""Bounds of the ratio of measured to expected change of force, wide enough for a yielded or hardened specimen."""
LEFT_OVER = 0.1
"""Smallest significant ratio of a force's expected change to the sum of the axes' absolute contributions."""
DRIFTS = 0.7
"""Ratio of two successive changes of a force above which the force counts as drifting."""
UNKNOWN = (
    "The force is unknown, so switch the pressure off at the controller or, if the displacement is correct, "
    "unload by displacement (act unload, arguments to and signed)"
)
LARGEST_STEP = 0.125
"""Largest step, as a fraction of the permitted travel."""
DAMPING = 0.7
"""Ratio of a step to the Newton step. It is less than 1, because the specimen may stiffen along the step."""
NEAR = 3.0
"""Ratio of force to tolerance below which the full Newton step is taken."""
AIM = 0.05
"""Ratio of force to tolerance at which unloading ends. If it is unreachable, a force within tolerance suffices."""
LEAST_SEEN = 0.05
"""Smallest significant change of a force, as a fraction of the tolerance."""
FALLS = 0.97
"""Ratio of a force to its smallest earlier value below which the force counts as decreased."""
PATIENCE = 4
"""Number of consecutive steps without a decrease after which unloading ends."""
MOST_STEPS = 100
MAY_RISE = 0.05
"""Largest accepted increase of a force, as a fraction of the load cell's range. It is not zero, because another
axis may push."""
CLOSE_TO_LIMIT = 0.95
"""Largest force that an increase may reach, as a fraction of the force limit."""


def places(text: str, names: tuple[str, ...]) -> dict[str, float]:
    """Parse positions by axis, m: one number for a rig with one axis, otherwise ``axis: number, ...``.

    Raises ConfigError for any other ``text``.
    """
    parts, several = [entry.rpartition(":") for entry in text.split(",")], len(names) > 1
    try:
        goal = {name.strip() if colon or several else names[0]: float(number) for name, colon, number in parts}
        if len(goal) < len(parts):
            raise ValueError
        return goal
    except ValueError:
        raise ConfigError(
            f"unload.to = {text!r}: must be a number (m), or axis: number for each axis, separated by commas"
        ) from None


def bounds_of(scenario: Scenario) -> list[Unloading]:
    """Return the unloading bounds of each axis. Raises ConfigError if the rig file lacks them for an axis."""
    rigs = {name: axis.rig_axis for name, axis in scenario.axes.items()}
    Problems(
        f"axes.{name}: {section_of(rig, 'unloading')} is missing. Travel (m) and velocity (m/s) are required as "
        "bounds of the motion to zero force"
        for name, rig in rigs.items()
        if not (rig and rig.unloading)
    ).refuse()
    return [rig.unloading for rig in rigs.values() if rig and rig.unloading]


def goal_of(
    scenario: Scenario,
    offsets: Offsets,
    checks: Mapping[str, AxisChecks],
    command: Array,
    to: Mapping[str, float],
    signed: str,
) -> Array:
    """Return the command ``(n_axes,)`` m that moves axes to the positions ``to``, m from the zero of the test.

    Raises ConfigError if ``signed`` is empty, if a position exceeds the bounds of the rig file, or if no check has
    verified the displacement of an axis.
    """
    problems, goal = Problems(), np.array(command, float)
    if not signed:
        problems.append(
            "unload.signed: must not be empty, because a person must sign for a motion under an unknown force"
        )
    names, bounds = tuple(scenario.axes), bounds_of(scenario)
    for name, position in to.items():
        if name not in names:
            raise unknown("unload.to", "axis", name, names)
        index, stroke = names.index(name), scenario.limits[name].stroke
        goal[index] = offsets.held[index] + position
        way, travel = abs(float(goal[index] - command[index])), bounds[index].travel
        shown = f"unload.to.{name} = {position:g} m"
        if not math.isfinite(position):
            problems.append(f"{shown}: must be finite")
        elif way > travel:
            problems.append(
                f"{shown}: the distance of {way:.4g} m must be <= {travel:g} m (unloading.travel of the rig file)"
            )
        if abs(goal[index]) > stroke:
            problems.append(
                f"{shown}: the command of {goal[index]:.6g} m must be within +- {stroke:g} m (limits.stroke)"
            )
        if name not in checks or checks[name].displacement_sign != VERIFIED:
            problems.append(
                f"unload.to.{name}: the check has not verified the displacement of this axis. Switch the "
                "pressure off at the controller"
            )
    problems.refuse()
    return goal


def unload(
    drive: RigDrive,
    scenario: Scenario,
    offsets: Offsets,
    checks: Mapping[str, AxisChecks],
    to: Mapping[str, float] | None = None,
    signed: str = "",
) -> UnloadingRecord:
    """Unload the specimen to zero force, relative to ``offsets``, or move axes to the positions ``to``, m.

    Raises ConfigError before any motion if the rig file does not bound the travel, or if :func:`goal_of` refuses
    the positions.
    """
    way, tare, begun = Way(scenario, offsets, checks), offsets.tares().force, drive.measured
    motion = GuidedMotion(way.run, Following(scenario, offsets, checks).slow)
    if to is not None:
        goal_of(scenario, offsets, checks, drive.command, to, signed)  # refuse before the warning
        motion.steps = lambda command: QuasiStatic(scenario, command).go(
            goal_of(scenario, offsets, checks, command, to, signed), way.velocity
        )
    outcome = drive.drive(motion)
    before = begun.force if way.first is None else way.first.force
    after = drive.measured.force if outcome.reason or way.last is None else way.last.force
    rows = before - tare, after - tare, drive.measured.displacement - begun.displacement
    was, now, travel = (dict(zip(scenario.axes, row.tolist(), strict=True)) for row in rows)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return UnloadingRecord(time, was, now, travel, outcome.reason or way.given_up)


class Way:
    """Moves axes to zero force, relative to ``offsets``.

    ``first`` and ``last`` are the first and the last state of the rig at rest. ``given_up`` is the reason why the
    specimen is not unloaded, or an empty string. Raises ConfigError if the rig file does not bound the travel.
    """

    def __init__(self, scenario: Scenario, offsets: Offsets, checks: Mapping[str, AxisChecks]) -> None:
        bounds, self._names, self._tare = bounds_of(scenario), tuple(scenario.axes), offsets.tares().force
        self.first: Stand | None = None
        self.last: Stand | None = None
        self.given_up = ""
        rigs = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        results = [checks.get(name, AxisChecks()) for name in self._names]
        self._range = np.array([rig.force.range_si for rig in rigs])
        self._limit = np.array([limits.force for limits in scenario.limits.values()])
        self._travel = np.array([axis.travel for axis in bounds])
        self.velocity = np.array([axis.velocity for axis in bounds])
        self._tolerance = np.array([axis.tolerance for axis in bounds]) * self._range
        self._weight = np.array([axis.carries_gravity for axis in bounds])
        self._stiffness = np.array([axis.stiffness or np.nan for axis in results])
        self._damping = IN_MOTION * np.array([axis.damping or 0.0 for axis in results])
        self._rate = 1.0 / scenario.dt
        lost, small = [axis.lost_motion or 0.0 for axis in results], [rig.small_move for rig in rigs]
        moved = [far + move.displacement if move else np.inf for far, move in zip(lost, small, strict=True)]
        self._blind = np.where(np.isinf(moved), BLIND * self._travel, np.minimum(moved, self._travel))
        """Travel within which the force must respond, m."""
        self._far = (1.0 - BLIND_STEP) * self._blind
        self._step = np.minimum(FIRST_STEP * self._travel, BLIND_STEP * self._blind)
        self._walk = QuasiStatic(scenario, np.zeros(len(bounds)), (self._step, self._range))
        self._tangent = np.full((len(bounds), len(bounds)), np.nan)

    def run(self, command: Array) -> Steps[None]:
        self._start = self._walk.command = command
        self.first = yield from self._rest()
        self._noise = LOUDEST * self.first.force_scatter
        loaded = np.abs(self.first.force)
        self._highest = self._noise + np.minimum(
            loaded + MAY_RISE * self._range, np.maximum(CLOSE_TO_LIMIT * self._limit, loaded)
        )
        yield from self._watch_drift(self.first)
        groups = [np.flatnonzero(~self._weight)]
        groups += [np.arange(len(self._weight))] if self._weight.any() else []
        for active in groups:
            if len(active) and not self.given_up:
                yield from self._unload(active)

    def _rest(self) -> Steps[Stand]:
        stand = self.last = yield from self._walk.stand()
        self._force = stand.force - self._tare
        self._levels = np.abs(self._force) / self._range
        of_mean = SEEN * np.sqrt(2.0 / stand.samples) * stand.force_scatter
        self._seen = np.maximum(of_mean, LEAST_SEEN * self._tolerance)
        """Smallest significant changes of the forces, N."""
        felt = np.maximum(of_mean, LEAST_FORCE * self._range)
        self._felt = np.where(np.isnan(self._stiffness), self._seen, felt)
        """Smallest significant changes of the forces during a first step, N."""
        return stand

    def _watch_drift(self, last: Stand) -> Steps[None]:
        first = np.zeros(len(self._names))
        for _ in range(2):
            before, last = last, (yield from self._rest())
            change = np.abs(last.force - before.force)
            drifting = (change > self._seen) & (change > DRIFTS * first)
            if not drifting.any():
                return
            first = change
        worst = int(np.argmax(np.where(drifting, change / self._range, 0.0)))
        self.given_up = (
            f"axes.{self._names[worst]}: the force is not steady: it changes by {change[worst]:.4g} N between "
            f"two consecutive rests, because the load cell drifts or the specimen relaxes slowly. {UNKNOWN}"
        )

    def _within(self, active: Indices, share: float) -> bool:
        return bool((np.abs(self._force) <= share * self._tolerance)[active].all())

    def _deaf(self, change: Array, moved: Array, faster: Array, noise: Array) -> str:
        """Return a message if a force does not respond to the travel ``moved`` (m), or an empty string.

        ``change`` is the change of force and ``noise`` its noise, N. ``faster`` is the change of velocity, m/s.
        """
        tangent = np.where(np.isfinite(self._tangent), self._tangent, 0.0)
        expected = tangent @ moved
        expected_to_move = np.abs(expected) > noise + LEFT_OVER * (np.abs(tangent) @ np.abs(moved))
        answer = np.sign(expected) * change + self._damping * np.abs(faster)
        deaf = (np.abs(moved) >= self._far) & expected_to_move & (answer < LEAST_ANSWER * np.abs(expected))
        if not deaf.any():
            return ""
        worst = int(np.argmax(np.where(deaf, np.abs(expected), 0.0)))
        return (
            f"axes.{self._names[worst]}: the force no longer follows the displacement: it has changed by "
            f"{change[worst]:.4g} N while the axis moved by {1e3 * moved[worst]:.4g} mm. {UNKNOWN}"
        )

    def _guard(self, active: Indices) -> Guard:
        assert self.last is not None
        marks = deque([(self.last.displacement, self.last.force, np.zeros(len(self._names)))])
        before = self._walk.command
        sign = np.sign(self._force)[active]
        through = (self._tolerance + self._noise)[active]
        loaded = np.abs(self._force)[active] > self._tolerance[active]

        def guard(measured: Measurement) -> str:
            nonlocal before
            velocity = (self._walk.command - before) * self._rate
            before = self._walk.command
            higher = np.abs(measured.force) > self._highest
            if higher.any():
                return f"the force of axes.{self._names[int(np.argmax(higher))]} rises above its bound"
            here = measured.displacement
            if (np.abs(here - marks[-1][0]) >= BLIND_STEP * self._blind).any():
                marks.append((here, measured.force, velocity))
                while len(marks) > 1 and (np.abs(here - marks[1][0]) >= self._far).any():
                    marks.popleft()
                position, force, speed = marks[0]
                if why := self._deaf(measured.force - force, here - position, velocity - speed, 2.0 * self._noise):
                    self.given_up = why
                    return why
            beyond = -sign * (measured.force - self._tare)[active] > through
            return "a force has crossed zero" if (beyond & loaded).any() else ""

        return guard

    def _move(self, goal: Array, active: Indices) -> Steps[str]:
        """Move to ``goal`` (m) and rest. Return the reason for an early end of the ramp, or an empty string."""
        why = yield from self._walk.ramp(goal, self.velocity, self._guard(active))
        yield from self._rest()
        return why

    def _unload(self, active: Indices) -> Steps[None]:
        if self._within(active, AIM):
            return
        for index in active.tolist():
            if np.isnan(self._tangent[:, index]).any():
                yield from self._first_step(index, active)
            if self.given_up:
                return
        waited, best = 0, self._levels[active].max()
        for _ in range(MOST_STEPS):
            if self._within(active, AIM):
                return
            step = self._next_step(active)
            if not np.any(step):
                why = "the permitted travel is used up"
                break
            why = (yield from self._go(step, active)) or "the force does not fall"
            if self.given_up:
                return
            level = self._levels[active].max()
            waited = 0 if level < FALLS * best else waited + 1
            best = min(best, level)
            if waited >= PATIENCE:
                break
        else:
            why = f"the specimen is not unloaded after {MOST_STEPS} steps"
        self._give_up(active, why)

    def _give_up(self, active: Indices, why: str) -> None:
        """End the unloading because of ``why``. Forces within their tolerance still count as unloaded."""
        if not self._within(active, 1.0):
            worst = int(active[np.argmax(self._levels[active])])
            gone = self._walk.command - self._start
            self.given_up = (
                f"axes.{self._names[worst]}: the rig is held at {self._force[worst]:.4g} N after "
                f"{1e3 * gone[worst]:.4g} of {1e3 * self._travel[worst]:.4g} mm of travel, because {why}"
            )

    def _first_step(self, index: int, active: Indices) -> Steps[None]:
        """Move an axis towards less force until the force responds, and set the axis's column of the tangent."""
        start, before = self._walk.command, self._force
        direction = -np.sign(before[index]) or 1.0
        step = length = self._step[index]
        furthest = min(self._blind[index], self._room(direction)[index])
        while True:
            position, force = self._walk.command[index], self._force
            goal = start.copy()
            goal[index] += direction * min(length, furthest)
            why = yield from self._move(goal, active)
            gone = float(self._walk.command[index] - start[index])
            change = self._force - before
            size, expected = abs(change[index]), abs(self._stiffness[index] * gone)  # NaN: unknown stiffness
            if gone and size > self._felt[index] and not size < LEAST_ANSWER * expected:
                break
            if why or length >= furthest:
                self._give_up(np.array([index]), why or f"the force does not fall. {UNKNOWN}")
                if not self.given_up:  # an axis within its tolerance (e.g. at a dashpot) needs no step
                    self._tangent[:, index] = 0.0
                    self._tangent[index, index] = np.inf
                return
            length += step
        if change[index] * gone < 0.0:
            self._give_up(active, "the force rises instead of falling")
        elif size > MOST_ANSWER * expected + self._seen[index]:
            product = f"{MOST_ANSWER:g} times the product of stiffness and travel"
            self._give_up(active, f"the force has fallen by more than {product}")
        elif length > step and not why:  # the steps contain lost motion: one more step gives the stiffness
            position, force = self._walk.command[index], self._force
            goal[index] += direction * step
            yield from self._move(goal, active)
        last = float(self._walk.command[index] - position)
        self._tangent[:, index] = (self._force - force) / last if last else change / gone

    def _room(self, direction: Array | float) -> Array:
        return np.asarray(np.maximum(0.0, self._travel - direction * (self._walk.command - self._start)))

    def _next_step(self, active: Indices) -> Array:
        force, step = self._force[active], np.zeros(len(self._names))
        tangent = self._tangent[np.ix_(active, active)]
        movable = np.isfinite(np.diagonal(tangent))
        places = active[movable]
        try:
            wanted = -np.linalg.solve(tangent[np.ix_(movable, movable)], force[movable])
        except np.linalg.LinAlgError:
            wanted = -force[movable] / np.diagonal(tangent)[movable]
        step[places] = wanted * (1.0 if self._within(active, NEAR) else DAMPING)
        allowed = np.minimum(self._room(np.sign(step)), LARGEST_STEP * self._travel)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.nanmin(np.where(step != 0.0, allowed / np.abs(step), 1.0), initial=1.0)
        return np.asarray(min(1.0, float(share)) * step)

    def _go(self, step: Array, active: Indices) -> Steps[str]:
        """Move by ``step``, rest, and update the tangent. Return the reason for an early end, or an empty text."""
        start, before = self._walk.command, self._force
        why = yield from self._move(start + step, active)
        gone, change = self._walk.command - start, self._force - before
        self.given_up = self.given_up or self._deaf(change, gone, np.zeros(len(gone)), self._seen)
        length, at = float(gone @ gone), np.ix_(active, active)
        tangent = self._tangent[at]
        if length and (np.abs(change) > self._seen)[active].any() and np.isfinite(tangent).all():
            missed = change[active] - tangent @ gone[active]
            updated = tangent + np.outer(missed, gone[active]) / length
            # a secant with the wrong sign is due to noise or a reversal
            if (np.diagonal(updated) * np.diagonal(tangent) > 0.0).all():
                self._tangent[at] = updated
        return why
