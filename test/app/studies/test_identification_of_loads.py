# SPDX-License-Identifier: Apache-2.0
"""Tests of identification while force-controlled axes keep their loads."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import rths_nodes
from rths_nodes.analysis.identification.experiments import Cycles, Noise, cycled, driven, loaded_at
from rths_nodes.app import hosts
from rths_nodes.app.commands import identify, terminal
from rths_nodes.app.studies import identification, scoreboard
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

NAME = "column_under_axial_load"
LOAD = 500e3
BRIEF = [
    "axes.load.load={value: 500.0e3, ramp_time: 1.0, held_for: 0.1, held_from: 2.0}",
    *("axes.load.limits.force_rate=2.0e6", "axes.load.sensors.force_noise_rms=0"),
    *("axes.drift.sensors.displacement_noise_rms=0", "axes.drift.sensors.force_noise_rms=0"),
]


def column() -> Scenario:
    return files.load(NAME, BRIEF)


def test_drift_axis_is_driven_after_load_is_applied() -> None:
    """Hold of 0.1 s, rise of 1 s, 0.28 s in reserve for the force rate, rest of 1 s."""
    scenario = column()
    begin = loaded_at(scenario)
    assert begin == pytest.approx(0.1 + 1.0 + LOAD / (0.9 * 2e6) + 1.0, abs=1.0 / 1024.0)
    assert (begin * 1024.0).is_integer()
    assert loaded_at(files.load("chen_ricles_2010")) == 0.0
    test = driven(scenario, 0, from_data(Noise, {"duration": 3.0}))
    assert scenario.moved_axes == ("drift",)
    assert test.duration == begin + 3.0
    assert test.force_axes == ("load",)
    assert test.axes["load"].load is not None
    assert test.axes["load"].load.held_from is None, "the load must stay on"


def test_drift_axis_is_identified_under_its_load(tmp_path: Path) -> None:
    """The second-order actuator determines the response; the specimen has no effect on it."""
    scenario = column()
    noise = from_data(Noise, {"duration": 5.0, "upper_frequency": 20.0})
    experiments = identification.run(scenario, noise, str(tmp_path), terminal.progress)
    identified, model = identification.fit(
        scenario, experiments, (0.5, 15.0), None, np.array([[2]]), identification.DECLARED, "here"
    )
    assert model.axes == ("drift",)
    frequency, response = identified.measured.frequency, identified.measured.response[:, 0, 0]
    (stored,) = identification.read([str(tmp_path / "drift")], scenario)
    np.testing.assert_array_equal(stored[0], experiments[0][0])
    delay = identified.delay - np.angle(response) / (2.0 * math.pi * frequency)
    inside = (frequency > 2.0) & (frequency < 8.0)
    ratio = frequency / 15.571359045
    expected = np.arctan2(2.0 * 0.6415455449 * ratio, 1.0 - ratio**2) / (2.0 * math.pi * frequency)
    assert delay[inside].mean() == pytest.approx(expected[inside].mean(), abs=0.1e-3)
    run = rths_nodes.read(tmp_path / "drift")
    assert run.loads is not None
    loaded = run.time > loaded_at(scenario)
    np.testing.assert_allclose(run.loads.true_force[loaded, 0], LOAD, rtol=5e-3)


def test_compensators_of_drift_axis_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identification, "PERIODS", 2)
    assert scoreboard.identify(column(), tmp_path, terminal.progress).delay == pytest.approx(0.0131, abs=0.5e-3)


def test_column_is_characterised_under_its_load() -> None:
    """The load cell measures k - P / h - P / L."""
    scenario, cycles = column(), from_data(Cycles, {"amplitude": 5e-3, "frequency": 2.0, "cycles": 2})
    result = identify.evaluated(hosts.run(cycled(scenario, 0, cycles)).read(), "drift", cycles)
    assert result.effective_stiffness == pytest.approx(1e6 - LOAD / 3.0 - LOAD / 2.0, rel=2e-3)
    assert result.damping == pytest.approx(10e3, rel=0.02)


def test_force_controlled_axis_is_not_driven() -> None:
    with pytest.raises((ConfigError, ValueError)):
        identify.cyclic_tests(column(), ["load"], [from_data(Cycles, {"amplitude": 1e-3, "frequency": 1.0})])
