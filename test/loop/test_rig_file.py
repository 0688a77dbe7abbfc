# SPDX-License-Identifier: Apache-2.0
"""The rig file: it takes the place of what a scenario says of the rig, or is refused with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from messages import naming
from shipped_cases import of_rig

import rths_nodes
from rths_nodes.analysis.identification.experiments import Noise, driven
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files

PAGE = Path(__file__).resolve().parents[2] / "doc" / "rig_file.md"
NAME = "predefined_sine"
BRIEF = "duration=0.1"
WHAT = """
version: 1
name: what
servo_rate: 1024
substeps: 1
duration: 0.05
integrator: {type: prescribed, displacement: {type: sine, amplitude: 0.01, frequency: 1.0}}
compensator: {type: none}
axes: {axis_1: {}}
"""

Rig = Callable[..., Path]


def of_page() -> str:
    """The example of the page."""
    found = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found
    return found[1]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A rig file: a simple one, with changes of ``section.key`` of its axis, or of the whole by keyword."""

    def rig(changes: dict[str, Any] | None = None, **more: Any) -> Path:
        channel = {"unit": "m", "range": 0.5}
        axis: dict[str, Any] = {
            "serves": ["axis_1"],
            "displacement": dict(channel),
            "force": {"unit": "N", "range": 2e6},
            "command": dict(channel),
            "limits": {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6},
        }
        for key, value in (changes or {}).items():
            place, _, last = key.rpartition(".")
            section = axis[place] if place else axis
            if value is None:
                del section[last]
            else:
                section[last] = value
        data = {"version": 1, "name": "bench", "port": {"type": "simulator"}, "axes": {"bench": axis}} | more
        file = tmp_path / "bench.yaml"
        file.write_text(yaml.safe_dump(data))
        return file

    return rig


def test_a_rig_of_metres_and_newtons_changes_no_bit(rig: Rig, different: Any) -> None:
    expected = rths_nodes.run(NAME, [BRIEF])
    found = rths_nodes.run(NAME, [BRIEF], rig=rig({"displacement.range": 100.0, "force.range": 1e9}))
    assert different(found, expected) == []
    assert found.scenario.rig_file is not None
    assert found.scenario.rig_file.name == "bench"


def test_the_example_of_the_page_loads_and_says_everything_in_si(tmp_path: Path) -> None:
    file = tmp_path / "my_rig.yaml"
    file.write_text(of_page())
    scenario = files.load(NAME, rig=file)
    axis = scenario.axes["axis_1"]
    assert axis.rig_axis is not None
    assert axis.rig_axis.displacement.gain == pytest.approx(-0.013)
    assert axis.rig_axis.force.gain == pytest.approx(30e3)
    assert (axis.limits.stroke, axis.limits.force) == (0.12, 250e3)
    assert axis.sensors.displacement_range == pytest.approx(0.13)
    assert axis.sensors.displacement_noise_rms == pytest.approx(2e-6)
    assert scenario.bridge.max_bridge == 0.005
    with pytest.raises(ConfigError, match=naming("operator", "arm")):
        checked_loop(scenario)


@pytest.mark.parametrize("name", files.shipped(files.RIG))
def test_a_shipped_rig_runs_a_scenario_or_is_to_be_emulated(name: str) -> None:
    slow = ["time_ratio=10"] if name == "bench_ros2_control" else []
    loop = checked_loop(files.load(of_rig(name), slow, rig=name))
    assert loop.rig.port.transport_samples == 1


def test_what_comes_out_needs_the_file_no_more(rig: Rig) -> None:
    scenario = files.load(NAME, rig=rig({"displacement.calibrated": "2026-03-02"}))
    again = files.from_text(dump(scenario.data()), "again")
    assert again == scenario
    assert again.shared_hash() == scenario.shared_hash() != files.load(NAME).shared_hash()


def test_a_scenario_may_leave_all_of_the_rig_to_the_file(rig: Rig, tmp_path: Path) -> None:
    what = tmp_path / "what.yaml"
    what.write_text(WHAT)
    with pytest.raises(ConfigError, match=r"axes.axis_1.limits: missing .*--rig"):
        files.load(what)
    with pytest.raises(ConfigError, match=r"axes.axis_1.specimen: missing"):
        files.load(what, rig=rig({"actuator": {"type": "pure_delay", "delay": 0.002}}))
    scenario = files.load(what, rig=rig(port={"type": "udp", "emulator": True}))
    assert checked_loop(scenario).scenario.limits["axis_1"].stroke == 0.25


