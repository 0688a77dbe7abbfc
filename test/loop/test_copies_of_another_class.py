# SPDX-License-Identifier: Apache-2.0
"""Tests of updated copies with a specimen of another class, and with a failing load cell.

Ratios of all classes, initial values and records: python test/loop/test_copies_of_another_class.py
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from absorber import AXIS, NOISE, OFF, OPEN, RECORDS, SECONDS, SPECIMEN, TRUE, frame, run, scaled, section
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import learning_notes
from rths_nodes.loop.stages.numerical import Learning
from rths_nodes.recording.run import Run


def backlash(width: float, damping: float) -> dict[str, Any]:
    spring = {"type": "kelvin_voigt", "stiffness": 8e6, "damping": damping}
    return {"type": "with_backlash", "width": width, "specimen": spring}


SOFTENING = {"type": "softening_elastomeric"}
FRICTION = SOFTENING | {"stiffness": 0.0, "damping": 0.0, "friction_force": 25e3, "slip_displacement": 0.0005}
WEAK = SPECIMEN | {"stiffness": 4e6, "yield_force": 32e3}
SLIPPING = {"type": "slipping_elastomeric"}
DAMAGE = {"damage_displacement": 0.008, "post_damage_ratio": 0.1}
CLASSES: dict[str, dict[str, Any]] = {
    "friction": SLIPPING | {"stiffness": 5e6, "relaxing_stiffness": 8e6, "slip_force": 80e3},
    "stiffer friction": SLIPPING,
    "friction beside": {"type": "parallel", "first": SPECIMEN, "second": FRICTION},
    "softening": SOFTENING,
    "gap": backlash(0.010, 0.1e6),
    "pinching": {"type": "parallel", "first": WEAK, "second": backlash(0.016, 0.0)},
    "degrading": {"type": "degrading_column", "stiffness": 10e6} | DAMAGE,
    "viscous": {"type": "kelvin_voigt", "stiffness": 5e6, "damping": 1e6},
}
STARTS = {"stiff, early": (13e6, 0.0056), "true": (10e6, 0.008), "soft": (7e6, 0.0056), "late": (7e6, 0.0104)}
"""Initial stiffness (N/m) and yield displacement (m) of the copies."""
PARTS = 20  # parts of a step in the integration of a specimen


def replayed(result: Run) -> Array:
    """Force ``(n,)`` of the specimen itself along the path of the copy, by RK4."""
    specimen: Any = registry.build("specimen", result.scenario.axes[AXIS].specimen)
    kernel, k = specimen.bound()
    t, x, v = result.step_time, result.dof_displacement[:, 0].tolist(), result.dof_velocity[:, 0].tolist()
    h = float(t[1] - t[0]) / PARTS
    s, forces = tuple(specimen.initial_state), []
    for step, end in enumerate(x):
        before = x[max(0, step - 1)]
        speed = (end - before) / (PARTS * h)
        for part in range(PARTS if s else 0):
            begin = before + part * h * speed
            middle = begin + 0.5 * h * speed
            a = kernel.rate(k, s, begin, speed)
            b = kernel.rate(k, along(s, 0.5 * h, a), middle, speed)
            c = kernel.rate(k, along(s, 0.5 * h, b), middle, speed)
            d = kernel.rate(k, along(s, h, c), begin + h * speed, speed)
            mean = tuple((p + 2.0 * q + 2.0 * r + e) / 6.0 for p, q, r, e in zip(a, b, c, d, strict=True))
            s = along(s, h, mean)
        forces.append(kernel.force(k, s, end, v[step]))
    return np.array(forces)


def along(state: tuple[float, ...], h: float, rates: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(value + h * rate for value, rate in zip(state, rates, strict=True))


def error(result: Run) -> float:
    """Rms difference of the forces of copy and specimen along the same path, N."""
    copy = result.restoring_force[:, 0]
    return float(np.sqrt(np.mean((copy - replayed(result)[: len(copy)]) ** 2)))


def with_specimen(specimen: dict[str, Any], start: tuple[float, float], record: str, mode: str) -> Scenario:
    """The frame with ``specimen`` and a copy that starts with the parameters ``start``."""
    initial = dict(zip(OPEN, start, strict=True))
    bounds = {name: {"bounds": [0.4 * value, 2.5 * value]} for name, value in initial.items()}
    changes: list[tuple[list[str], Any]] = [
        (["ground_motion"], scaled(record)),
        (["structure", "restoring_force"], {"type": "bouc_wen"} | OFF | initial),
        (["updating"], section(mode=mode, parameters=bounds)),
    ]
    return replace(frame(*SECONDS, specimen=specimen), changes)


def evaluate(name: str, start: str, record: str) -> float:
    """Check a test with updated copies; return its error of the copy's force over that with constant copies."""
    used, constant = (
        run(with_specimen(CLASSES[name], STARTS[start], record, mode)) for mode in ("used", "shadow")
    )
    updating = used.scenario.updating
    assert updating is not None
    for column, parameter in enumerate(updating.parameters.values()):
        values = used.updating[:, [column, 4 + column]]
        assert (values >= parameter.bounds[0] * (1.0 - 1e-12)).all()
        assert (values <= parameter.bounds[1] * (1.0 + 1e-12)).all()
    assert jump(used) <= 1.4 * jump(constant)
    assert used.integrator["updating"]["first_unexplained_sample"] > 0
    assert mentions(learning_notes(used.integrator, used.scenario)[0], "model", "copies")
    return error(used) / error(constant)


