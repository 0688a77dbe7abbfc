# SPDX-License-Identifier: Apache-2.0
"""Rehearsals of a test (on a simulator, slower, or with less excitation) and their limitations.

Each rehearsal is a scenario with its own hash. The operator arms a rehearsal with this hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.expressions import named
from rths_nodes.core.parameters import AnyParams, type_of
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.laboratory.actuators.unloaded import SpecimenPath
from rths_nodes.laboratory.sensors import Output, SecondSensor, Sensors
from rths_nodes.loop.scenario.files import replace
from rths_nodes.loop.scenario.schema import Scenario

DISAGREEMENTS = ("displacement_disagreement", "force_disagreement")
WITHOUT_CORRIDOR = ((["monitor", "corridor"], None), (["monitor", "corridor_action"], "indicate"))
"""Changes that disable the corridor, because its bands are valid only at full level in real time."""

SHARE_OF_STROKE = 0.05
"""Amplitude of the cycle in :func:`rate_dependence` without an elastic limit, as a fraction of the stroke."""
CYCLE_HZ, CYCLE_SAMPLES = 1.0, 256
FINEST = 16
SAME_FORCE = 0.01
"""Largest relative rms change of force for which a specimen counts as rate-independent."""


def simulated(scenario: Scenario) -> Scenario:
    """Return the test on a simulator without simulated faults. Raises ConfigError if a model is missing."""
    data, real = scenario.data(), not scenario.port.builds_axes
    kept = {} if real else data["port"] | dict.fromkeys(("hydraulics", "interlock", "watchdog"))
    times = {name: getattr(scenario.port, name) for name in ("transport_samples", "longest_wait")}
    data["port"] = kept | {"type": "simulator"} | times
    for axis in data["axes"].values():
        axis["sensors"] |= _right(Sensors(), Sensors.WRONG)
        axis["output"] |= _right(Output(), Output.WRONG)
        if axis["sensors"]["second"]:
            axis["sensors"]["second"] |= _right(SecondSensor(), ("offset", "scale"))
        if real and (levels := axis["limits"]["levels"]):
            levels |= dict.fromkeys(DISAGREEMENTS)
            if not any(levels.values()):
                axis["limits"]["levels"] = None
    if real:
        _drop_channels(data["levels"])
    try:
        return from_data(Scenario, data)
    except ConfigError as error:
        hint = "add simulated actuators and specimens to the scenario, or leave out the rungs on a simulator"
        raise ConfigError(*(f"rehearsal on a simulator: {problem}" for problem in error.problems), hint) from None


def _drop_channels(levels: Data) -> None:
    gone: set[str] = set()

    def of_rig(text: str) -> bool:
        return any(noun == "channel" or (noun == "quantity" and whose in gone) for noun, whose in named(text))

    for name, quantity in levels["quantities"].items():
        if any(map(of_rig, quantity["of"])):
            gone.add(name)
    levels["quantities"] = {name: row for name, row in levels["quantities"].items() if name not in gone}
    levels["expressions"] = {name: row for name, row in levels["expressions"].items() if not of_rig(row["of"])}


def _right(true: object, names: tuple[str, ...]) -> Data:
    return {name: to_data(getattr(true, name)) for name in names}


def slower(scenario: Scenario, ratio: float) -> Scenario:
    """Return the test with motions slower by the factor ``ratio``. Raises ConfigError if the result is invalid."""
    if ratio == 1:
        return scenario
    return replace(scenario, [(["time_ratio"], scenario.time_ratio * ratio), *WITHOUT_CORRIDOR])


def at_level(scenario: Scenario, level: float) -> Scenario:
    """Return the test with its excitation scaled by ``level``, or raise ConfigError if it cannot be scaled."""
    if not (math.isfinite(level) and level > 0.0):
        raise ConfigError(f"level = {level:g}: must be > 0")
    if level == 1.0:
        return scenario
    changes = [*_scaled(scenario, level), *WITHOUT_CORRIDOR]
    if scenario.soft_start is not None:
        changes.append((["soft_start", "amplitude"], level * scenario.soft_start.amplitude))
    return replace(scenario, changes)


def _scaled(scenario: Scenario, level: float) -> list[tuple[list[str], object]]:
    places = {
        ("ground_motion",): scenario.ground_motion,
        ("integrator", "displacement"): scenario.integrator.displacement,
        ("integrator",): scenario.integrator if scenario.integrator.proportional_to else None,
    }
    changes: list[tuple[list[str], object]] = []
    for path, motion in places.items():
        kind = type_of(motion) if motion is not None else "none"
        if kind == "none":
            continue
        name = motion.proportional_to
        if not name:
            raise ConfigError(
                f"level = {level:g}: {'.'.join(path)}.type = {kind!r} cannot be scaled, because its Params "
                "does not name a parameter in proportional_to"
            )
        changes.append(([*path, name], level * getattr(motion, name)))
    if not changes:
        reason = "the test has no excitation"
        if who := scenario.integrator.who:
            reason = f"{who} of the integrator applies the excitation. Reduce it there"
        raise ConfigError(f"level = {level:g}: cannot be applied, because {reason}")
    return changes


def elastic_limits(scenario: Scenario) -> dict[str, float]:
    on_rig = {name: axis.rig_axis for name, axis in scenario.axes.items() if axis.rig_axis is not None}
    return {name: row.elastic_limit for name, row in on_rig.items() if row.elastic_limit is not None}


def rate_remarks(scenario: Scenario, ratio: float) -> list[str]:
    return [*_specimens(scenario, ratio), *_parts_with_time(scenario, ratio)] if ratio > 1 else []


def _specimens(scenario: Scenario, ratio: float) -> Iterator[str]:
    if scenario.rig is not None:
        yield f"rig ({type_of(scenario.rig)}): the rate dependence of its forces is unknown before the test"
        return
    limits = elastic_limits(scenario)
    for name, axis in scenario.axes.items():
        if axis.specimen is None:
            path = f"axes.{name}.specimen"
            yield f"{path}: the specimen has no model, so the rate dependence of its force is unknown"
            continue
        amplitude = limits.get(name, SHARE_OF_STROKE * axis.limits.stroke)
        differs = rate_dependence(axis.specimen, amplitude, ratio)
        over = f"in cycles of {1e3 * amplitude:.3g} mm at {CYCLE_HZ:g} Hz"
        path = f"axes.{name}.specimen ({type_of(axis.specimen)})"
        if not math.isfinite(differs):
            yield f"{path}: the rate dependence of the force cannot be computed"
        elif differs > SAME_FORCE:
            yield (
                f"{path}: the force depends on the rate and differs by {differs:.0%} (rms, {over}) in a test "
                f"that is {ratio:g} times slower"
            )


def rate_dependence(params: object, amplitude: float, ratio: float) -> float:
    """Return the relative rms change of a specimen's force if its motion is ``ratio`` times slower.

    The forces are compared over the second cycle of a sine with ``amplitude`` (m) and frequency ``CYCLE_HZ``. The
    result is NaN if a force cannot be computed.
    """
    parts = min(math.ceil(ratio), FINEST)
    fast = _cycle(params, amplitude, 1, 1.0)
    slow = _cycle(params, amplitude, parts, ratio)
    size = float(np.sqrt(np.mean(fast**2)))
    return float(np.sqrt(np.mean((fast - slow) ** 2))) / size if size else float(np.abs(slow).max())


def _cycle(params: AnyParams, amplitude: float, parts: int, ratio: float) -> Array:
    count = 2 * CYCLE_SAMPLES * parts
    angle = 2.0 * np.pi * np.arange(1, count + 1) / (CYCLE_SAMPLES * parts)
    displacement = amplitude * np.sin(angle)
    velocity = amplitude * 2.0 * np.pi * CYCLE_HZ / ratio * np.cos(angle)
    path = SpecimenPath(registry.build("specimen", params), ratio / (CYCLE_HZ * CYCLE_SAMPLES * parts))
    with np.errstate(all="ignore"):
        force = [path.move(d, v) for d, v in zip(displacement.tolist(), velocity.tolist(), strict=True)]
    return np.array(force[parts - 1 :: parts][CYCLE_SAMPLES:])


def _parts_with_time(scenario: Scenario, ratio: float) -> Iterator[str]:
    damping = np.asarray(scenario.integrator.equivalent_damping or 0.0, dtype=float)
    if damping.any():
        yield (
            f"integrator ({type_of(scenario.integrator)}): equivalent_damping includes the damping force of the "
            f"specimen, which is only 1/{ratio} of its value in this rung"
        )
    if (kind := type_of(scenario.compensator)) != "none":
        yield (
            f"compensator ({kind}): the delay is {ratio} times smaller relative to the motion, so this rung "
            "does not show the tracking of a test in real time"
        )
    if lead := scenario.force_lead:
        yield f"force_lead: relative to the motion, {1e3 * lead:g} ms are {ratio} times shorter than in real time"
