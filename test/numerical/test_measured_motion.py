# SPDX-License-Identifier: Apache-2.0
"""Tests of histories from files, arrays and DataFrames as targets of an actuator."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions
from scipy.io import savemat
from written_history import written_history

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import write_columns
from rths_nodes.loop.scenario.rehearsal import at_level
from rths_nodes.numerical.integrators import predefined as module

RATE, SAMPLES = 1024.0, 1100
TIME = np.arange(SAMPLES) / RATE
MOVED = 0.01 * np.sin(2.0 * np.pi * 1.5 * TIME) ** 3
"""Displacement, m, from rest."""
SHORT = {"duration": 1.0}
STROKE = "axes.axis_1.limits.stroke = 0.25 m"


def predefined(**keys: Any) -> dict[str, Any]:
    return {"type": "predefined"} | keys


def run(duration: float = 1.0, **keys: Any) -> rths_nodes.Run:
    return rths_nodes.run("predefined_sine", integrator=predefined(**keys), duration=duration)


def csv(path: Path, **columns: Any) -> str:
    write_columns(columns, path)
    return str(path)


def test_sources_of_history_give_equal_targets(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed here")
    savemat(tmp_path / "m.mat", {"x": 1e3 * MOVED, "t": TIME})
    frame = pandas.DataFrame({"axis_1": MOVED}, index=pandas.Index(TIME, name="time (s)"))
    runs = [
        run(history=csv(tmp_path / "m.csv", **{"time (ms)": 1e3 * TIME, "x (mm)": 1e3 * MOVED})),
        run(history=str(tmp_path / "m.mat"), columns={"axis_1": {"column": "x", "unit": "mm"}}),
        run(history={"t": TIME, "axis_1": MOVED}),
        run(history={"axis_1": MOVED}, rate=RATE),
        run(history=frame),
    ]
    for result in runs:
        assert result.outcome == "finished"
        np.testing.assert_allclose(result.target[:, 0], MOVED[: len(result.target)], atol=1e-15)


def test_velocity_and_acceleration_are_derivatives() -> None:
    test = run(history={"t": TIME, "axis_1": MOVED})
    omega, angle = 3.0 * np.pi, 3.0 * np.pi * test.step_time
    sine, cosine = np.sin(angle), np.cos(angle)
    velocity = 0.03 * omega * sine**2 * cosine
    acceleration = 0.03 * omega**2 * (2.0 * sine * cosine**2 - sine**3)
    np.testing.assert_allclose(test.dof_velocity[:, 0], velocity, atol=1e-8)
    np.testing.assert_allclose(test.dof_acceleration[:, 0], acceleration, atol=1e-4)


def test_measured_run_drives_simulated_actuator() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed here")
    measured = rths_nodes.run("chen_ricles_2010", duration=1.0)
    repeated = run(history=measured.to_dataframe(), relative=True)
    np.testing.assert_allclose(repeated.target, measured.displacement[: len(repeated.target)], atol=1e-15)


def test_coarser_history_is_resampled() -> None:
    coarse = np.arange(250) / 200.0
    wave = 0.01 * np.sin(2.0 * np.pi * 1.5 * coarse) ** 3
    test = run(history={"t": coarse, "axis_1": wave}, resample=True)
    np.testing.assert_allclose(test.target[:, 0], 0.01 * np.sin(3.0 * np.pi * test.time) ** 3, atol=2e-7)


def test_finer_history_is_filtered_before_resampling() -> None:
    fine = np.arange(12000) / 10240.0
    wave = 0.01 * np.sin(3.0 * np.pi * fine) ** 3
    noise = 1e-5 * np.sin(2.0 * np.pi * 3000.0 * fine)  # aliased to 72 Hz
    test = run(history={"t": fine, "axis_1": wave + noise}, resample=True)
    error = test.target[:, 0] - 0.01 * np.sin(3.0 * np.pi * test.time) ** 3
    assert np.abs(error[50:-50]).max() < 2e-8


def test_low_pass_scale_and_relative() -> None:
    raised = {"t": TIME, "axis_1": 0.005 + MOVED + 1e-5 * np.sin(2.0 * np.pi * 300.0 * TIME)}
    test = run(history=raised, relative=True, low_pass=30.0, scale=0.5)
    error = test.target[:, 0] - 0.5 * MOVED[: len(test.target)]
    assert np.abs(error[100:-100]).max() < 2e-6


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"history": {"t": TIME, "axis_1": 1e3 * MOVED}}, ("integrator.history", STROKE, "unit")),
        ({"history": {"t": TIME, "axis_1": 0.2 + MOVED}}, ("history", "would begin at 0.2 m", "relative = true")),
        ({"history": {"t": 2.0 * TIME, "axis_1": MOVED}}, ("512 Hz", "servo_rate = 1024 Hz", "resample")),
        ({"history": {"t": TIME[:600], "axis_1": MOVED[:600]}}, ("lasts 0.584961 s", "duration = 0.584961")),
        ({"history": {"t": TIME, "x": MOVED, "y": MOVED}}, ("columns: missing", "t, x, y")),
        ({"history": {"axis_1": MOVED}}, ("time: missing", "rate")),
        ({"history": {"t": TIME, "x": MOVED}, "columns": {"a": {"column": "x"}}}, ("columns", "a", "axis_1")),
        ({"history": {"t": TIME**1.1, "x": MOVED}}, ("integrator.time", "previous row", "increase")),
        ({"history": {"t": TIME, "x": MOVED}, "rate": 5.0, "time": {"column": "t"}}, ("rate = 5 Hz", "time")),
        ({"history": {"t": TIME, "x (mm)": MOVED}, "columns": {"axis_1": {"column": "x (mm)"}}},
         ("unit = m", "mm")),
        ({"history": {"t": TIME, "x": ["a"] * SAMPLES}}, ("history.x", "numbers")),
        ({"history": {"t": TIME, "x": MOVED[:-1]}}, ("equal length", f"t {SAMPLES}")),
        ({"history": {"t": TIME, "x": MOVED}, "low_pass": 600.0}, ("low_pass = 600 Hz", "< 512 Hz")),
        ({}, ("exactly one of", "integrator.history")),
        ({"history": "/nowhere/x.csv"}, ("/nowhere/x.csv", "(No such file")),
        ({"history": {"t": TIME, "x": MOVED + 1e-3 * np.resize([0.0, 1.0], SAMPLES)}, "relative": True},
         ("m/s at", "limits.velocity = 10 m/s")),
        ({"displacement": {"type": "none"}, "scale": 0.5}, ("integrator.scale", "left out", "displacement")),
        ({"displacement": {"type": "none"}, "relative": True, "low_pass": 30.0}, ("relative", "low_pass")),
    ],
)  # fmt: skip
def test_unsuitable_histories_are_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    duration = 1.05 if "lasts" in parts[0] else 1.0
    with pytest.raises(ConfigError) as refused:
        run(duration, **changes)
    assert mentions(str(refused.value), *parts)
    assert str(refused.value).startswith(("integrator", "columns"))


def test_history_is_filtered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered, calls = module._filtered, []
    monkeypatch.setattr(module, "_filtered", lambda *arguments: calls.append(1) or filtered(*arguments))
    run(history={"t": TIME, "axis_1": MOVED}, low_pass=100.0)
    assert len(calls) == 1


def test_contents_include_notes_on_file(tmp_path: Path) -> None:
    savemat(tmp_path / "m.mat", {"x": np.vstack([MOVED, MOVED]), "t": TIME})
    integrator = predefined(history=str(tmp_path / "m.mat"), columns={"axis_1": {"column": "x"}})
    scenario = rths_nodes.load("predefined_sine", integrator=integrator, duration=1.0)
    assert mentions(scenario.integrator.contents(), "2 x 1100", "rows")


def test_invalid_use_of_iterate_history_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        run(0.1, history=written_history(1, 1.0 / RATE, "axis_1"))
    assert mentions(str(refused.value), "integrator.history", STROKE)
    with pytest.raises(ConfigError) as refused:
        run(0.1, history=written_history(1, 1.0 / RATE), scale=0.5)
    assert mentions(str(refused.value), "integrator.scale", "left out", "history")


def test_reduced_level_scales_history() -> None:
    integrator = predefined(history={"t": TIME, "axis_1": MOVED}, scale=0.8)
    reduced = at_level(rths_nodes.load("predefined_sine", integrator=integrator, duration=1.0), 0.5)
    assert reduced.data()["integrator"]["scale"] == 0.4


def test_recording_contains_history_file_and_repeats_test(tmp_path: Path) -> None:
    file = csv(tmp_path / "motion.csv", time=TIME, x=MOVED)
    run = rths_nodes.run("predefined_sine", integrator=predefined(history=file), record=tmp_path / "a", **SHORT)
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    Path(file).unlink()
    again = rths_nodes.run(rths_nodes.read(tmp_path / "elsewhere").scenario, record=tmp_path / "b")
    assert (again.displacement == run.displacement).all()
    copies = [path.name for folder in ("elsewhere", "b") for path in (tmp_path / folder / "inputs").rglob("*.csv")]
    assert copies == ["motion.csv"] * 2


def test_refused_run_leaves_no_recording(tmp_path: Path) -> None:
    file = csv(tmp_path / "motion.csv", time=TIME, x=1e3 * MOVED)
    with pytest.raises(ConfigError):
        rths_nodes.run("predefined_sine", integrator=predefined(history=file), record=tmp_path / "a", **SHORT)
    assert not (tmp_path / "a").exists()


def test_recording_of_ground_motion_arrays_repeats_test(tmp_path: Path) -> None:
    columns = {"time (s)": TIME, "acceleration (g)": 0.1 * np.sin(2.0 * np.pi * 2.0 * TIME)}
    motion = {"type": "record", "file": columns}
    run = rths_nodes.run("chen_ricles_2010", ground_motion=motion, duration=0.5, record=tmp_path / "a")
    assert run.outcome == "finished"
    expected = np.interp(run.step_time, TIME, columns["acceleration (g)"])
    force = run.external_force[:, 0]
    assert np.corrcoef(force[:-1], expected[: len(force) - 1])[0, 1] < -0.999999
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    again = rths_nodes.run(rths_nodes.read(tmp_path / "elsewhere").scenario)
    assert (again.displacement == run.displacement).all()
    assert list((tmp_path / "elsewhere" / "inputs").rglob("*.csv"))
