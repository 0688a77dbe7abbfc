# SPDX-License-Identifier: Apache-2.0
"""Unloading: the operator has the specimen led to no force, by steps, within bounds of travel and rate.

After each step the rig rests, and the forces F are measured. The next one is a damped Newton step of all axes
together, so that those of one specimen do not load each other:

    d = -a J^-1 F,    J <- J + (dF - J d) d^T / (d^T d)

J is the tangent dF/dc of the forces by the commands: first from a small step of each axis towards less force, then
by the secant of each step (Broyden 1965). A yielded specimen unloads as stiff as it is there. Where the forces do
not fall, or the travel is used up, it ends where it is: nothing is led back. Axes that carry weight come last.

Nobody sees a load cell die, so that it has to answer all the way: at first in quarters of the small move, and then
wherever the axes have gone so far again. How much it has to answer the stiffness tells that the small move found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.laboratory.handling import Unloading
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.axis_moves import LEAST_FORCE, SEEN
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import accelerations
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.placing import bounds_of, written
from rths_nodes.procedure.quasi_static import QuasiStatic, Script, Stand, Steps
from rths_nodes.procedure.records import AxisChecks, UnloadingRecord
from rths_nodes.procedure.small_move import Drive

Places = NDArray[np.intp]
"""Indices of some axes, among all."""

FIRST_STEP = 0.02
"""Share of the travel of the first step of an axis."""
BLIND = 0.25
"""Share of the travel within which the force of an axis must answer, where nobody has bounded a small move."""
BLIND_STEP = 0.25
"""Share of that way of one step, until the force has answered."""
IN_MOTION = 2.0
"""So many times what the damping that the small move found lets a force change with the velocity it may."""
LEAST_ANSWER, MOST_ANSWER = 0.1, 10.0
"""Bounds of an answer, over what the stiffness lets expect; a yielded or hardened specimen stays within."""
LEFT_OVER = 0.1
"""Share of the forces of all axes on one below which their sum, in which they cancel, says nothing."""
DRIFTS = 0.7
"""A force that does not rest, and goes on by this share of what it has gone in the rest before, drifts."""
UNKNOWN = (
    "the force is unknown: take the pressure off at the controller, or, where the displacement is right, unload "
    "by displacement (unload, to a place)"
)
LARGEST_STEP = 0.125
"""Share of the travel of one step."""
DAMPING = 0.7
"""Share of the Newton step that is gone: a specimen may be stiffer there than it is here."""
NEAR = 3.0
"""So many times the tolerance is near: from there the whole step is gone."""
AIM = 0.05
"""Share of the tolerance at which the way ends; where no step gets there, within the tolerance is enough."""
LEAST_SEEN = 0.05
"""Share of the tolerance below which no change of a force is looked at."""
FALLS = 0.97
"""A force falls where it is below this share of what it was."""
PATIENCE = 4
"""Steps in a row without which it is given up."""
MOST_STEPS = 100
LOUDEST = 8.0
"""So many times its scatter no sample of a load cell goes."""
MAY_RISE = 0.05
"""Share of its range by which a force may rise on the way: of an axis that another one pushes."""
CLOSE_TO_LIMIT = 0.95
"""Share of its limit to which it may do so."""
STILL = (1e-3, 1e-5)
"""Change in a window below which an axis rests: share of a first step, of the range of the load cell."""


def unload(
    drive: Drive, scenario: Scenario, offsets: Offsets, checks: Mapping[str, AxisChecks]
) -> UnloadingRecord:
    """Lead the specimen to no force, as ``offsets`` count it, on a rig of which ``checks`` have told; the outcome.

    Raises ConfigError before anything moves where the rig file does not bound the way.
    """
    way = Way(scenario, bounds_of(scenario), offsets.tares().force, drive.command, checks)
    begun = drive.measured
    watch = Following(scenario, offsets, checks).slow
    outcome = drive.drive(Script(way.run(), drive.command, watch))
    before = begun.force if way.first is None else way.first.force
    after = drive.measured.force if outcome.reason or way.last is None else way.last.force
    travel = drive.measured.displacement - begun.displacement
    return written(scenario, offsets, (before, after), travel, outcome.reason or way.given_up)


def _blind(rig: RigAxis, bounds: Unloading, found: AxisChecks) -> float:
    """Return the longest way that an axis may go without an answer of its force, m."""
    if rig.small_move is None:
        return BLIND * bounds.travel
    return min(rig.small_move.displacement + (found.lost_motion or 0.0), bounds.travel)


class Way:
    """The way to no force from ``command`` ``(n_axes,)`` m; ``tare`` ``(n_axes,)`` N is what counts as none.

    ``first`` and ``last`` are how the rig stood before and stands now, ``given_up`` why it is not unloaded.
    """

    def __init__(
        self,
        scenario: Scenario,
        bounds: Sequence[Unloading],
        tare: Array,
        command: Array,
        checks: Mapping[str, AxisChecks],
    ) -> None:
        self.tare = tare
        self.first: Stand | None = None
        self.last: Stand | None = None
        self.given_up = ""
        self._names = tuple(scenario.axes)
        rigs = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        self._range = np.array([rig.force.range_si for rig in rigs])
        self._limit = np.array([limits.force for limits in scenario.limits.values()])
        self._travel = np.array([each.travel for each in bounds])
        self._velocity = np.array([each.velocity for each in bounds])
        self._tolerance = np.array([each.tolerance for each in bounds]) * self._range
        self._weight = np.array([each.carries_gravity for each in bounds])
        found = [checks.get(name, AxisChecks()) for name in self._names]
        self._stiffness = np.array([each.stiffness or np.nan for each in found])
        self._damping = IN_MOTION * np.array([each.damping or 0.0 for each in found])
        self._rate = 1.0 / scenario.dt
        self._blind = np.array([_blind(*each) for each in zip(rigs, bounds, found, strict=True)])
        self._step = np.minimum(FIRST_STEP * self._travel, BLIND_STEP * self._blind)
        self._start = np.array(command, float)
        still = STILL[0] * self._step, STILL[1] * self._range
        self._walk = QuasiStatic(
            command, scenario.dt, scenario.port.transport_samples, accelerations(scenario.limits), still
        )
        self._tangent = np.full((len(bounds), len(bounds)), np.nan)

    def run(self) -> Steps[None]:
        """Axes without weight first, then all together."""
        self.first = yield from self._rest()
        if (yield from self._drifts(self.first)):
            return
        noise = LOUDEST * self.first.force_scatter
        loaded = np.abs(self.first.force)
        self._highest = np.minimum(
            loaded + MAY_RISE * self._range, np.maximum(CLOSE_TO_LIMIT * self._limit, loaded)
        )
        self._noise = noise
        groups = [np.flatnonzero(~self._weight)]
        if self._weight.any():
            groups.append(np.arange(len(self._weight)))
        for active in groups:
            if len(active):
                yield from self._unload(active)
            if self.given_up:
                return

    # -- what is measured ---------------------------------------------------------------------------------

    def _rest(self) -> Steps[Stand]:
        self.last = yield from self._walk.stand()
        return self.last

    def _drifts(self, before: Stand) -> Steps[bool]:
        """Find whether a force that does not rest keeps going; a specimen that relaxes does so less and less."""
        between = yield from self._rest()
        first = np.abs(between.force - before.force)
        if (first <= self._seen()).all():
            return False
        after = yield from self._rest()
        second = np.abs(after.force - between.force)
        drifting = (second > self._seen()) & (second > DRIFTS * first)
        if not drifting.any():
            return False
        worst = int(np.argmax(np.where(drifting, second / self._range, 0.0)))
        self.given_up = (
            f"axes.{self._names[worst]}: the force does not rest: it goes on by {second[worst]:.4g} N from one "
            f"rest to the next: the load cell drifts, or the specimen relaxes for long: {UNKNOWN}"
        )
        return True

    def _forces(self) -> Array:
        assert self.last is not None
        return self.last.force - self.tare

    def _seen(self) -> Array:
        """Return the change of each force beyond which it is more than noise, N."""
        assert self.last is not None
        of_mean = SEEN * np.sqrt(2.0 / self.last.samples) * self.last.force_scatter
        return np.asarray(np.maximum(of_mean, LEAST_SEEN * self._tolerance))

    def _felt(self, index: int) -> float:
        """The same of the axis at ``index`` in its first step, where it may be so short that less has to count."""
        assert self.last is not None
        of_mean = SEEN * float(np.sqrt(2.0 / self.last.samples) * self.last.force_scatter[index])
        least = max(of_mean, LEAST_FORCE * float(self._range[index]))
        return float(self._seen()[index]) if np.isnan(self._stiffness[index]) else least

    def _within(self, active: Places, share: float) -> bool:
        return bool((np.abs(self._forces()) <= share * self._tolerance)[active].all())

    def _deaf(self, change: Array, moved: Array, faster: Array, noise: Array) -> str:
        """Why the forces do not go with the axes, which have ``moved`` ``(n_axes,)`` m meanwhile.

        ``faster`` ``(n_axes,)`` m/s is by how much their velocity differs from before, ``noise`` ``(n_axes,)`` N
        what a change may be by itself.
        """
        tangent = np.where(np.isfinite(self._tangent), self._tangent, 0.0)
        expected = tangent @ moved
        told = np.abs(expected) > noise + LEFT_OVER * (np.abs(tangent) @ np.abs(moved))
        far = np.abs(moved) >= (1.0 - BLIND_STEP) * self._blind
        answer = np.sign(expected) * change + self._damping * np.abs(faster)
        deaf = far & told & (answer < LEAST_ANSWER * np.abs(expected))
        if not deaf.any():
            return ""
        worst = int(np.argmax(np.where(deaf, np.abs(expected), 0.0)))
        return (
            f"axes.{self._names[worst]}: the force no longer goes with the displacement: it has changed by "
            f"{change[worst]:.4g} N where the axis moved by {1e3 * moved[worst]:.4g} mm: {UNKNOWN}"
        )

    def _guard(self, active: Places) -> Callable[[Measurement], str]:
        """A force that rises, one that has gone through zero, and one that does not answer end a step."""
        assert self.last is not None
        marks = deque([(self.last.displacement, self.last.force, np.zeros(len(self._names)))])
        before = self._walk.command
        far = (1.0 - BLIND_STEP) * self._blind
        sign = np.sign(self._forces())[active]
        through = (self._tolerance + self._noise)[active]
        loaded = np.abs(self._forces())[active] > self._tolerance[active]

        def guard(measured: Measurement) -> str:
            nonlocal before
            velocity = (self._walk.command - before) * self._rate
            before = self._walk.command
            for name, force, highest in zip(
                self._names, np.abs(measured.force).tolist(), (self._highest + self._noise).tolist(), strict=True
            ):
                if force > highest:
                    return f"the force of axes.{name} rises"
            here = measured.displacement
            if (np.abs(here - marks[-1][0]) >= BLIND_STEP * self._blind).any():
                marks.append((here, measured.force, velocity))
                while len(marks) > 1 and (np.abs(here - marks[1][0]) >= far).any():
                    marks.popleft()
                place, force, speed = marks[0]
                if why := self._deaf(measured.force - force, here - place, velocity - speed, 2.0 * self._noise):
                    self.given_up = why
                    return why
            beyond = -sign * (measured.force - self.tare)[active] > through
            return "a force has gone through zero" if (beyond & loaded).any() else ""

        return guard

    # -- the steps ----------------------------------------------------------------------------------------

    def _unload(self, active: Places) -> Steps[None]:
        if self._within(active, AIM):
            return
        for index in active.tolist():
            if np.isnan(self._tangent[:, index]).any():
                yield from self._first_step(index, active)
            if self.given_up:
                return
        waited, best = 0, self._level(active)
        for _ in range(MOST_STEPS):
            if self._within(active, AIM):
                return
            step = self._next_step(active)
            if not np.any(step):
                self._give_up(active, "the travel is used up")
                return
            why = yield from self._go(step, active)
            if self.given_up:
                return
            level = self._level(active)
            waited = 0 if level < FALLS * best else waited + 1
            best = min(best, level)
            if waited >= PATIENCE:
                self._give_up(active, why or "the force does not fall")
                return
        self._give_up(active, f"it was not unloaded after {MOST_STEPS} steps")

    def _level(self, active: Places) -> float:
        return float((np.abs(self._forces()) / self._range)[active].max())

    def _give_up(self, active: Places, why: str) -> None:
        """The end, where the rig is; unloaded all the same where the forces are within their tolerance."""
        if not self._within(active, 1.0):
            worst = int(active[np.argmax((np.abs(self._forces()) / self._range)[active])])
            gone = self._walk.command - self._start
            self.given_up = (
                f"axes.{self._names[worst]}: {why}: {self._forces()[worst]:.4g} N after "
                f"{1e3 * gone[worst]:.4g} mm of {1e3 * self._travel[worst]:.4g} mm: the rig holds where it is"
            )

    def _first_step(self, index: int, active: Places) -> Steps[None]:
        """The column of the tangent of one axis: it goes towards less force until that answers."""
        start, before = self._walk.command, self._forces()
        direction = -np.sign(before[index]) or 1.0
        length = self._step[index]
        furthest = min(self._blind[index], self._room(index, direction))
        while True:
            place, force = self._walk.command[index], self._forces()
            goal = start.copy()
            goal[index] += direction * min(length, furthest)
            why = yield from self._walk.ramp(goal, self._velocity, self._guard(active))
            yield from self._rest()
            gone = float(self._walk.command[index] - start[index])
            change = self._forces() - before
            expected = abs(self._stiffness[index] * gone)  # nan where it is not known
            if (
                gone
                and abs(change[index]) > self._felt(index)
                and not abs(change[index]) < LEAST_ANSWER * expected
            ):
                if change[index] * gone < 0.0:
                    self._give_up(active, "the force does not fall, it rises")
                elif abs(change[index]) > MOST_ANSWER * expected + self._seen()[index]:
                    self._give_up(active, f"the force has fallen by more than {MOST_ANSWER:g} times its stiffness")
                elif length > self._step[index] and not why:  # behind lost motion: one more tells the stiffness
                    place, force = self._walk.command[index], self._forces()
                    goal[index] += direction * self._step[index]
                    yield from self._walk.ramp(goal, self._velocity, self._guard(active))
                    yield from self._rest()
                step = float(self._walk.command[index] - place)
                self._tangent[:, index] = (self._forces() - force) / step if step else change / gone
                return
            if why or length >= furthest:
                self._give_up(np.array([index]), why or f"the force does not fall: {UNKNOWN}")
                if not self.given_up:  # it is not loaded beyond its tolerance: a dashpot, say, has nothing to do
                    self._tangent[:, index] = 0.0
                    self._tangent[index, index] = np.inf
                return
            length += self._step[index]

    def _room(self, index: int, direction: float) -> float:
        gone = direction * float(self._walk.command[index] - self._start[index])
        return max(0.0, float(self._travel[index]) - gone)

    def _next_step(self, active: Places) -> Array:
        """The damped Newton step of the ``active`` axes, ``(n_axes,)`` m, within what is left of the travel."""
        force, step = self._forces()[active], np.zeros(len(self._names))
        tangent = self._tangent[np.ix_(active, active)]
        movable = np.isfinite(np.diagonal(tangent))
        places = active[movable]
        try:
            wanted = -np.linalg.solve(tangent[np.ix_(movable, movable)], force[movable])
        except np.linalg.LinAlgError:
            wanted = -force[movable] / np.diagonal(tangent)[movable]
        near = bool((np.abs(self._forces()) <= NEAR * self._tolerance)[active].all())
        wanted *= 1.0 if near else DAMPING
        room = np.array(
            [self._room(place, direction) for place, direction in zip(places, np.sign(wanted), strict=True)]
        )
        allowed = np.minimum(room, LARGEST_STEP * self._travel[places])
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.nanmin(np.where(wanted != 0.0, allowed / np.abs(wanted), 1.0), initial=1.0)
        step[places] = min(1.0, float(share)) * wanted
        return step

    def _go(self, step: Array, active: Places) -> Steps[str]:
        """One step, its rest, and what it tells of the tangent; why it ended before, empty where it did not."""
        start, before = self._walk.command, self._forces()
        why = yield from self._walk.ramp(start + step, self._velocity, self._guard(active))
        yield from self._rest()
        gone, change = self._walk.command - start, self._forces() - before
        self.given_up = self.given_up or self._deaf(change, gone, np.zeros(len(gone)), self._seen())
        length = float(gone @ gone)
        if length and (np.abs(change) > self._seen())[active].any():
            at = np.ix_(active, active)
            tangent = self._tangent[at]
            if np.isfinite(tangent).all():
                missed = change[active] - tangent @ gone[active]
                updated = tangent + np.outer(missed, gone[active]) / length
                # a secant that has the wrong sign is noise, or a reversal: the tangent stays as it was
                if (np.diagonal(updated) * np.diagonal(tangent) > 0.0).all():
                    self._tangent[at] = updated
        return why
