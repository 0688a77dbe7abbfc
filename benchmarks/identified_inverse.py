# SPDX-License-Identifier: Apache-2.0
"""Effect of each part of the identified inverse, and its limits: python benchmarks/identified_inverse.py [CASE]

Each row is a change of the RTHS benchmark (default: case 1), run twice: with learning, and with the identified
coefficients. ``--seconds 15`` uses only the strong part of the record. J2, J4 and J6 (%) are computed as in the
code of the benchmark, but from the true displacement; in the measured displacement, J2 and J4 are 2.6 % from
sensor noise alone. The delay (ms) is the signed delay.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.published_indices import published_indices
from rths_nodes.control.compensators.single_inverse import State as LawState
from rths_nodes.core.samples import EMPTY
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

Change = Callable[[Loop], None]
SAMPLE = 1.0 / 4096.0
INVERSE = "compensator.inverse"
YIELDING = (
    "{type: parallel, first: {type: kelvin_voigt, stiffness: 0.6e6, damping: 114.0}, "
    "second: {type: elastoplastic_absorber, stiffness: 0.59e6, yield_force: 600.0}}"
)


def scaled(factor: float) -> list[str]:
    """Overrides that multiply the initial delay of the compensator by ``factor``."""
    return [
        f"{INVERSE}.velocity=[[{0.02497 * factor}]]",
        f"{INVERSE}.acceleration=[[{1.085e-4 * factor**2}]]",
        f"{INVERSE}.jerk=[[{3.985e-7 * factor**3}]]",
    ]


def slower_plant(loop: Loop) -> None:
    """Increase the velocity feedback of the plant by 20 % after 6 s, which slows down the valve."""
    rig = loop.assembly.port._rig
    changed = Assembly(files.load(loop.scenario, ["axes.floor_1.actuator.a2=5.07564e6"]))
    follow, samples = rig.follow, 0

    def changing(command: list[float], auxiliary: Any) -> Any:
        nonlocal samples
        samples += 1
        if samples == round(6.0 / SAMPLE):
            ((kernel, constants),), ((_, slower),) = rig.axes, changed.port._rig.axes
            rig.axes = [(kernel, constants._replace(rows=slower.rows))]
        return follow(command, auxiliary)

    rig.follow = changing


def sensor_offset(loop: Loop) -> None:
    """Add 0.1 mm to the reading of the displacement sensor."""
    (pair,) = loop.assembly.port._sensors
    measure = pair.measure

    def shifted(x: float, f: float) -> tuple[float, float]:
        displacement, force = measure(x, f)
        return displacement + 1e-4, force

    pair.measure = shifted


def null_offset(loop: Loop) -> None:
    """Shift the null of the valve by 0.1 mm; the rig has settled before the test."""
    rig = loop.assembly.port._rig
    follow, reset = rig.follow, rig.reset

    def settled() -> None:
        reset()
        for _ in range(round(1.0 / SAMPLE)):
            displacements, forces = follow([1e-4], EMPTY)
        rig.displacement, rig.force = np.array(displacements), np.array(forces)

    rig.reset = settled
    rig.follow = lambda command, auxiliary: follow([command[0] + 1e-4], auxiliary)


def by_displacement(loop: Loop) -> None:
    """Replace velocity and acceleration of the target by differences of its displacement."""
    compensator, last = loop.assembly.compensator, [0.0, 0.0]
    commands = compensator.commands

    def commanded(x: Any, v: Any, a: Any, *rest: Any) -> Any:
        velocity = (x[0] - last[0]) / SAMPLE
        acceleration = (velocity - last[1]) / SAMPLE
        last[:] = x[0], velocity
        return commands(x, [velocity], [acceleration], *rest)

    compensator.commands = commanded


def by_measurement(loop: Loop) -> None:
    """Use the measured displacement instead of the target as instrument: ordinary least squares."""
    compensator = loop.assembly.compensator
    commands = compensator.commands

    def commanded(x: Any, v: Any, a: Any, measured: Any, *rest: Any) -> Any:
        compensator.states[0] = LawState(*compensator.states[0])._replace(target=measured[0])
        return commands(x, v, a, measured, *rest)

    if loop.scenario.compensator.learning:
        compensator.commands = commanded


CONDITIONS: dict[str, tuple[list[str], Change | None]] = {
    "as shipped": ([], None),
    "first order": (["compensator.order=1"], None),
    "second order": (["compensator.order=2"], None),
    "target by displacement only": ([], by_displacement),
    "measurement as instrument": ([], by_measurement),
    "the same with five times the noise": (["axes.floor_1.sensors.displacement_noise_rms=8e-5"], by_measurement),
    "without force_lead, lead of one sample": (["force_lead=null", f"compensator.lead={SAMPLE}"], None),
    "without both": (["force_lead=null"], None),
    "ten times the noise of the force": (["axes.floor_1.sensors.force_noise_rms=21.8"], None),
    "five times the noise of the displacement": (["axes.floor_1.sensors.displacement_noise_rms=8e-5"], None),
    "sensor offset of 0.1 mm": ([], sensor_offset),
    "null of the valve shifted by 0.1 mm": ([], null_offset),
    "dead band of the valve, 20 um": (["axes.floor_1.actuator.dead_band=2e-5"], None),
    "valve fully open at 1 mm": (["axes.floor_1.actuator.valve_limit=1e-3"], None),
    "specimen yields at 1 mm": ([f"axes.floor_1.specimen.specimen={YIELDING}"], None),
    "start with a delay 20 % too short": (scaled(0.8), None),
    "start with a delay 20 % too long": (scaled(1.2), None),
    "start with a delay 25 % too short": (scaled(0.75), None),
    "start with a first coefficient 25 % too large": ([f"{INVERSE}.displacement=[[1.2435]]"], None),
    "plant 20 % slower after 6 s": ([], slower_plant),
}


def measured(case: str, overrides: list[str], change: Change | None) -> str:
    """Return the cells of one run: signed delay, J2, J4, J6, largest distance of a coefficient; or the outcome."""
    loop = Loop(Assembly(files.load("rths_benchmark_2020", overrides, case)))
    if change is not None:
        change(loop)
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    if outcome.state is not State.FINISHED:
        return f"{outcome.state.name.lower()}: {outcome.reason}"
    indices = published_indices(Evaluation(collector.run(metrics=outcome.metrics)))
    true = indices.true or indices.measured
    names = ("signed_delay_ms", "tracking_rms_percent", "rms_1_percent", "rms_2_percent")
    cells = " | ".join(f"{true[name]:.2f}" for name in names)
    distance = outcome.compensator.get("axes.floor_1.prior_distance")
    return cells if distance is None else f"{cells} | {distance:.1f}"


def main() -> None:
    """Print the table row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="case_1")
    parser.add_argument("--only", nargs="*", default=[""], help="only rows whose names contain one of these")
    parser.add_argument("--seconds", type=float, help="duration; default: the complete record")
    options = parser.parse_args()
    shorter = [f"duration={options.seconds}"] if options.seconds else []
    print("| change | learning: delay | J2 | J4 | J6 | deviations | fixed: delay | J2 | J4 | J6 |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (overrides, change) in CONDITIONS.items():
        if any(part in name for part in options.only):
            adaptive, fixed = (
                measured(options.case, [*overrides, *shorter, f"compensator.learning={learning}"], change)
                for learning in ("true", "false")
            )
            print(f"| {name} | {adaptive} | {fixed} |", flush=True)


if __name__ == "__main__":
    main()
