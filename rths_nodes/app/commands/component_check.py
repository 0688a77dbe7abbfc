# SPDX-License-Identifier: Apache-2.0
"""Check a component alone, with read-only arrays, and then in a short test on two engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.arithmetic import is_finite
from rths_nodes.core.data import Data
from rths_nodes.core.decay import check_at
from rths_nodes.core.errors import ComponentError, ConfigError, Problems, show, unknown
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import AnyParams, Spec, declared, evolved
from rths_nodes.core.protocols import Actuator, Compensator, Ramp, Rig, Setup
from rths_nodes.core.samples import Array, Motion, Target
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.options import COMPILED, STAGES

DT, SAMPLES, SUBSTEPS = 1.0 / 1024.0, 512, 4
AMPLITUDE, STIFFNESS = 0.01, 1.0e6
"""``AMPLITUDE``: amplitude of the swept motion, m. ``STIFFNESS``: stiffness of a spring whose force lags the
motion by 20 samples, N/m."""
TRANSPORT = 20
PAPER, COUPLED, LOADED = "chen_ricles_2010", "two_actuator_coupler", "column_under_axial_load"
BARE = [f"axes.{axis}.{part}=null" for axis in ("north", "south") for part in ("actuator", "specimen")]
SMALL = ("ground_motion.scale=0.3",)  # at full scale, an elastic structure would exceed the velocity limit
TESTS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "ground_motion": (PAPER, "ground_motion", ()),
    "structure": (PAPER, "structure", SMALL),
    "damping": ("rths_benchmark_2020", "structure.damping", ()),
    "reduction": ("phillips_spencer_2012", "reduction", ("interface=[x_1, x_2, x_3]", "semi_active.type=passive")),
    "compensator": (PAPER, "compensator", ()),
    "ramp": (PAPER, "ramp", ()),
    "setup": (PAPER, "setup", ()),
    "integrator": (PAPER, "integrator", ()),
    "restoring_force": (PAPER, "structure.restoring_force", SMALL),
    "actuator": (PAPER, "axes.story_1.actuator", ()),
    "specimen": (PAPER, "axes.story_1.specimen", ()),
    "rig": (COUPLED, "rig", BARE),
    "semi_active": ("phillips_spencer_2012", "semi_active", ()),
    "force_controller": (LOADED, "axes.load.force_control.law", ("ground_motion.motion.amplitude=0.1",)),
    "quantity": (PAPER, "levels.quantities.tried", ()),
}
"""Test for each family: the scenario, the section that receives the component, and additional overrides."""
REQUIRED: Mapping[str, Data] = {"quantity": {"of": ["force.story_1"]}}
INSIDE = 0.01
"""Distance of a tried value from an exclusive bound, relative to the bound or, if the bound is 0, to the
value in effect."""


class Drive(NamedTuple):
    """Drives a component: ``build(params)`` builds it, and ``step(component, sample)`` returns its outputs."""

    build: Callable[[AnyParams], Any]
    step: Function
    resets: bool = True


def component_of(text: str) -> tuple[str, str] | None:
    """Return the family and the name of the component ``text``, or None if ``text`` is not a component.

    ``text`` is ``FAMILY.NAME``, or the name of a component from another package. Raises ConfigError if NAME is
    unknown.
    """
    family, sign, name = text.partition(".")
    if sign and family in registry.FAMILIES and not Path(text).exists():
        if name not in registry.names(family):
            raise unknown(family, family, name, registry.names(family))
        return family, name
    foreign = [
        (family, text)
        for family in registry.FAMILIES
        if text in registry.names(family) and text not in registry.built_in(family)
    ]
    return foreign[0] if len(foreign) == 1 else None


def check(family: str, name: str, overrides: Sequence[str]) -> Iterator[str]:
    """Check a component with ``overrides`` (KEY=VALUE) and yield result texts. Raises ConfigError on failure."""
    if family not in TESTS:
        raise ConfigError(f"{family}.{name}: cannot be checked alone; families with a check: {', '.join(TESTS)}")
    data: Data = {"type": name} | REQUIRED.get(family, {})
    for assignment in overrides:
        key, _, value = assignment.partition("=")
        data[key.strip()] = parse(value, f"--set {key}")
    cls, problems = registry.load(family, name), Problems()
    parameters = {key: value for key, value in data.items() if key != "type"}
    params, label = from_data(cls.Params, parameters, family), f"{family}.type = {name!r}"
    if family in DRIVES:
        with problems.gathered():
            check_driven(DRIVES[family], params, label)
            _check_bounds(family, params, parameters, label)
        problems.refuse()
        yield f"{label}: states, reset, inputs and bounds are correct in {SAMPLES} samples"
    yield _compared(family, data, label)


def check_driven(drive: Drive, params: AnyParams, label: str) -> None:
    part, second = drive.build(params), drive.build(params)
    first = _driven(drive, part, label)
    _check_same(first, _driven(drive, second, label), f"{label}: a second object shares state with the first")
    if drive.resets:
        part.reset()
    _check_same(first, _driven(drive, part, label), f"{label}: reset() does not restore the initial state")


def _driven(drive: Drive, part: object, label: str) -> list[object]:
    rows = []
    for sample in range(SAMPLES):
        try:
            row = drive.step(part, sample)
        except ComponentError as error:
            changed = "read-only" in str(error)
            raise ConfigError(f"{error}; the step modifies an input array" if changed else str(error)) from error
        if not is_finite(row):
            raise ConfigError(f"{label}: output in sample {sample} = {show(row)}: must be finite")
        rows.append(row)
    return rows


def _check_same(first: Sequence[object], again: Sequence[object], fault: str) -> None:
    for sample, (one, other) in enumerate(zip(first, again, strict=True)):
        if one != other:
            raise ConfigError(f"{fault} (sample {sample}: {show(other)} instead of {show(one)})")


def _check_bounds(family: str, params: AnyParams, parameters: Data, label: str) -> None:
    problems, drive = Problems(), DRIVES[family]
    for key, spec in declared(type(params)).items():
        for bound in _outermost(spec, getattr(params, key)):
            part = None
            try:
                part = drive.build(from_data(type(params), parameters | {key: bound}, family))
                _driven(drive, part, label)
            except ConfigError as error:
                if part is not None or error.__cause__ is not None:  # otherwise, other keys exclude the bound
                    value = show(float(bound), spec.unit)
                    problems.append(f"{label}: {key} = {value} is within bounds, but the step fails ({error})")
    problems.refuse()


def _outermost(spec: Spec, value: float | None) -> Iterator[float]:
    if spec.kind in ("number", "integer"):
        yield from (bound for bound in (spec.at_least, spec.at_most) if bound is not None)
        for bound, sign in ((spec.more_than, 1), (spec.less_than, -1)):
            if bound is not None:
                near = 1 if spec.kind == "integer" else INSIDE * abs(bound or value or 1.0)
                yield bound + sign * near


def _compared(family: str, data: Data, label: str) -> str:
    scenario, path, more = TESTS[family]
    overrides = ["duration=2", f"{path}={json.dumps(data)}", *more]
    plain = hosts.run(scenario, overrides, engine=STAGES, keep=True)
    if plain.outcome == "failed":
        raise ConfigError(f"{label}: failed in {scenario} ({plain.reason})")
    if plain.outcome != "finished":
        return f"{label}: compiled results are not compared, because {scenario} trips ({plain.reason})"
    try:
        compiled = hosts.run(scenario, overrides, engine=COMPILED, keep=True)
    except ConfigError as error:
        return f"{label}: cannot be compiled ({error})"
    if compiled.engine != COMPILED:
        reasons = "; ".join(compiled.notes) or compiled.reason or "the test was run stage by stage"
        return f"{label}: was not compiled ({reasons})"
    one, other = plain.read().arrays(), compiled.read().arrays()
    for name, values in one.items():
        if not np.array_equal(values, other[name], equal_nan=values.dtype.kind == "f"):
            raise ConfigError(f"{label}: in {scenario}, {name} differs between compiled code and plain Python")
    return f"{label}: compiled code and plain Python are bit-identical in {plain.samples} samples of {scenario}"


# Motions and drives


def _read_only(values: Array) -> Array:
    values.setflags(write=False)
    return values


TIMES = DT * np.arange(SAMPLES + SUBSTEPS + 1)
PHASE = 2.0 * np.pi * (1.0 + 4.0 * TIMES) * TIMES
POSITION = _read_only((AMPLITUDE * np.sin(PHASE))[:, None])
VELOCITY = _read_only(np.gradient(POSITION, DT, axis=0))
ACCELERATION = _read_only(np.gradient(VELOCITY, DT, axis=0))
MEASURED = _read_only(np.roll(POSITION, TRANSPORT, axis=0))
FORCE = _read_only(STIFFNESS * MEASURED)


def _motion(sample: int, force: bool = False) -> Motion:
    rows = POSITION[sample], VELOCITY[sample], ACCELERATION[sample]
    return Motion(*rows, force=FORCE[sample]) if force else Motion(*rows)


def _step_compensator(part: Compensator, sample: int) -> object:
    command = part.step(_motion(sample, True), MEASURED[sample]).tolist()
    return command, [float(value) for value in part.state()]


def _target(step: int) -> Target:
    motion = _motion(step * SUBSTEPS)
    moved = motion.displacement, motion.velocity, motion.acceleration
    return Target(step, *moved, motion.acceleration, FORCE[0], FORCE[0])


def _step_ramp(part: Ramp, sample: int) -> object:
    number, substep = divmod(sample, SUBSTEPS)
    if not sample:
        part.start(_target(0))
    if not substep:
        part.follow(_target(number + 1))
    motion = part.step(substep + 1)
    return [getattr(motion, name).tolist() for name in ("displacement", "velocity", "acceleration")]


def _step_setup(part: Setup, sample: int) -> object:
    moved = part.axes(_motion(sample))
    forces = part.forces(FORCE[sample], POSITION[sample])
    return [row.tolist() for row in (moved.displacement, moved.velocity, moved.acceleration, forces)]


def _actuator(params: AnyParams) -> object:
    kind = registry.load("specimen", "kelvin_voigt").Params
    specimen = registry.build("specimen", from_data(kind, {"stiffness": 1e6, "damping": 1e4}))
    return registry.build("actuator", params, DT, specimen)


def _specimen(params: AnyParams) -> object:
    specimen = registry.build("specimen", params)
    if specimen.decay is not None:
        check_at(specimen.decay, "specimen", float(np.abs(VELOCITY).max()), DT)
    kind = registry.load("actuator", "first_order").Params
    return registry.build("actuator", from_data(kind, {"alpha": 5.0}), DT, specimen)


def _step_axis(part: Actuator, sample: int) -> object:
    part.step(float(POSITION[sample, 0]))
    return part.displacement, part.velocity, part.force


def _step_rig(part: Rig, sample: int) -> object:
    command = _read_only(np.array([POSITION[sample, 0], MEASURED[sample, 0]]))
    part.step(command, _read_only(np.zeros(len(part.auxiliary_inputs))))
    return [row.tolist() for row in (part.displacement, part.velocity, part.force, part.auxiliary)]


def _restoring_force(params: AnyParams) -> object:
    if "stiffness" in declared(type(params)) and params.stiffness is None:  # None: the structure's stiffness
        params = evolved(params, stiffness=STIFFNESS)
    return registry.build("restoring_force", params, 1)


DRIVES: Mapping[str, Drive] = {
    "compensator": Drive(lambda params: registry.build("compensator", params, DT, 1), _step_compensator),
    "ramp": Drive(lambda params: registry.build("ramp", params, DT, SUBSTEPS, 1), _step_ramp, resets=False),
    "setup": Drive(lambda params: registry.build("setup", params, 1, 1), _step_setup, resets=False),
    "actuator": Drive(_actuator, _step_axis),
    "specimen": Drive(_specimen, _step_axis),
    "rig": Drive(lambda params: registry.build("rig", params, DT, 2), _step_rig),
    "restoring_force": Drive(_restoring_force, lambda part, sample: part.force(POSITION[sample]).tolist()),
}
