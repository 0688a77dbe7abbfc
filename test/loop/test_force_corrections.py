# SPDX-License-Identifier: Apache-2.0
"""Corrections of a rig file in a test: what the loop gets, what the limits judge, what is refused before."""

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


def rig(folder: Path, **more: Any) -> Path:
    """A rig file in volts, with ``more`` keys of its axis; the channel of acceleration is of the whole."""
    file = folder / "rig.yaml"
    axis = {
        "serves": ["axis_1"],
        "displacement": {"unit": "mm", "range": 500.0, "scale": 50.0},
        "force": {"unit": "kN", "range": 2e3, "scale": 200.0, "sign": -1},
        "command": {"unit": "mm", "range": 500.0},
        "limits": {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6},
    }
    whole = {"version": 1, "name": "bench", "port": {"type": "simulator"}, "auxiliary": more.pop("auxiliary", {})}
    file.write_text(yaml.safe_dump(whole | {"axes": {"bench": axis | more}}))
    return file


def test_the_loop_gets_the_filtered_force_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    plain = rths_nodes.run(NAME, BRIEF, rig=rig(tmp_path))
    found = rths_nodes.run(NAME, BRIEF, rig=rig(tmp_path, feedback_filter=LOW))
    np.testing.assert_array_equal(
        found.displacement, plain.displacement
    )  # prescribed: no force leads it elsewhere
    np.testing.assert_array_equal(found.true_force, plain.true_force)
    expected = filtered(plain.force[:, 0], Butterworth(2, 50.0, DT))
    np.testing.assert_array_equal(found.force[:, 0], expected)
    names = [row.title for row in limits_of(Evaluation(found)).rows]
    assert any(mentions(title, "force", "corrected") for title in names)
    words = [each for part in set_up.parts(Evaluation(found), {}) for each in part.words]
    assert mentions(words, "axis_1", "50 Hz", "2", "4.5 ms")


def test_a_simulator_needs_no_correction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = rig(tmp_path, corrections=FIXTURE, auxiliary=AUXILIARY)
    found = rths_nodes.run(NAME, BRIEF, rig=file)
    np.testing.assert_array_equal(found.force, found.true_force)
    assert main(["check", NAME, "--rig", str(file)]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "150 kg", "simulator")


class Volts:
    """A port whose axis moves as a harmonic, with a fixture of 150 kg in front of a spring; numbers in volts."""

    auxiliary_names = ("accelerometer [V]",)
    auxiliary_inputs = ()
    k = -1

    def read(self) -> Measurement:
        self.k += 1
        x, a = self.motion()
        volts = (x / 0.05, (2e6 * x + 150.0 * a) / -200e3, 0.0)
        return Measurement(self.k, *(np.array([each]) for each in volts), np.array([a / (-2.0 * 9.80665)]))

    def motion(self) -> tuple[float, float]:
        omega = 20.0
        x = 0.01 * float(np.sin(omega * self.k * DT))
        return x, -(omega**2) * x

    def truth(self) -> None:
        return None


def test_behind_a_real_port_the_force_of_the_specimen_comes_in_si(tmp_path: Path) -> None:
    unit = {"accelerometer": AUXILIARY["accelerometer"]}
    scenario = files.load(NAME, rig=rig(tmp_path, corrections=FIXTURE, auxiliary=unit))
    assert scenario.rig_file is not None
    raw = Volts()
    raw.auxiliary_names = ("accelerometer",)
    port = calibrated(raw, scenario.axes, scenario.rig_file.auxiliary)  # type: ignore[arg-type]
    port = force_corrected(port, scenario.axes, DT, simulated=False)
    assert port.auxiliary_names == ("accelerometer [m/s^2]", "uncorrected_force_axis_1 [N]")
    for _ in range(500):
        given = port.read()
        x, a = raw.motion()
        assert given.force[0] == pytest.approx(2e6 * x, rel=1e-9, abs=1e-6)
        assert given.auxiliary[1] == pytest.approx(2e6 * x + 150.0 * a, rel=1e-9, abs=1e-6)


def test_limits_judge_what_the_load_cell_shows() -> None:
    levels = {"force": {"maximum": 900.0, "action": "hold"}}
    limits = {"a": from_data(Limits, {"stroke": 1.0, "velocity": 1.0, "force": 1000.0, "levels": levels})}
    names = ("pressure [Pa]", "uncorrected_force_a [N]")
    check, watch = LimitCheck(limits, DT, (), names), LevelWatch.of(limits, DT, names)
    assert watch is not None
    one, nothing = np.array([10.0]), np.zeros(1)

    def shown(force: float) -> Measurement:
        return Measurement(1, nothing, one, nothing, np.array([0.0, force]))

    assert check.measurement(shown(800.0), nothing) == ""
    assert mentions(check.measurement(shown(1200.0), nothing), "measured", "1200 N", "1000 N")
    assert "measured = nan N" in check.measurement(shown(np.nan), nothing)
    assert watch.judge(Command(1, nothing, nothing), shown(800.0)) is None
    breach = watch.judge(Command(1, nothing, nothing), shown(950.0))
    assert breach is not None
    assert breach.action == "hold"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"corrections": FIXTURE},
            ("axes.bench.corrections.fixture_mass", "150 kg"),
        ),
        (
            {"corrections": FIXTURE, "auxiliary": {"accelerometer": {"unit": "V", "range": 10.0}}},
            ("channels", "accelerometer"),
        ),
        (
            {"feedback_filter": LOW | {"delay": 2e-3}},
            ("feedback_filter.delay", "0.002 s", "10%", "0.004466 s"),
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused_at_the_file(
    keys: dict[str, Any], message: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        files.load(NAME, rig=rig(tmp_path, **keys))


def test_a_port_without_the_channel_is_refused(tmp_path: Path) -> None:
    file = rig(tmp_path, corrections=FIXTURE, auxiliary=AUXILIARY)
    scenario = files.load(NAME, ["port={type: udp}"], rig=file)
    with pytest.raises(ConfigError, match=r"rig_file.auxiliary.accelerometer: unknown channel"):
        hosts.run(scenario)


def test_the_stability_has_the_delay_of_the_filter(tmp_path: Path) -> None:
    """A feedback filter takes about its delay from the margin."""
    limits = {"stroke": 0.25, "velocity": 1.2, "force": 1.8e6}
    scenarios = []
    for keys in ({}, {"feedback_filter": {"order": 2, "cutoff": 200.0, "delay": 1.0e-3}}):
        file = rig(tmp_path, serves=["story_1"], limits=limits, **keys)
        scenarios.append(files.load("chen_ricles_2010", rig=file))
    for loop in (sampled_loop, continuous_loop):
        margins = [judge_loop(loop(each)).further_delay.value for each in scenarios]
        assert margins[0] - margins[1] == pytest.approx(0.98e-3, rel=0.1)
