# SPDX-License-Identifier: Apache-2.0
"""Guarded small move of one axis after the other, to check signs, scales, sensors and cables.

An axis moves out in three stages, rests after each, and returns. The first stage, a quarter of the travel, shows
whether the right axis moves, and in which direction, before it continues. The move ends early if the displacement
opposes the command or runs away, if another axis moves, or if a force changes by more than the rig file allows.
``checks.py`` interprets the results.

The scenario's own specimens make the same moves, and give the expected stiffness, because a rate-dependent
specimen is not as stiff as its parameters say. A wrong scale shows as the ratio of the two, and likewise relative
to the ``experimental_stiffness`` of an integrator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.rig import Rig
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.actuators.specimen_path import SpecimenPath
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.loop.procedure_record import NOT_VERIFIED, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure import small_force
from rths_nodes.procedure.axis_moves import (
    AGAINST,
    AWAY,
    DEAD,
    FORCE,
    SWAPPED,
    AxisMove,
    Bands,
    RigKnowledge,
    section_of,
)
from rths_nodes.procedure.checks import judge, stiffnesses, uncertainty
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.following import Following
from rths_nodes.procedure.motions import GuidedMotion, QuasiStatic, Stand, Steps
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.small_force import SmallForces

STAGES = (0.25, 0.5, 1.0)
"""Shares of the travel at which the axis rests."""
CAUTION = 0.1
"""Tolerated error of the displacement in motion, as a share of the travel."""
LOUDEST = 8.0
"""Largest deviation of a sample, relative to the sensor's scatter."""
OTHER = 0.3
"""Tolerated motion of another axis, as a share of the travel: actuators of one specimen are coupled."""
BARS_ALL = (SWAPPED, FORCE, AWAY)
"""Findings after which no other axis is moved, because the moving axis is not certain."""
STILL = (1e-3, 1e-5)
"""Change in a window that counts as rest: share of the travel, of the load cell's range."""

LEAST, MOST = 0.67, 1.5
"""Bounds of the stiffness over its expectation; outside them it must be signed for."""
SURE = 0.2
"""Relative uncertainty above which a stiffness is not compared."""
SCENARIO, DECLARED = "the scenario's", "experimental_stiffness of the integrator"


@dataclass
class SmallMoves:
    """Moves of all axes. ``first`` is the rest before, ``done`` has the move of each axis."""

    scenario: Scenario
    rig: RigKnowledge
    command: Array
    measured: Measurement
    done: list[AxisMove] = field(default_factory=list)
    first: Stand | None = None

    def run(self) -> Steps[None]:
        """Move all axes in turn."""
        limits, rig = self.scenario.limits, self.rig
        still = STILL[0] * rig.way, STILL[1] * rig.force_range
        walk = QuasiStatic.of(self.scenario, self.command, still)
        self.first = yield from walk.stand()
        for index in range(len(limits)):
            move = AxisMove(index, self._direction(index))
            self.done.append(move)
            yield from self._move(walk, move)
            if move.ended in BARS_ALL:
                return

    def _direction(self, index: int) -> float:
        """Return the direction away from the nearer end of the stroke."""
        stroke = list(self.scenario.limits.values())[index].stroke
        place = max(float(self.measured.displacement[index]), float(self.command[index]))
        return -1.0 if place + (1.0 + CAUTION) * self.rig.way[index] > stroke else 1.0

    def _move(self, walk: QuasiStatic, move: AxisMove) -> Steps[None]:
        start = walk.command
        move.stands.append((yield from walk.stand()))
        bands = self.rig.bands(move.stands[0])
        velocity = self.rig.velocity
        for share in STAGES:
            goal = start.copy()
            goal[move.index] += share * move.direction * self.rig.way[move.index]
            guard = self._guard(walk, move, start, bands)
            move.ended = yield from walk.ramp(goal, velocity, guard)
            if move.ended == AGAINST:  # at rest the force shows more
                move.stands.append((yield from walk.stand()))
            if move.ended:
                break
            move.stands.append((yield from walk.stand()))
            move.ended = early(self.rig, move, bands, share)
            if move.ended:
                break
        yield from walk.ramp(start, velocity, self._listen(move.back))
        move.after = yield from walk.stand()

    @staticmethod
    def _listen(forces: list[Array]) -> Callable[[Measurement], str]:
        """Guard of the way back: only limits and slow_error end it, because it leads to the start."""

        def listen(measured: Measurement) -> str:
            forces.append(measured.force)
            return ""

        return listen

    def look(self, sent: Array, measured: Measurement) -> None:
        """Take in each sample, also at rest."""
        move = self.done[-1] if self.done else None
        if move is not None and move.back and move.after is None:
            move.returning.append((float(sent[move.index]), float(measured.displacement[move.index])))

    def _guard(
        self, walk: QuasiStatic, move: AxisMove, start: Array, bands: Bands
    ) -> Callable[[Measurement], str]:
        rig, before, i = self.rig, move.stands[0], move.index
        caution = np.maximum(CAUTION * rig.way[i], LOUDEST * bands.displacement_scatter)
        other = np.maximum(OTHER * rig.way[i], caution)

        def guard(measured: Measurement) -> str:
            moved = measured.displacement - before.displacement
            own = move.direction * float(moved[i])
            gone = abs(float(walk.command[i] - start[i]))
            move.out.append(measured.force)
            move.last = measured
            if (np.abs(measured.force - before.force) > rig.force_bound).any():
                return FORCE
            if own < -caution[i]:
                return AGAINST
            beyond = np.abs(moved) > other
            beyond[i] = False
            if beyond.any() and abs(own) < np.abs(moved[beyond]).max():
                return SWAPPED
            return AWAY if own > (1.0 + OTHER) * gone + caution[i] else ""

        return guard