def test_the_actuator_may_be_that_of_the_rig(rig: Rig) -> None:
    scenario = files.load(NAME, rig=rig({"actuator": {"type": "first_order", "alpha": 11.0}}))
    assert scenario.axes["axis_1"].actuator.alpha == 11.0
    assert files.load(NAME, ["axes.axis_1.actuator.alpha=12"], rig=rig()).axes["axis_1"].actuator.alpha == 12.0


def test_a_case_does_not_move_the_limits_of_a_rig_but_an_operator_may_narrow_them() -> None:
    name, key = "chen_ricles_2010", "axes.story_1.limits.velocity"
    on = files.load(name, case="alpha_45_k_p_0", rig="bench_simulated")
    assert (on.limits["story_1"].velocity, on.compensator.alpha_es) == (1.2, 45.0)
    assert files.load(name, [f"{key}=0.7"], "alpha_45_k_p_0", "bench_simulated").limits["story_1"].velocity == 0.7
    wider = "axes.story_1.limits.velocity = 1.3 m/s: must be <= 1.2 m/s, the limit of the rig bench_simulated"
    with pytest.raises(ConfigError, match=re.escape(wider)):
        files.load(name, [f"{key}=1.3"], rig="bench_simulated")
    with pytest.raises(ConfigError, match=re.escape(wider)):
        files.load(on, [f"{key}=1.3"])
    renamed = "{north: {limits: {stroke: 1.0, velocity: 1.0, force: 1e6, deceleration: 5}}}"
    with pytest.raises(ConfigError, match=naming("unknown", "bench_udp", "north", "story_1")):
        files.load(name, ["rig_file=null", f"axes={renamed}"], rig="bench_udp")