@pytest.mark.parametrize(
    ("name", "start", "record"),
    [("friction", "late", 1), ("pinching", "stiff, early", 2), ("degrading", "late", 2), ("softening", "true", 2)],
)
def test_copies_of_another_class_are_not_worse(name: str, start: str, record: int) -> None:
    """Worst case of each class; nearly all exceeded 5 % when copies followed small motions."""
    assert evaluate(name, start, RECORDS[record]) <= 1.05


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(CLASSES))
def test_no_class_start_or_record_is_worse(name: str) -> None:
    for start in STARTS:
        for record in RECORDS:
            assert evaluate(name, start, record) <= 1.05, (start, record)


# Failing load cells

BRIEF, RIGHT = "duration=4", "compensator.alpha_es=29.0"


@cache
def healthy() -> Run:
    return rths_nodes.run(frame(BRIEF, RIGHT, updating=section(mode="used")))


def failing(*faults: str) -> Run:
    return run(frame(BRIEF, RIGHT, updating=section(mode="used")), faults)


def jump(result: Run) -> float:
    """Largest second difference of the force of the copies, N."""
    return float(np.abs(np.diff(result.restoring_force, 2, axis=0)).max())


def learnt(scenario: Scenario, displacement: Array, force: Array) -> tuple[Learning, Array, Array]:
    """Return the learning after the given histories, the samples at which it learnt, and its rows of results."""
    learning, samples, rows = Learning(scenario), [], []
    for k in range(len(force)):
        learning.add(Measurement(k, displacement[k], force[k], np.zeros(1)))
        if (result := learning.learn()) is not None:
            samples.append(k)
            rows.append(result[1])
    return learning, np.array(samples), np.array(rows)


def test_dead_cell_freezes_copies() -> None:
    result = failing(f"sensor_stuck@2:{AXIS},force")
    count = result.integrator["updating"]["dead"]
    assert count > 100
    dead = result.updating[:, -1] == 4
    assert not np.diff(result.updating[:, 4:6], axis=0)[dead[1:]].any()
    assert mentions(" ".join(learning_notes(result.integrator, result.scenario)), f"{count:.0f}", "force")
    assert jump(result) <= 1.3 * jump(healthy())


def test_cell_with_only_noise_freezes_copies() -> None:
    """Until the remaining amplifier noise is detected after 1/3 s, copies return towards their initial values."""
    result, failure, rng = healthy(), 2600, np.random.default_rng(1)
    force = result.force.copy()
    force[failure:, 0] = rng.normal(0.0, 0.5 * NOISE, len(force) - failure)
    samples, rows = learnt(result.scenario, result.displacement, force)[1:]
    after, dead = samples > failure, rows[:, -1] == 4
    assert dead[after].mean() > 0.8
    released = rows[:, 4:6] / np.array([OFF[name] for name in OPEN])
    assert np.abs(released[after] - released[~after][-1]).max() < 0.02
    assert np.abs(np.diff(released, axis=0)).max() <= 0.05 * 10 / 1024 * (1.0 + 1e-9)


def test_spikes_are_counted_and_move_no_copy() -> None:
    """Ten times the force, below the limit of the axis, at samples that are used for learning."""
    times = [sample / 1024 for sample in (1500, 2010, 2520, 3030)]
    result = failing(*(f"sensor_spike@{time}:{AXIS},force,8e5" for time in times))
    assert result.integrator["updating"]["spikes"] == 4
    assert result.integrator["updating"]["first_unexplained_sample"] == 0
    rows = np.flatnonzero(result.updating[:, -1] == 5)
    np.testing.assert_array_equal(result.updating[rows, 4:6], result.updating[rows - 1, 4:6])
    assert result.updating[-1, :2] == pytest.approx([TRUE[name] for name in OPEN], rel=0.05)


def test_nan_force_trips() -> None:
    scenario = frame("duration=0.5", RIGHT, updating=section(mode="used"))
    outcome = FaultyLoop(Assembly(scenario), [parse("nan@0.2:measurement,nan,force")]).run()
    assert outcome.state.name == "TRIPPED"
    assert "limits.force: measured = nan N" in outcome.reason


def test_nan_forces_release_no_parameter() -> None:
    """The updating itself refuses them, without the limits."""
    x = 0.006 * np.sin(2.0 * np.pi * np.arange(1500.0)[:, None] / 1024)
    force = TRUE["stiffness"] * x
    force[700:900] = np.nan
    learning, _, rows = learnt(frame(updating=section(mode="used")), x, force)
    lost = rows[:, -1] == 2
    assert lost.sum() == learning.numbers()["updating"]["not_finite"] == 20
    assert not np.diff(rows[:, 4:6], axis=0)[lost[1:]].any()


def test_nodes_have_same_bits_after_leaving_the_prior(tmp_path: Path, different: Any) -> None:
    """The copies freeze at that sample, which is reported."""
    level = {"deviations": 0.4, "then": "freeze"}
    scenario = frame("duration=3", RIGHT, updating=section(mode="used", leaves=level))
    reference = rths_nodes.run(scenario)
    first = reference.integrator["updating"]["left_prior_sample"]
    after = np.rint(reference.updating_time * 1024.0) >= first
    assert after.any()
    assert not np.diff(reference.updating[after, 4:6], axis=0).any()
    note = learning_notes(reference.integrator, scenario)[0]
    assert mentions(note, "0.4", f"sample {first:.0f}", "copies", "kept")
    result = hosts.run(scenario, [], host="composed", record=tmp_path / "run", keep=False)
    assert result.exit_code == 0, result.reason
    assert different(reference, rths_nodes.read(result.recording)) == []


if __name__ == "__main__":
    for class_name in CLASSES:
        ratios = {(start, record): evaluate(class_name, start, record) for start in STARTS for record in RECORDS}
        worst = max(ratios, key=lambda key: ratios[key])
        print(f"{class_name}: {min(ratios.values()):.3f} to {ratios[worst]:.3f} ({', '.join(worst)})", flush=True)
