# SPDX-License-Identifier: Apache-2.0
"""Tests of the rig file, which replaces the description of the rig in a scenario."""

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
MOTION = """
version: 1
name: motion
servo_rate: 1024
substeps: 1
duration: 0.05
integrator: {type: prescribed, displacement: {type: sine, amplitude: 0.01, frequency: 1.0}}
compensator: {type: none}
axes: {axis_1: {}}
"""

Rig = Callable[..., Path]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Write a simple rig file; change its axis by ``section.key``, its other sections by name."""

    def rig(changes: dict[str, Any] | None = None, sections: dict[str, Any] | None = None) -> Path:
        channel = {"unit": "m", "range": 0.5}
        axis: dict[str, Any] = {
            "serves": ["axis_1"],
            "displacement": dict(channel),
            "force": {"unit": "N", "range": 2e6},
            "command": dict(channel),
            "limits": {"stroke": 0.25, "velocity": 10.0, "force": 1.7e6},
        }
        for key, value in (changes or {}).items():
            name, _, last = key.rpartition(".")
            section = axis[name] if name else axis
            if value is None:
                del section[last]
            else:
                section[last] = value
        data = {"version": 1, "name": "bench", "port": {"type": "simulator"}, "axes": {"bench": axis}}
        file = tmp_path / "bench.yaml"
        file.write_text(yaml.safe_dump(data | (sections or {})))
        return file

    return rig


def test_rig_in_si_units_changes_no_bit(rig: Rig, different: Any) -> None:
    run = rths_nodes.run(NAME, [BRIEF], rig=rig({"displacement.range": 100.0, "force.range": 1e9}))
    assert different(run, rths_nodes.run(NAME, [BRIEF])) == []
    assert run.scenario.rig_file.name == "bench"


def test_example_of_page_is_converted_to_si(tmp_path: Path) -> None:
    file = tmp_path / "my_rig.yaml"
    file.write_text(re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)[1])
    scenario = files.load(NAME, rig=file)
    axis = scenario.axes["axis_1"]
    assert axis.rig_axis.displacement.gain == pytest.approx(-0.013)
    assert axis.rig_axis.force.gain == pytest.approx(30e3)
    assert (axis.limits.stroke, axis.limits.force) == (0.12, 250e3)
    assert axis.sensors.displacement_range == pytest.approx(0.13)
    assert axis.sensors.displacement_noise_rms == pytest.approx(2e-6)
    assert scenario.bridge.max_bridge == 0.005
    with pytest.raises(ConfigError, match=naming("operator", "arm")):
        checked_loop(scenario)


@pytest.mark.parametrize("name", files.shipped(files.RIG))
def test_shipped_rig_runs_scenario(name: str) -> None:
    slow = ["time_ratio=10"] if name == "bench_ros2_control" else []
    assert checked_loop(files.load(of_rig(name), slow, rig=name)).rig.port.transport_samples == 1


def test_scenario_data_include_rig_file(rig: Rig) -> None:
    scenario = files.load(NAME, rig=rig({"displacement.calibrated": "2026-03-02"}))
    again = files.from_text(dump(scenario.data()), "again")
    assert again == scenario
    assert again.shared_hash() == scenario.shared_hash() != files.load(NAME).shared_hash()


def test_rig_file_supplies_missing_sections(rig: Rig, tmp_path: Path) -> None:
    motion = tmp_path / "motion.yaml"
    motion.write_text(MOTION)
    with pytest.raises(ConfigError, match=r"axes.axis_1.limits: missing .*--rig"):
        files.load(motion)
    with pytest.raises(ConfigError, match=r"axes.axis_1.specimen: missing"):
        files.load(motion, rig=rig({"actuator": {"type": "pure_delay", "delay": 0.002}}))
    scenario = files.load(motion, rig=rig(None, {"port": {"type": "udp", "emulator": True}}))
    assert checked_loop(scenario).scenario.limits["axis_1"].stroke == 0.25


def test_actuator_of_rig_file(rig: Rig) -> None:
    scenario = files.load(NAME, rig=rig({"actuator": {"type": "first_order", "alpha": 11.0}}))
    assert scenario.axes["axis_1"].actuator.alpha == 11.0
    assert files.load(NAME, ["axes.axis_1.actuator.alpha=12"], rig=rig()).axes["axis_1"].actuator.alpha == 12.0


def test_corridor_of_rig_replaces_corridor_of_scenario_completely(rig: Rig) -> None:
    other = {"corridor": "/o.npz", "corridor_action": "trip", "corridor_persistence": 10.0, "longest_delay": 0.2}
    bounded = rig(sections={"monitor": {"corridor": "mine.npz", "corridor_persistence": 0.05}})
    scenario = files.load(NAME).data() | {"monitor": other}
    monitor = files.load(scenario, rig=bounded).monitor
    assert (Path(monitor.corridor).name, monitor.corridor_action) == ("mine.npz", "indicate")
    assert (monitor.corridor_persistence, monitor.longest_delay) == (0.05, 0.2)
    limited = files.load(scenario, rig=rig(sections={"monitor": {}})).monitor
    assert (limited.corridor, limited.corridor_persistence) == ("/o.npz", 10.0)


def test_limits_of_rig_can_only_be_reduced() -> None:
    name, key = "chen_ricles_2010", "axes.story_1.limits.velocity"
    scenario = files.load(name, case="alpha_45_k_p_0", rig="bench_simulated")
    assert (scenario.limits["story_1"].velocity, scenario.compensator.alpha_es) == (1.2, 45.0)
    assert files.load(name, [f"{key}=0.7"], "alpha_45_k_p_0", "bench_simulated").limits["story_1"].velocity == 0.7
    wider = "axes.story_1.limits.velocity = 1.3 m/s: must be <= 1.2 m/s, the limit of the rig bench_simulated"
    with pytest.raises(ConfigError, match=re.escape(wider)):
        files.load(name, [f"{key}=1.3"], rig="bench_simulated")
    with pytest.raises(ConfigError, match=re.escape(wider)):
        files.load(scenario, [f"{key}=1.3"])
    with pytest.raises(ConfigError, match=re.escape(wider)):
        files.load(scenario.data() | {"cases": {"wide": {"set": {key: 1.3}}}}, case="wide")
    renamed = "{north: {limits: {stroke: 1.0, velocity: 1.0, force: 1e6, deceleration: 5}}}"
    with pytest.raises(ConfigError, match=naming("unknown", "bench_udp", "north", "story_1")):
        files.load(name, ["rig_file=null", f"axes={renamed}"], rig="bench_udp")


def test_force_limit_of_rig_holds_after_change_of_mode() -> None:
    data = files.load("column_under_axial_load").data()
    axis = data["axes"]["load"]
    changes = {f"axes.load.{key}": axis.pop(key) for key in ("mode", "load", "force_control")}
    axis["limits"] |= {"force_rate": None, "force_error": None}
    changes |= {"axes.load.limits.force_rate": 1e12, "axes.load.limits.force_error": 5e4}
    with pytest.raises(ConfigError, match=naming("axes.load.limits.force_rate", "<= 400000 N/s", "column_udp")):
        files.load(data, changes, rig="column_udp")
    changes["axes.load.limits.force_rate"] = 4e5
    assert files.load(data, changes, rig="column_udp").limits["load"].force_rate == 4e5


def test_correction_of_a_force_loop_cannot_be_widened() -> None:
    name, key = "column_under_axial_load", "axes.load.force_control.largest_correction"
    with pytest.raises(ConfigError, match=naming(f"{key} = 0.001 m", "<= 3e-05 m", "column_udp")):
        files.load(name, [f"{key}=1e-3"], rig="column_udp")
    narrower = files.load(name, [f"{key}=1e-5"], rig="column_udp").axes["load"].force_control
    assert narrower.largest_correction == 1e-5


def test_limit_of_rig_cannot_be_removed(rig: Rig) -> None:
    bounded = rig({"limits.tracking_error": 0.02})
    with pytest.raises(ConfigError, match=naming("limits.tracking_error", "<= 0.02 m")):
        files.load(NAME, ["axes.axis_1.limits.tracking_error=null"], rig=bounded)


ADDRESS = "port.address = '{}': must be the address of the rig's computer"


def udp(**data: Any) -> dict[str, Any]:
    return {"port": {"type": "udp"} | data}


REFUSED = {
    "unit": (r"displacement.unit: unknown value 'kN'.*known: cm, ft, in, m, mm, um", {"displacement.unit": "kN"}),
    "no range": (r"axes.bench.force.range: missing", {"force.range": None}),
    "sign": (r"force.sign = 0: must be 1 or -1", {"force.sign": 0}),
    "sign of two": (r"force.sign = 2: must be >= -1 and <= 1", {"force.sign": 2}),
    "scale": (r"force.scale = 0 its unit: must be > 0", {"force.scale": 0.0}),
    "empty auxiliary": (
        r"auxiliary = None: must be a mapping of names to sections; omit",
        {},
        {"auxiliary": None},
    ),
    "served twice": (r"axes.bench.serves: 'axis_1' is listed more than once", {"serves": ["axis_1", "axis_1"]}),
    "address": (ADDRESS.format("0.0.0.0"), {}, udp(address="0.0.0.0", emulator=True)),
    "broadcast": (ADDRESS.format("255.255.255.255"), {}, udp(address="255.255.255.255", emulator=True)),
    "wait": (r"port.longest_wait = 1e\+06 s: must be > 0 and <= 3600 s", {}, udp(longest_wait=1e6)),
    "date": (r"calibrated = '2.3.2026': must be a date such as 2026-03-02", {"force.calibrated": "2.3.2026"}),
    "resolution": (r"resolution = 3e\+06 N: must be < range = 2e\+06 N", {"force.resolution": 3e6}),
    "no limit": (r"axes.bench.limits.force: missing", {"limits.force": None}),
    "no velocity": (r"axes.bench.limits.velocity: missing", {"limits.velocity": None}),
    "limit beyond": (r"limits.force = 3e\+06 N: must be <= 2e\+06 N, the range of force", {"limits.force": 3e6}),
    "stroke beyond": (r"limits.stroke = 0.25 m: must be <= 0.1 m, the range of disp", {"displacement.range": 0.1}),
    "time": (r"similitude.time = 2: must be 1\. .*time_ratio", {"similitude": {"time": 2.0}}),
    "misspelt": (r"unknown key 'similtude' \(did you mean 'similitude'\?\)", {"similtude": {}}),
    "name": (
        r"axes.axis_1: no axis of the rig bench .*The axes of the rig are bench \(serves story_1\)",
        {"serves": ["story_1"]},
    ),
    "rate": (
        r"servo_rate = 1024 Hz: must be 2048 Hz, the rate of the controller of the rig bench",
        {},
        {"servo_rate": 2048.0},
    ),
    "port": (r"port.type: unknown port 'udb' \(did you mean 'udp'\?\)", {}, {"port": {"type": "udb"}}),
    "channel": (
        r"rig_file.auxiliary.oil: unknown channel 'oil'; known: none",
        {},
        {"auxiliary": {"oil": {"unit": "bar", "range": 350.0}}} | udp(emulator=True),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_rig_file_is_refused(rig: Rig, case: str) -> None:
    message, *changes = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        checked_loop(files.load(NAME, rig=rig(*changes)))


def test_axes_are_assigned_by_name(rig: Rig) -> None:
    axis = yaml.safe_load(rig().read_text())["axes"]["bench"]
    for serves, message in (
        ({"a": ["story_1"], "b": ["story_2"]}, r"axes.story_3: no axis of the rig bench"),
        (
            {"a": ["story_1", "story_2"], "b": ["story_3"]},
            r"axes.story_2: belongs to the axis a of .*, but story_1 already",
        ),
        (
            {"a": ["story_1"], "b": ["story_2"], "story_3": [], "d": []},
            r"axes: the scenario does not use d of the rig",
        ),
        ({"a": ["story_1"], "b": ["story_1"]}, r"axes: a and b both have the name 'story_1'"),
    ):
        axes = {key: axis | {"serves": names} for key, names in serves.items()}
        with pytest.raises(ConfigError, match=message):
            files.load("three_independent_axes", rig=rig(None, {"axes": axes}))


def test_half_scale_specimen_gives_same_response(rig: Rig) -> None:
    """Half the length, a quarter of the force: half the stiffness and damping of the structure."""
    name, brief = "chen_ricles_2010", ["duration=1.0", "compensator={type: inverse, alpha: 29.0}"]
    serves, scale = {"serves": ["story_1"], "limits.velocity": 0.76}, {"similitude": {"length": 2.0, "force": 4.0}}
    full = rths_nodes.run(name, brief, rig=rig(serves))
    model = [*brief, "axes.story_1.specimen.stiffness=3.8e6", "axes.story_1.specimen.damping=0.32e6"]
    half = rths_nodes.run(name, model, rig=rig(serves | scale), engine="kernels")
    np.testing.assert_allclose(half.dof_displacement, full.dof_displacement, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(2.0 * half.displacement, full.displacement, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(4.0 * half.force, full.force, rtol=1e-9, atol=1e-6)
    assert half.metrics["hsem_percent"] == pytest.approx(full.metrics["hsem_percent"], rel=1e-6)
    scaled = files.load(name, rig=rig({**serves, "similitude": {"length": 2.0}}))
    identification = driven(scaled, 0, from_data(Noise, {"duration": 1.0}))
    assert (scaled.scaled, identification.scaled) == (True, False)  # in the scale of the specimen
    with pytest.raises(ConfigError, match=naming("semi_active", "numbers")):
        files.load(name, ["semi_active={type: passive}"], rig=rig({**serves, "similitude": {"length": 2.0}}))


def test_prescribed_motion_is_limited_by_scaled_stroke(rig: Rig) -> None:
    sine = "integrator={type: prescribed, displacement: {type: sine, amplitude: 0.4, frequency: 1.0}}"
    files.load(NAME, [sine], rig=rig({"similitude": {"length": 2.0}})).check_fit("integrator")
    with pytest.raises(ConfigError, match=naming("axes.axis_1", "0.8 m", "limits.stroke = 0.25 m")):
        files.load(NAME, [sine], rig=rig({"similitude": {"length": 0.5}})).check_fit("integrator")


@pytest.mark.parametrize("axis", ["bench", "axis_1"])
def test_expressions_accept_rig_and_scenario_axis_names(rig: Rig, axis: str) -> None:
    levels = {
        "quantities": {"smooth": {"type": "low_pass", "of": [f"force.{axis}"], "frequency": 20.0}},
        "expressions": {"power": {"of": f"force.{axis} * piston_velocity.{axis}", "unit": "kW", "maximum": 9}},
    }
    loaded = files.load(NAME, rig=rig(None, {"levels": levels})).levels
    assert loaded.expressions["power"].of == "force.axis_1 * piston_velocity.axis_1"
    assert loaded.quantities["smooth"].of == ("force.axis_1",)