def test_nobody_leaves_a_limit_of_a_rig_out(rig: Rig) -> None:
    bounded = rig({"limits.tracking_error": 0.02})
    with pytest.raises(ConfigError, match=naming("limits.tracking_error", "<= 0.02 m")):
        files.load(NAME, ["axes.axis_1.limits.tracking_error=null"], rig=bounded)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "unit": (
        {"displacement.unit": "kN"},
        {},
        r"displacement.unit: unknown value 'kN'.*known: cm, ft, in, m, mm, um",
    ),
    "no range": ({"force.range": None}, {}, r"axes.bench.force.range: missing"),
    "sign": ({"force.sign": 0}, {}, r"force.sign = 0: must be 1 or -1"),
    "sign of two": ({"force.sign": 2}, {}, r"force.sign = 2: must be >= -1 and <= 1"),
    "scale": ({"force.scale": 0.0}, {}, r"force.scale = 0 its unit: must be > 0"),
    "empty auxiliary": (
        {},
        {"auxiliary": None},
        r"auxiliary = None: must be a mapping of names to sections; omit",
    ),
    "served twice": (
        {"serves": ["axis_1", "axis_1"]},
        {},
        r"axes.bench.serves: 'axis_1' is listed more than once",
    ),
    "address": (
        {},
        {"port": {"type": "udp", "address": "0.0.0.0", "emulator": True}},
        r"port.address = '0.0.0.0': must be the address of the rig's computer",
    ),
    "broadcast": (
        {},
        {"port": {"type": "udp", "address": "255.255.255.255", "emulator": True}},
        r"port.address = '255.255.255.255': must be the address of the rig's computer",
    ),
    "wait": (
        {},
        {"port": {"type": "udp", "longest_wait": 1e6}},
        r"port.longest_wait = 1e\+06 s: must be > 0 and <= 3600 s",
    ),
    "date": ({"force.calibrated": "2.3.2026"}, {}, r"calibrated = '2.3.2026': must be a date such as 2026-03-02"),
    "resolution": ({"force.resolution": 3e6}, {}, r"resolution = 3e\+06 N: must be < range = 2e\+06 N"),
    "no limit": ({"limits.force": None}, {}, r"axes.bench.limits.force: missing"),
    "no velocity": ({"limits.velocity": None}, {}, r"axes.bench.limits.velocity: missing"),
    "limit beyond": (
        {"limits.force": 3e6},
        {},
        r"limits.force = 3e\+06 N: must be <= 2e\+06 N, the range of force",
    ),
    "stroke beyond": (
        {"displacement.range": 0.1},
        {},
        r"limits.stroke = 0.25 m: must be <= 0.1 m, the range of disp",
    ),
    "time": ({"similitude": {"time": 2.0}}, {}, r"similitude.time = 2: must be 1\. .*time_ratio"),
    "misspelt": ({"similtude": {}}, {}, r"unknown key 'similtude' \(did you mean 'similitude'\?\)"),
    "name": (
        {"serves": ["story_1"]},
        {},
        r"axes.axis_1: no axis of the rig bench .*The axes of the rig are bench \(serves story_1\)",
    ),
    "rate": (
        {},
        {"servo_rate": 2048.0},
        r"servo_rate = 1024 Hz: must be 2048 Hz, the rate of the controller of the rig bench",
    ),
    "port": ({}, {"port": {"type": "udb"}}, r"port.type: unknown port 'udb' \(did you mean 'udp'\?\)"),
    "channel": (
        {},
        {"auxiliary": {"oil": {"unit": "bar", "range": 350.0}}, "port": {"type": "udp", "emulator": True}},
        r"rig_file.auxiliary.oil: unknown channel 'oil'; known: none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_or_does_not_fit_is_refused_in_words(rig: Rig, case: str) -> None:
    changes, more, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        checked_loop(files.load(NAME, rig=rig(changes, **more)))


def test_axes_fit_by_name_each_to_one(rig: Rig, tmp_path: Path) -> None:
    one = yaml.safe_load(rig().read_text())
    axis = one["axes"]["bench"]
    name = "three_independent_axes"
    for serves, words in (
        ({"a": ["story_1"], "b": ["story_2"]}, r"axes.story_3: no axis of the rig bench"),
        (
            {"a": ["story_1", "story_2"], "b": ["story_3"]},
            r"axes.story_2: this name means the axis a of .*, but story_1 already",
        ),
        (
            {"a": ["story_1"], "b": ["story_2"], "story_3": [], "d": []},
            r"axes: no axis of the scenario uses d of the rig",
        ),
        ({"a": ["story_1"], "b": ["story_1"]}, r"axes: 'story_1' is a name of both a and b"),
    ):
        one["axes"] = {key: axis | {"serves": names} for key, names in serves.items()}
        rig().write_text(yaml.safe_dump(one))
        with pytest.raises(ConfigError, match=words):
            files.load(name, rig=tmp_path / "bench.yaml")


def test_a_specimen_to_half_scale_gives_the_response_of_the_whole_one(rig: Rig) -> None:
    """Half the length, a quarter of the force: stiffness and damping are half of those of the structure."""
    name, brief = "chen_ricles_2010", ["duration=1.0", "compensator={type: inverse, alpha: 29.0}"]
    serves = {"serves": ["story_1"], "limits.velocity": 0.76}
    full = rths_nodes.run(name, brief, rig=rig(serves))
    scaled = [*brief, "axes.story_1.specimen.stiffness=3.8e6", "axes.story_1.specimen.damping=0.32e6"]
    half = rths_nodes.run(name, scaled, rig=rig({**serves, "similitude": {"length": 2.0, "force": 4.0}}))
    np.testing.assert_allclose(half.dof_displacement, full.dof_displacement, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(2.0 * half.displacement, full.displacement, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(4.0 * half.force, full.force, rtol=1e-9, atol=1e-6)
    assert half.metrics["hsem_percent"] == pytest.approx(full.metrics["hsem_percent"], rel=1e-6)
    on = files.load(name, rig=rig({**serves, "similitude": {"length": 2.0}}))
    alone = driven(on, 0, from_data(Noise, {"duration": 1.0}))
    assert (on.scaled, alone.scaled) == (True, False)  # an identification moves the specimen in its own scale
    with pytest.raises(ConfigError, match=naming("semi_active", "numbers")):
        files.load(name, ["semi_active={type: passive}"], rig=rig({**serves, "similitude": {"length": 2.0}}))


def test_limits_of_a_prescribed_motion_apply_to_the_scaled_specimen(rig: Rig) -> None:
    sine = "integrator={type: prescribed, displacement: {type: sine, amplitude: 0.4, frequency: 1.0}}"
    files.load(NAME, [sine], rig=rig({"similitude": {"length": 2.0}})).check_fit("integrator")
    with pytest.raises(ConfigError, match=naming("axes.axis_1", "0.8 m", "limits.stroke = 0.25 m")):
        files.load(NAME, [sine], rig=rig({"similitude": {"length": 0.5}})).check_fit("integrator")


@pytest.mark.parametrize("called", ["bench", "axis_1"])
def test_expressions_of_a_rig_file_go_by_its_own_axes_and_those_that_it_serves(rig: Rig, called: str) -> None:
    levels = {
        "quantities": {"smooth": {"type": "low_pass", "of": [f"force.{called}"], "frequency": 20.0}},
        "expressions": {"power": {"of": f"force.{called} * piston_velocity.{called}", "unit": "kW", "maximum": 9}},
    }
    loaded = files.load(NAME, rig=rig(levels=levels)).levels
    assert loaded.expressions["power"].of == "force.axis_1 * piston_velocity.axis_1"
    assert loaded.quantities["smooth"].of == ("force.axis_1",)
