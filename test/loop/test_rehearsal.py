# SPDX-License-Identifier: Apache-2.0
"""Tests of rehearsals: on a simulator, slower, at a reduced level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.core import parameters, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.loop.scenario.assembly import Assembly

NAME = "chen_ricles_2010"
MOTIONS = {
    "record": "ground_motion={type: record, record: elcentro_1940_ns, scale: 0.5}",
    "sine": "ground_motion={type: sine, amplitude: 1.0, frequency: 2.0}",
    "harmonic": "ground_motion={type: harmonic, amplitude: 1.0, frequency: 2.0}",
    "sweep": "ground_motion={type: sweep, amplitude: 1.0, duration: 2.0}",
    "band_limited_noise": "ground_motion={type: band_limited_noise, rms: 1.0, duration: 2.0}",
    "delayed": "ground_motion={type: delayed, delay: 0.5, motion: {type: sine, amplitude: 1.0, frequency: 2.0}}",
}
PROTOCOLS = {
    "fema_461": "{type: fema_461, amplitude: 0.02, velocity: 0.01, further_steps: 2}",
    "aisc_341": "{type: aisc_341, length: 1.5, velocity: 0.01}",
}
"""Displacements for the integrator ``predefined``."""


def test_every_ground_motion_is_tested() -> None:
    assert set(MOTIONS) | set(PROTOCOLS) == set(registry.names("ground_motion")) - {"none"}


@pytest.mark.parametrize("motion", MOTIONS.values(), ids=MOTIONS)
def test_level_scales_ground_motion(motion: str) -> None:
    full = files.load(NAME, ["duration=2", motion])
    reduced = rehearsal.at_level(full, 0.25)
    expected = 0.25 * Assembly(full).ground_acceleration
    np.testing.assert_allclose(Assembly(reduced).ground_acceleration, expected, rtol=1e-12, atol=1e-15)
    assert reduced.whole_hash() != full.whole_hash()


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_level_scales_protocol_and_its_derivatives(protocol: str) -> None:
    full = files.load("predefined_sine", ["duration=30", f"integrator.displacement={protocol}"])
    times = np.linspace(0.0, 30.0, 3001)
    curves = []
    for scenario in (full, rehearsal.at_level(full, 0.25)):
        motion = registry.build("ground_motion", scenario.integrator.displacement, 0)
        curves.append(np.array([motion.sample(times), *motion.derivatives(times)]))
    np.testing.assert_allclose(curves[1], 0.25 * curves[0], rtol=1e-12, atol=1e-15)


def test_level_scales_prescribed_motion_and_soft_start() -> None:
    full = files.load("predefined_sine", ["soft_start={amplitude: 0.01}"])
    reduced = rehearsal.at_level(full, 0.5)
    assert reduced.integrator.displacement.amplitude == 0.5 * full.integrator.displacement.amplitude
    assert reduced.soft_start.amplitude == 0.005
    assert rehearsal.at_level(full, 1.0) is full


def test_response_of_linear_test_is_proportional_to_level() -> None:
    sets = ["duration=2", "compensator.type=none", "structure.restoring_force=null"]
    full = rths_nodes.run(NAME, sets)
    reduced = rths_nodes.run(rehearsal.at_level(files.load(NAME, sets), 0.5))
    np.testing.assert_allclose(2.0 * reduced.displacement, full.displacement, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ("ground_motion={type: none}", 0.5, ("excitation", "test")),
        ("duration=1", 0.0, ("level", "0", "> 0")),
        ("duration=1", float("nan"), ("level", "nan", "> 0")),
    ],
)
def test_invalid_level_is_refused(change: str, level: float, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        rehearsal.at_level(files.load(NAME, [change]), level)


def test_level_of_external_excitation_is_refused() -> None:
    remote = "integrator={type: remote, experimental_stiffness: [[1.0e+6]]}"
    scenario = files.load(NAME, [remote, "structure=null", "ground_motion={type: none}"])
    with pytest.raises(ConfigError, match=naming("client", "excitation", "Reduce")):
        rehearsal.at_level(scenario, 0.5)


def test_level_of_ground_motion_without_scaling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = files.load(NAME)
    motion = registry.class_of("ground_motion", scenario.ground_motion)
    monkeypatch.delattr(motion.Params, "proportional_to")
    parameters.complete("ground_motion", motion)
    with pytest.raises(ConfigError, match=naming("ground_motion.type", "record")):
        rehearsal.at_level(scenario, 0.5)


def test_slower_multiplies_time_ratio() -> None:
    test = files.load(NAME, ["duration=2", "time_ratio=2"])
    slow = rehearsal.slower(test, 5)
    assert (slow.time_ratio, slow.duration, slow.steps) == (10, test.duration, test.steps)
    assert slow.samples == 5 * test.samples
    assert rehearsal.slower(test, 1) is test


def test_slow_test_of_rate_independent_specimen_agrees() -> None:
    sets = ["axes.story_1.specimen={type: elastoplastic_absorber}", "axes.story_1.actuator={type: pure_delay}"]
    test = files.load(NAME, ["duration=2", "compensator={type: none}", *sets])
    fast, slow = rths_nodes.run(test), rths_nodes.run(rehearsal.slower(test, 10))
    n = len(fast.dof_displacement)
    difference = np.sqrt(np.mean((slow.dof_displacement[:n] - fast.dof_displacement) ** 2))
    assert difference < 0.01 * np.sqrt(np.mean(fast.dof_displacement**2))


def test_slow_and_scaled_tests_drop_corridor(tmp_path: Path) -> None:
    file = tmp_path / "bands.npz"
    test = files.load(NAME, [f"monitor.corridor={file}", "monitor.corridor_action=trip"])
    for changed in (rehearsal.slower(test, 10), rehearsal.at_level(test, 0.5)):
        assert (changed.monitor.corridor, changed.monitor.corridor_action) == (None, "indicate")


def test_rehearsal_uses_simulator_without_faults() -> None:
    faults = ["port.hydraulics=low", "port.interlock=open", "axes.story_1.output.start=0.01"]
    sensors = ("force_scale=-1", "displacement_offset=0.001", "second={scale: 1.1, noise_rms: 1.0e-6}")
    faults += [f"axes.story_1.sensors.{fault}" for fault in sensors]
    test = files.load(NAME, faults, rig="bench_simulated")
    rehearsed = rehearsal.simulated(test)
    assert rehearsed.port.transport_samples == test.port.transport_samples == 1
    assert (rehearsed.port.hydraulics, rehearsed.port.interlock) == (None, None)
    sensors = rehearsed.axes["story_1"].sensors
    assert (sensors.force_scale, sensors.displacement_offset) == (1.0, 0.0)
    assert sensors.force_noise_rms == test.axes["story_1"].sensors.force_noise_rms > 0.0
    assert (sensors.second.scale, sensors.second.noise_rms) == (1.0, 1e-6)
    assert rehearsed.axes["story_1"].output.start is None


def test_rehearsal_of_udp_rig_runs_without_rig() -> None:
    rehearsed = rehearsal.simulated(files.load(NAME, ["duration=0.2"], rig="bench_udp"))
    assert type(rehearsed.port).type_name == "simulator"
    assert rths_nodes.run(rehearsed).outcome == "finished"


def test_rehearsal_drops_levels_on_channels_of_rig() -> None:
    level = "axes.story_1.limits.levels={displacement_disagreement: {maximum: 1.0e-4, channel: second}}"
    test = files.load(NAME, [level, "port.auxiliary_names=['second [m]']"], rig="bench_udp")
    assert rehearsal.simulated(test).axes["story_1"].limits.levels is None


def test_rehearsal_without_specimen_model_is_refused() -> None:
    test = files.load(NAME, ["axes.story_1.specimen=null"], rig="bench_udp")
    with pytest.raises(ConfigError, match=naming("rehearsal", "axes.story_1.specimen", "missing")) as refused:
        rehearsal.simulated(test)
    assert mentions(str(refused.value), "leave", "rungs")


RATE_DEPENDENT = {
    "kelvin_voigt": True,
    **dict.fromkeys(("computed_spring", "elastoplastic_absorber", "degrading_column"), False),
    "maxwell_damper": True,
}


@pytest.mark.parametrize("name", RATE_DEPENDENT)
def test_rate_dependence_of_specimens(name: str) -> None:
    defaults: dict[str, Any] = {"maxwell_damper": {"series_stiffness": 1e7, "damping": 1e5}}
    cls = registry.load("specimen", name)
    differs = rehearsal.rate_dependence(from_data(cls.Params, defaults.get(name, {})), 0.01, 10)
    assert (differs > rehearsal.SAME_FORCE) is RATE_DEPENDENT[name]


def test_rate_dependent_components_are_reported() -> None:
    remarks = rehearsal.rate_remarks(files.load(NAME), 10)
    components = "axes.story_1.specimen (kelvin_voigt)", "integrator (cr)", "compensator (adaptive_inverse)"
    assert tuple(remark.split(":")[0] for remark in remarks) == components
    assert mentions(remarks[0], "10", "differs")
    assert rehearsal.rate_remarks(files.load(NAME), 1) == []


def test_specimen_without_model_is_reported() -> None:
    test = files.load(NAME, ["axes.story_1.specimen=null"], rig="bench_udp")
    assert mentions(rehearsal.rate_remarks(test, 10)[0], "axes.story_1.specimen", "rate dependence")


def test_rehearsal_drops_expressions_on_channels_of_rig(tmp_path: Path) -> None:
    """Quantities of these channels too; levels on values of the simulator stay."""
    levels = {
        "quantities": {
            "slow": {"type": "low_pass", "of": ["channel.oil"], "frequency": 5.0},
            "sum": {"type": "integral", "of": ["quantity.slow"]},
            "push": {"type": "integral", "of": ["force['bench']"]},
        },
        "expressions": {
            "low": {"of": "channel['oil']", "unit": "bar", "minimum": 180.0},
            "oil": {"of": "quantity.sum", "unit": "bar*s", "maximum": 1e3},
            "push": {"of": "quantity.push", "unit": "kN*s", "maximum": 1e9},
        },
    }
    rig = parse(files.locate("bench_udp", files.RIG).read_text(), "rig") | {"levels": levels}
    rig["port"]["auxiliary_names"] = ["oil [bar]"]
    (tmp_path / "rig.yaml").write_text(dump(rig))
    rehearsed = rehearsal.simulated(files.load(NAME, ["duration=0.2"], rig=str(tmp_path / "rig.yaml")))
    assert (list(rehearsed.levels.quantities), list(rehearsed.levels.expressions)) == (["push"], ["push"])
    assert rths_nodes.run(rehearsed).outcome == "finished"
