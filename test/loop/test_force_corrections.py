# SPDX-License-Identifier: Apache-2.0
"""Tests of force corrections of a rig file: forces in the loop, checked limits and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report import set_up
from rths_nodes.analysis.report.tables import limits as limits_of
from rths_nodes.analysis.stability.judgement import judge_loop
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.wrappers import calibrated, force_corrected
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.mechanics.butterworth import Butterworth, filtered

NAME, DT = "predefined_sine", 1.0 / 1024.0
BRIEF = ["duration=0.3"]
LOW = {"order": 2, "cutoff": 50.0, "delay": 4.5e-3}
FIXTURE = {"fixture_mass": 150.0, "acceleration": "accelerometer"}
AUXILIARY = {"accelerometer": {"unit": "g", "range": 10.0, "scale": 2.0, "sign": -1}}


def rig(folder: Path, auxiliary: dict[str, Any] | None = None, **keys: Any) -> Path:
    """Write a rig file in volts, with further ``keys`` of its axis."""
    file = folder / "rig.yaml"
    axis = {
        "serves": ["axis_1"],
        "displacement": {"unit": "mm", "range": 500.0, "scale": 50.0},
        "force": {"unit": "kN", "range": 2e3, "scale": 200.0, "sign": -1},
        "command": {"unit": "mm", "range": 500.0},
        "limits": {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6},
    }
    port = {"port": {"type": "simulator"}, "auxiliary": auxiliary or {}}
    file.write_text(yaml.safe_dump({"version": 1, "name": "bench", "axes": {"bench": axis | keys}} | port))
    return file


def test_loop_receives_filtered_force(tmp_path: Path) -> None:
    plain = rths_nodes.run(NAME, BRIEF, rig=rig(tmp_path))
    run = rths_nodes.run(NAME, BRIEF, rig=rig(tmp_path, feedback_filter=LOW))
    np.testing.assert_array_equal(run.displacement, plain.displacement)  # prescribed, independent of the force
    np.testing.assert_array_equal(run.true_force, plain.true_force)
    expected = filtered(plain.force[:, 0], Butterworth(2, 50.0, DT))
    np.testing.assert_array_equal(run.force[:, 0], expected)
    assert mentions([row.title for row in limits_of(Evaluation(run)).rows], "force", "corrected")
    texts = [text for part in set_up.parts(Evaluation(run), {}) for text in part.words]
    assert mentions(texts, "axis_1", "50 Hz", "2", "4.5 ms")


def test_simulator_needs_no_correction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = rig(tmp_path, corrections=FIXTURE, auxiliary=AUXILIARY)
    run = rths_nodes.run(NAME, BRIEF, rig=file)
    np.testing.assert_array_equal(run.force, run.true_force)
    assert main(["check", NAME, "--rig", str(file)]) == 0
    assert mentions(capsys.readouterr().out, "150 kg", "simulator")


class HarmonicPort:
    """Port in volts with a harmonic motion of a spring behind a fixture of 150 kg."""

    auxiliary_names = ("accelerometer",)
    auxiliary_inputs = ()
    k = -1

    def read(self) -> Measurement:
        self.k += 1
        x, a = self.motion()
        volts = (x / 0.05, (2e6 * x + 150.0 * a) / -200e3, 0.0)
        return Measurement(self.k, *(np.array([value]) for value in volts), np.array([a / (-2.0 * 9.80665)]))

    def motion(self) -> tuple[float, float]:
        omega = 20.0
        x = 0.01 * float(np.sin(omega * self.k * DT))
        return x, -(omega**2) * x

    def truth(self) -> None:
        return None


def test_real_port_gives_specimen_force_in_si(tmp_path: Path) -> None:
    scenario = files.load(NAME, rig=rig(tmp_path, corrections=FIXTURE, auxiliary=AUXILIARY))
    assert scenario.rig_file is not None
    raw = HarmonicPort()
    port = calibrated(raw, scenario.axes, scenario.rig_file.auxiliary)  # type: ignore[arg-type]
    port = force_corrected(port, scenario.axes, DT, simulated=False)
    assert port.auxiliary_names == ("accelerometer [m/s^2]", "uncorrected_force_axis_1 [N]")
    for _ in range(500):
        measured = port.read()
        x, a = raw.motion()
        assert measured.force[0] == pytest.approx(2e6 * x, rel=1e-9, abs=1e-6)
        assert measured.auxiliary[1] == pytest.approx(2e6 * x + 150.0 * a, rel=1e-9, abs=1e-6)


def test_limits_apply_to_uncorrected_force() -> None:
    levels = {"force": {"maximum": 900.0, "action": "hold"}}
    limits = {"a": from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1000.0, "levels": levels})}
    names = ("pressure [Pa]", "uncorrected_force_a [N]")
    check, watch = LimitCheck(limits, DT, (), names), LevelWatch.of(limits, DT, names)
    assert watch is not None
    zero = np.zeros(1)

    def measured(force: float) -> Measurement:
        return Measurement(1, zero, np.array([10.0]), zero, np.array([0.0, force]))

    assert check.measurement(measured(800.0), zero) == ""
    assert mentions(check.measurement(measured(1200.0), zero), "measured", "1200 N", "1000 N")
    assert "measured = nan N" in check.measurement(measured(np.nan), zero)
    assert watch.judge(Command(1, zero, zero), measured(800.0)) is None
    breach = watch.judge(Command(1, zero, zero), measured(950.0))
    assert breach is not None
    assert breach.action == "hold"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"corrections": FIXTURE}, ("axes.bench.corrections.fixture_mass", "150 kg")),
        (
            {"corrections": FIXTURE, "auxiliary": {"accelerometer": {"unit": "V", "range": 10.0}}},
            ("channels", "accelerometer"),
        ),
        ({"feedback_filter": LOW | {"delay": 2e-3}}, ("feedback_filter.delay", "0.002 s", "10%", "0.004466 s")),
    ],
)
def test_invalid_correction_is_refused(keys: dict[str, Any], message: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        files.load(NAME, rig=rig(tmp_path, **keys))


def test_port_without_channel_is_refused(tmp_path: Path) -> None:
    file = rig(tmp_path, corrections=FIXTURE, auxiliary=AUXILIARY)
    scenario = files.load(NAME, ["port={type: udp}"], rig=file)
    with pytest.raises(ConfigError, match=r"rig_file.auxiliary.accelerometer: unknown channel"):
        hosts.run(scenario)


def test_stability_includes_delay_of_filter(tmp_path: Path) -> None:
    """A feedback filter reduces the margin by about its delay."""
    limits = {"stroke": 0.25, "velocity": 1.2, "force": 1.8e6}
    scenarios = []
    for keys in ({}, {"feedback_filter": {"order": 2, "cutoff": 200.0, "delay": 1.0e-3}}):
        file = rig(tmp_path, serves=["story_1"], limits=limits, **keys)
        scenarios.append(files.load("chen_ricles_2010", rig=file))
    for loop in (sampled_loop, continuous_loop):
        margins = [judge_loop(loop(scenario)).further_delay.value for scenario in scenarios]
        assert margins[0] - margins[1] == pytest.approx(0.98e-3, rel=0.1)
