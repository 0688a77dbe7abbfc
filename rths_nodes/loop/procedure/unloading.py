"""Unloading: the operator has the specimen led to no force, by steps, within bounds of travel and rate.

After each step the rig rests, and the forces F are measured. The next one is a damped Newton step of all axes
together, so that those of one specimen do not load each other:

    d = -a J^-1 F,    J <- J + (dF - J d) d^T / (d^T d)

J is the tangent dF/dc of the forces by the commands: first from a small step of each axis towards less force, then
by the secant of each step (Broyden 1965). A yielded specimen unloads as stiff as it is there. Where the forces do
not fall, or the travel is used up, it ends where it is: nothing is led back. Axes that carry weight come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import Problems
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.handling import Unloading
from rths_nodes.loop.procedure.axis_moves import SEEN
from rths_nodes.loop.procedure.motions import accelerations
from rths_nodes.loop.procedure.offsets import Offsets
from rths_nodes.loop.procedure.quasi_static import QuasiStatic, Script, Stand, Steps
from rths_nodes.loop.procedure.records import UnloadingRecord
from rths_nodes.loop.procedure.small_move import Drive
from rths_nodes.loop.scenario.schema import Scenario

Places = NDArray[np.intp]
"""Of axes, among all."""

FIRST_STEP = 0.02
"""Share of the travel of the first step of an axis."""
BLIND = 0.25
"""Share of the travel within which the force of an axis must answer."""
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
"""What goes on by less in a window rests: share of a first step, of the range of the load cell."""


def unload(drive: Drive, scenario: Scenario, offsets: Offsets) -> UnloadingRecord:
    """Lead the specimen to no force, as ``offsets`` count it; what came of it.

    Raises ConfigError before anything moves where the rig file does not bound the way.
    """
    way = Way(scenario, _bounds(scenario), offsets.tares().force, drive.command)
    begun = drive.measured
    outcome = drive.drive(Script(way.run()))
    names, tare = tuple(scenario.axes), way.tare
    before = begun.force if way.first is None else way.first.force
    after = drive.measured.force if outcome.reason or way.last is None else way.last.force
    return UnloadingRecord(
        datetime.now(UTC).isoformat(timespec="seconds"),
        dict(zip(names, (before - tare).tolist(), strict=True)),
        dict(zip(names, (after - tare).tolist(), strict=True)),
        dict(zip(names, (drive.measured.displacement - begun.displacement).tolist(), strict=True)),
        outcome.reason or way.given_up,
    )


def _bounds(scenario: Scenario) -> list[Unloading]:
    problems = Problems()
    found = []
    for name, axis in scenario.axes.items():
        rig = axis.rig_axis
        if rig is None or rig.unloading is None:
            where = f"axes.{rig.name}.unloading of the rig file" if rig else "a rig file (--rig)"
            problems.append(
                f"axes.{name}: nobody has bounded the way to no force: {where} is missing: travel (m) and "
                "velocity (m/s)"
            )
        else:
            found.append(rig.unloading)
    problems.refuse()
    return found


class Way:
    """The way to no force from ``command`` ``(n_axes,)`` m; ``tare`` ``(n_axes,)`` N is what counts as none.

    ``first`` and ``last`` are how the rig stood before and stands now, ``given_up`` why it is not unloaded.
    """

    def __init__(self, scenario: Scenario, bounds: Sequence[Unloading], tare: Array, command: Array) -> None:
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
        self._step = FIRST_STEP * self._travel
        self._start = np.array(command, float)
        still = STILL[0] * self._step, STILL[1] * self._range
        self._walk = QuasiStatic(
            command, scenario.dt, scenario.port.transport_samples, accelerations(scenario.limits), still
        )
        self._tangent = np.full((len(bounds), len(bounds)), np.nan)

    def run(self) -> Steps[None]:
        """Axes without weight first, then all together."""
        self.first = yield from self._rest()
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

    def _forces(self) -> Array:
        assert self.last is not None
        return self.last.force - self.tare

    def _seen(self) -> Array:
        """What a change of each force is that is more than noise, N."""
        assert self.last is not None
        of_mean = SEEN * np.sqrt(2.0 / self.last.samples) * self.last.force_scatter
        return np.asarray(np.maximum(of_mean, LEAST_SEEN * self._tolerance))

    def _within(self, active: Places, share: float) -> bool:
        return bool((np.abs(self._forces()) <= share * self._tolerance)[active].all())

    def _guard(self, active: Places) -> Callable[[Measurement], str]:
        """A force that rises, and one that has gone through zero, end a step."""
        sign = np.sign(self._forces())[active]
        through = (self._tolerance + self._noise)[active]
        loaded = np.abs(self._forces())[active] > self._tolerance[active]

        def guard(measured: Measurement) -> str:
            for name, force, highest in zip(
                self._names, np.abs(measured.force).tolist(), (self._highest + self._noise).tolist(), strict=True
            ):
                if force > highest:
                    return f"the force of axes.{name} rises"
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
            yield from self._go(step, active)
            level = self._level(active)
            waited = 0 if level < FALLS * best else waited + 1
            best = min(best, level)
            if waited >= PATIENCE:
                self._give_up(active, "the force does not fall")
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
        while True:
            room = self._room(index, direction)
            goal = start.copy()
            goal[index] += direction * min(length, BLIND * self._travel[index], room)
            why = yield from self._walk.ramp(goal, self._velocity, self._guard(active))
            yield from self._rest()
            gone = float(self._walk.command[index] - start[index])
            change = self._forces() - before
            if abs(change[index]) > self._seen()[index] and gone:
                self._tangent[:, index] = change / gone
                if change[index] * gone < 0.0:
                    self._give_up(active, "the force does not fall, it rises")
                return
            if why or length >= min(BLIND * self._travel[index], room):
                self._give_up(active, why or "the force does not fall")
                if not self.given_up:  # nothing is loaded beyond its tolerance: nothing to be done
                    self._tangent[:, index] = 0.0
                    self._tangent[index, index] = np.inf
                return
            length *= 2.0

    def _room(self, index: int, direction: float) -> float:
        """How far an axis may still go, m."""
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

    def _go(self, step: Array, active: Places) -> Steps[None]:
        """One step, its rest, and what it tells of the tangent."""
        start, before = self._walk.command, self._forces()
        yield from self._walk.ramp(start + step, self._velocity, self._guard(active))
        yield from self._rest()
        gone, change = self._walk.command - start, self._forces() - before
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