def early(rig: RigKnowledge, move: AxisMove, bands: Bands, share: float) -> str:
    """Return why the move must end after the rest at ``share`` of its travel, or empty."""
    i, way = move.index, share * rig.way[move.index]
    moved = move.stands[-1].displacement - move.stands[0].displacement
    own = move.direction * float(moved[i])
    others = np.abs(np.delete(moved, i))
    other = np.delete(np.maximum(bands.displacement, 0.5 * way), i)
    if (others > other).any() and others.max() > 2.0 * abs(own):
        return SWAPPED
    if own < -bands.displacement[i]:
        return AGAINST
    # lost motion may hide the first stage from the sensor
    return DEAD if share > STAGES[0] and own < bands.displacement[i] else ""


class _Specimens(Rig):
    """Specimens of the axes, without actuators: each is at its command."""

    def __init__(self, models: Sequence[object], dt: float) -> None:
        self._paths = [SpecimenPath(registry.build("specimen", params), dt) for params in models]
        self._dt = dt
        self.displacement, self.force = np.zeros(len(models)), np.zeros(len(models))

    def step(self, command: Array, auxiliary: Array) -> None:
        velocity = ((command - self.displacement) / self._dt).tolist()
        rows = zip(self._paths, command.tolist(), velocity, strict=True)
        self.force = np.array([path.move(place, rate) for path, place, rate in rows])
        self.displacement = command


def compare(
    scenario: Scenario, rig: RigKnowledge, moves: Sequence[AxisMove], found: Mapping[str, AxisChecks]
) -> None:
    """Write measured over expected stiffness of each axis into ``found``."""
    expected = {SCENARIO: _of_scenario(scenario, rig), DECLARED: _declared(scenario)}
    for move in moves:
        name, own = rig.names[move.index], found[rig.names[move.index]]
        if own.stiffness is None:
            continue
        known = {who: each[name] for who, each in expected.items() if name in each}
        if not known and NOT_VERIFIED in (own.force_scale, own.displacement_scale):
            own.remarks.append(
                f"axes.{name}: nothing is known of the specimen, neither by the scenario nor by the rig file: its "
                "stiffness is compared with nothing"
            )
        if known and uncertainty(rig, move) > SURE:
            own.remarks.append(f"axes.{name}: its stiffness is found too badly to be compared with any")
            continue
        for who, value in known.items():
            _beside(name, who, value, own)


def _beside(name: str, who: str, value: float, own: AxisChecks) -> None:
    assert own.stiffness is not None
    ratio = own.ratios[who] = own.stiffness / value
    told = f"stiffness of {name} is {ratio:.2f} of {who}"
    if LEAST <= ratio <= MOST:
        if NOT_VERIFIED in (own.force_scale, own.displacement_scale):
            own.remarks.append(f"{told}, {value:.4g} N/m")
    else:
        own.unlike.append(told)
        own.remarks.append(
            f"{told}, {value:.4g} N/m: the scale of the force or of the displacement is wrong, or "
            "another specimen stands in the rig"
        )


def _of_scenario(scenario: Scenario, rig: RigKnowledge) -> dict[str, float]:
    model = _model(scenario)
    if model is None:
        return {}
    bounded = replace(rig, force_bound=np.full(len(rig.names), np.inf), steps=(np.zeros_like(rig.way),) * 2)
    moves = _driven(model, scenario, bounded)
    found = stiffnesses(bounded, moves)
    # a change below the rig's resolution is no stiffness: its force depends on motion only
    seen = {
        index: row[index]
        for index, row in found.items()
        if row[index] * rig.way[index] > 10.0 * _least(rig)[index]
    }
    return {rig.names[index]: value for index, value in seen.items()}


def _least(rig: RigKnowledge) -> Array:
    return np.maximum(rig.steps[1], 1e-5 * rig.force_range)


