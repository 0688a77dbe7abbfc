# SPDX-License-Identifier: Apache-2.0
"""Rules about structure, specimen and excitation, and the cautions of components."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.samples import ROUNDING
from rths_nodes.core.validation import walk
from rths_nodes.loop.scenario.judgement.rule import Found, Judgement, Seen, caution, parameter, refused, rules
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.scenario.updating import SHADOW, USED
from rths_nodes.mechanics.small_specimen import SmallSpecimen
from rths_nodes.mechanics.structure import is_sparse

OTHER, CONTRARY = 2.0, 100.0
"""Ratios of two values for the same stiffness: doubtful above ``OTHER``, refused above ``CONTRARY``."""
STATED = ("experimental_stiffnesses", "experimental_stiffness")
"""Parameters of structures and integrators that define the stiffness of the tested part."""
STEPS = 10.0
LONGEST_PERIOD = 20.0
"""Longest usual period, twice the period of the tallest towers, s."""
UNLIKE = 10.0
"""Ratio above which two stiffnesses cannot belong to the same specimen."""
NO_FORCE = 1e-4
"""Fraction of the force limit below which the force of a specimen is negligible."""
STRONGEST = 15.0
"""Peak ground acceleration above which a record is exceptional or in another unit, m/s^2."""
LARGEST = 64


@rules(
    stiffness_of_another_structure=refused(
        "the stiffness of a restoring force must be within a factor of 100 of the stiffness from "
        "`mass` and `frequency`",
        "One of the three values is wrong or in another unit",
    ),
    stiffness_beside_frequency=caution(
        "the stiffness of a restoring force should be within a factor of 2 of the stiffness from "
        "`mass` and `frequency`",
        "Damping is computed from `mass` and `frequency`, but the motion from the restoring force",
    ),
)
def _stiffness(seen: Seen) -> Iterator[Found]:
    structure = seen.scenario.structure
    mass, frequency = parameter(structure, "mass"), parameter(structure, "frequency")
    component = parameter(parameter(structure, "restoring_force"), "stiffness")
    if isinstance(mass, float) and isinstance(frequency, float) and isinstance(component, float):
        other = mass * (2.0 * math.pi * frequency) ** 2
        ratio = max(component / other, other / component) if component > 0.0 else math.inf
        if ratio > OTHER:
            rule = "stiffness_of_another_structure" if ratio > CONTRARY else "stiffness_beside_frequency"
            text = f"mass = {mass:g} kg and frequency = {frequency:g} Hz give {other:.4g} N/m"
            yield Found(rule, "structure.restoring_force.stiffness", f"{component:g} N/m", text)


def _tested(section: str, axis: Axis) -> Iterator[tuple[str, float]]:
    if axis.rig_axis is not None and axis.rig_axis.stiffness is not None:
        yield f"{section}.rig_axis.stiffness", axis.rig_axis.stiffness
    if axis.specimen is None:
        return
    try:
        small = SmallSpecimen.of(registry.build("specimen", axis.specimen)).slope
    except (ConfigError, ValueError):  # no stiffness, e.g. static friction
        return
    yield f"{section}.specimen" + ".stiffness" * (parameter(axis.specimen, "stiffness") == small), small


@rules(
    specimen_beside_partition=caution(
        "the initial stiffness of the specimen should be within a factor of 2 of the experimental "
        "stiffness in structure or integrator",
        "The stiffness omitted from the numerical part differs from the specimen's stiffness",
    ),
)
def _partition(seen: Seen) -> Iterator[Found]:
    scenario = seen.scenario
    section = "integrator" if scenario.structure is None else "structure"
    params: Any = getattr(scenario, section)
    name = next((key for key in STATED if parameter(params, key) is not None), None)
    if name is None or scenario.rig is not None:
        return
    from rths_nodes.loop.scenario.assembly import Assembly, transformation

    try:
        assembly = Assembly(scenario)
        built = assembly.structure
        matrix: Any = parameter(params, name) if built is None else built.experimental_stiffness
        if built is not None and (is_sparse(matrix) or len(matrix) > LARGEST):
            return
        tested = np.array(matrix, float)
        moved, forces = (np.linalg.pinv(columns) for columns in transformation(assembly))
        stated = np.diag(forces @ tested @ moved)
    except (ConfigError, ValueError, np.linalg.LinAlgError):  # an invalid part is refused later, with the reason
        return
    least = ROUNDING * np.abs(tested).max()
    for axis, stiffness in zip(scenario.moved_axes, stated.tolist(), strict=True):
        for where, slope in _tested(f"axes.{axis}", scenario.axes[axis]) if stiffness > least else ():
            ratio = max(slope / stiffness, stiffness / slope) if slope > 0.0 else math.inf
            if ratio > OTHER:
                text = f"{section}.{name} is {stiffness:g} N/m in the direction of this axis, a ratio of "
                text += f"{ratio:.3g}"
                yield Found("specimen_beside_partition", where, f"{slope:g} N/m", text)


def first_period(scenario: Scenario) -> float | None:
    """Return the longest period (s) of the structure including its tested part, or None if unknown."""
    if scenario.structure is None or scenario.structure.cannot_be_built:
        return None
    # imported here, because scipy is slow to import and a run does not need it
    from rths_nodes.numerical.structures.damping import modes

    try:
        built = registry.build("structure", scenario.structure)
        if is_sparse(built.mass) or len(built.mass) > LARGEST:
            return None
        omega, _ = modes(built.mass + built.experimental_mass, built.stiffness + built.experimental_stiffness)
    except (ConfigError, np.linalg.LinAlgError):  # an invalid structure is refused later, with the reason
        return None
    return 2.0 * math.pi / float(omega[0]) if len(omega) and omega[0] > 0.0 else None


@rules(
    period_of_structure=caution(
        "the first period of the structure should be at least 10 integration steps, and at most "
        "`duration` or 20 s, whichever is larger",
        "Check that mass and stiffness are in kg and N/m",
    ),
)
def _period(seen: Seen) -> Iterator[Found]:
    scenario, period = seen.scenario, first_period(seen.scenario)
    if period is None or STEPS * scenario.step <= period <= max(scenario.duration, LONGEST_PERIOD):
        return
    text = f"but the test takes {scenario.duration:g} s"
    if period < STEPS * scenario.step:
        text = f"only {period / scenario.step:.3g} integration steps"
    text = f"the first period is {period:.3g} s, {text}"
    yield Found("period_of_structure", "structure", type_of(scenario.structure), text)


@rules(
    specimen_of_another_rig=caution(
        "`specimen.stiffness` should be within a factor of 10 of the stiffnesses in rig file and integrator",
        "One of the two values is for another specimen or in another unit",
    ),
    specimen_without_force=caution(
        "the force of a `kelvin_voigt` specimen at the limits of stroke and velocity should be at "
        "least 1/10 000 of `limits.force`",
        "The force of such a specimen is negligible; check that its stiffness is in N/m",
    ),
)
def _specimen(seen: Seen) -> Iterator[Found]:
    equivalent = parameter(seen.scenario.integrator, "equivalent_stiffness")
    for path, axis in seen.axes:
        stiffness, limits = parameter(axis.specimen, "stiffness"), axis.limits
        if not isinstance(stiffness, float):
            continue
        key_path, shown, expected = f"{path}.specimen.stiffness", f"{stiffness:g} N/m", {}
        if axis.rig_axis is not None and axis.rig_axis.stiffness is not None:
            expected["the stiffness in the rig file"] = axis.rig_axis.stiffness
        if isinstance(equivalent, float) and equivalent > 0.0 and len(seen.scenario.axes) == 1:
            expected["integrator.equivalent_stiffness"] = equivalent
        for who, other in expected.items():
            if not other / UNLIKE <= stiffness <= other * UNLIKE:
                yield Found("specimen_of_another_rig", key_path, shown, f"{who} is {other:g} N/m")
        force = stiffness * limits.stroke + (parameter(axis.specimen, "damping") or 0.0) * limits.velocity
        if type_of(axis.specimen) == "kelvin_voigt" and force < NO_FORCE * limits.force:
            text = f"the force at the limits of stroke and velocity is only {force:.3g} N, but limits.force is "
            yield Found("specimen_without_force", key_path, shown, text + f"{limits.force:g} N")


@rules(
    small_move_beyond_force=caution(
        "`stiffness` x `small_move.displacement` should be at most ten times `small_move.force`",
        "The small move is aborted before it yields a result",
    ),
)
def _small_move(seen: Seen) -> Iterator[Found]:
    for path, _, rig in seen.rig_axes:
        if rig.small_move is None or rig.stiffness is None:
            continue
        move, force = rig.small_move, rig.stiffness * rig.small_move.displacement
        if force > UNLIKE * move.force:
            text = f"the force is {force:.4g} N with a stiffness of {rig.stiffness:g} N/m, but small_move.force "
            text += f"is {move.force:g} N"
            key_path, shown = f"{path}.rig_axis.small_move.displacement", f"{move.displacement:g} m"
            yield Found("small_move_beyond_force", key_path, shown, text)


@rules(
    record_of_another_unit=caution(
        "the peak of a record should be at most 15 m/s^2, unless `accept_any_peak` is set",
        "Hardly any recorded earthquake has a larger peak; check the unit",
    ),
)
def _record(seen: Seen) -> Iterator[Found]:
    for path, part in walk(seen.scenario):
        if parameter(part, "accept_any_peak") is not False:
            continue
        motion = registry.build("ground_motion", part, seen.scenario.seed)
        peak, unit = float(np.abs(motion.values).max() / abs(part.scale)), part.unit or "as stated in the file"
        if peak > STRONGEST:
            text = f"the record has a peak of {peak:.4g} m/s^2"
            yield Found("record_of_another_unit", f"{path}.unit", unit, text)


@rules(
    copies_that_follow=refused(
        "`updating.mode` must be `shadow`",
        "Copies of the specimen may affect a test only on a simulated rig",
        True,
    ),
)
def _copies(seen: Seen) -> Iterator[Found]:
    updating = seen.scenario.updating
    if updating is not None and updating.mode == USED:
        yield Found("copies_that_follow", "updating.mode", USED, f"must be {SHADOW}")


def of_components(scenario: Scenario) -> Iterator[Judgement]:
    many: Counter[str] = Counter()
    for path, part, component in scenario.parts():
        for text in part.cautions(component):
            many[path] += 1
            number = f" ({many[path]})" if many[path] > 1 else ""
            yield Judgement(f"component: {path}{number}", f"{path}: {text}")