def _model(scenario: Scenario) -> object:
    try:
        if scenario.rig is not None:
            cls = registry.class_of("rig", scenario.rig)
            if cls.external:
                return None
            return registry.build("rig", scenario.rig, scenario.dt, len(scenario.axes))
        models = [axis.specimen for axis in scenario.axes.values()]
        return None if None in models else _Specimens(models, scenario.dt)
    except ConfigError:
        return None


def _driven(model: Any, scenario: Scenario, rig: RigKnowledge) -> list[AxisMove]:
    rest = Measurement(0, np.zeros(len(rig.names)), np.array(model.force, float), np.zeros(len(rig.names)))
    moves = SmallMoves(scenario, rig, np.zeros(len(rig.names)), rest)
    inputs = np.zeros(len(model.auxiliary_inputs))
    steps = moves.run()
    for command in _answered(steps, model, inputs):
        moves.look(*command)
    return moves.done


def _answered(steps: Any, model: Any, inputs: Array) -> Iterator[tuple[Array, Measurement]]:
    measured = None
    while True:
        try:
            command = steps.send(measured)
        except StopIteration:
            return
        model.step(command, inputs)
        place, force = (np.array(each, float) for each in (model.displacement, model.force))
        measured = Measurement(0, place, force, command)
        yield command, measured


def _declared(scenario: Scenario) -> dict[str, float]:
    """Return the stiffness (N/m) that an external integrator assumes, for axes that are degrees of freedom."""
    matrix = scenario.integrator.experimental_stiffness
    if matrix is None or type(scenario.setup).type_name != "identity":
        return {}
    diagonal = np.diagonal(np.asarray(matrix, float)).tolist()
    scales = [each.length / each.force for each in scenario.similitude]  # from structure to specimen
    rows = zip(scenario.axes, diagonal, scales, strict=False)
    return {name: value * scale for name, value, scale in rows if value > 0.0}


def check_axes(drive: RigDrive, scenario: Scenario, offsets: Offsets) -> dict[str, AxisChecks]:
    """Move each axis a little, out and back; return the findings by axis.

    Raises ConfigError before any motion if the rig file does not bound the move, or if it is too small compared
    with the scatter of ``offsets``.
    """
    _refuse(scenario, offsets, drive.port.simulated)
    rig = RigKnowledge.of(scenario, offsets, drive.port.auxiliary_names)
    moves = SmallMoves(scenario, rig, drive.command, drive.measured)
    following = Following(scenario, offsets, {})

    def watch(sent: Array, measured: Measurement) -> str:
        moves.look(sent, measured)
        return following.slow(sent, measured)

    outcome = drive.drive(GuidedMotion(moves.run(), drive.command, watch))
    found = judge(rig, moves.first, moves.done, outcome.reason)
    compare(scenario, rig, [move for move in moves.done if move.complete], found)
    pressed = SmallForces.on(scenario)
    if pressed and not any(row.findings for row in found.values()):
        forces = SmallForces(scenario, rig, drive.command)

        def watch_forces(sent: Array, measured: Measurement) -> str:
            return following.slow(forces.watched(sent, measured, drive.shift), measured)

        outcome = drive.drive(GuidedMotion(forces.run(), drive.command, watch_forces, lambda: forces.modes))
        small_force.judge(rig, forces.done, outcome.reason, pressed, found)
    return found


def _refuse(scenario: Scenario, offsets: Offsets, simulated: bool) -> None:
    problems = Problems()
    for (name, axis), scatter in zip(scenario.axes.items(), offsets.displacement_scatter.tolist(), strict=True):
        rig = axis.rig_axis
        if rig is None or rig.small_move is None:
            problems.append(
                f"axes.{name}: signs and scales are checked by a small move, which nobody has bounded: "
                f"{section_of(rig, 'small_move')} is missing: displacement (m), velocity (m/s) and force (N)"
            )
            continue
        if by_controller(axis) and rig.small_move.press is None:
            problems.append(
                f"axes.{name}: the force loop of the controller is checked by a small force, which nobody has "
                f"bounded: {section_of(rig, 'small_move')} has no press (N)"
            )
        needed = LOUDEST * scatter / STAGES[0]
        if rig.small_move.displacement < needed:
            problems.append(
                f"axes.{rig.name}.small_move.displacement of the rig file = "
                f"{rig.small_move.displacement:g} m: must be >= {needed:.3g} m, to be seen beside "
                f"the scatter of the displacement, {scatter:.3g} m rms"
            )
        if rig.characterised is not None and rig.characterised.simulated and not simulated:
            problems.append(
                f"axes.{rig.name}.characterised of the rig file: was found on a simulator, and this rig is none: "
                "characterise the rig itself, or leave the section out"
            )
    problems.refuse()
