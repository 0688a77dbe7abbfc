# SPDX-License-Identifier: Apache-2.0
"""A test as it is rehearsed: on a simulator, slower, at a reduced level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.core import declarations, registry
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


def test_every_ground_motion_but_rest_is_tried() -> None:
    assert set(MOTIONS) | set(PROTOCOLS) == set(registry.names("ground_motion")) - {"none"}


@pytest.mark.parametrize("motion", MOTIONS.values(), ids=MOTIONS)
def test_a_level_scales_every_ground_motion(motion: str) -> None:
    whole = files.load(NAME, ["duration=2", motion])
    part = rehearsal.at_level(whole, 0.25)
    expected = 0.25 * Assembly(whole).ground_acceleration
    np.testing.assert_allclose(Assembly(part).ground_acceleration, expected, rtol=1e-12, atol=1e-15)
    assert rehearsal.hash_of(part) != rehearsal.hash_of(whole)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_level_scales_displacement_velocity_and_acceleration_of_a_protocol(protocol: str) -> None:
    whole = files.load("predefined_sine", ["duration=30", f"integrator.displacement={protocol}"])
    times = np.linspace(0.0, 30.0, 3001)
    curves = []
    for scenario in (whole, rehearsal.at_level(whole, 0.25)):
        motion = registry.build("ground_motion", scenario.integrator.displacement, 0)
        curves.append(np.array([motion.sample(times), *motion.derivatives(times)]))
    np.testing.assert_allclose(curves[1], 0.25 * curves[0], rtol=1e-12, atol=1e-15)


def test_a_level_scales_a_prescribed_motion_and_a_soft_start() -> None:
    whole = files.load("predefined_sine", ["soft_start={amplitude: 0.01}"])
    part = rehearsal.at_level(whole, 0.5)
    assert part.integrator.displacement.amplitude == 0.5 * whole.integrator.displacement.amplitude
    assert part.soft_start is not None
    assert part.soft_start.amplitude == 0.005
    assert rehearsal.at_level(whole, 1.0) is whole


def test_a_linear_test_at_half_the_level_goes_half_as_far() -> None:
    sets = ["duration=2", "compensator.type=none", "structure.restoring_force=null"]
    whole = rths_nodes.run(NAME, sets)
    part = rths_nodes.run(rehearsal.at_level(files.load(NAME, sets), 0.5))
    np.testing.assert_allclose(2.0 * part.displacement, whole.displacement, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ("ground_motion={type: none}", 0.5, ("excitation", "test")),
        ("duration=1", 0.0, ("level", "0", "> 0")),
        ("duration=1", float("nan"), ("level", "nan", "> 0")),
    ],
)
def test_what_cannot_be_scaled_is_refused(change: str, level: float, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        rehearsal.at_level(files.load(NAME, [change]), level)


def test_an_excitation_that_stands_outside_is_refused_with_where_it_is(tmp_path: Path) -> None:
    remote = "integrator={type: remote, experimental_stiffness: [[1.0e+6]]}"
    scenario = files.load(NAME, [remote, "structure=null", "ground_motion={type: none}"])
    with pytest.raises(ConfigError, match=naming("client", "excitation", "Reduce")):
        rehearsal.at_level(scenario, 0.5)


def test_a_ground_motion_of_another_package_that_does_not_say_how_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = files.load(NAME)
    motion = registry.class_of("ground_motion", scenario.ground_motion)
    monkeypatch.delattr(motion.Params, "proportional_to")
    declarations.complete("ground_motion", motion)
    with pytest.raises(ConfigError, match=naming("ground_motion.type", "record")):
        rehearsal.at_level(scenario, 0.5)


def test_slow_time_multiplies_the_ratio_and_keeps_the_time_of_the_structure() -> None:
    test = files.load(NAME, ["duration=2", "time_ratio=2"])
    slow = rehearsal.slower(test, 5)
    assert (slow.time_ratio, slow.duration, slow.steps) == (10, test.duration, test.steps)
    assert slow.samples == 5 * test.samples
    assert rehearsal.slower(test, 1) is test


def test_a_slow_test_of_a_specimen_without_rates_is_that_in_real_time() -> None:
    sets = [
        "duration=2",
        "axes.story_1.specimen={type: elastoplastic_absorber}",
        "axes.story_1.actuator={type: pure_delay}",
        "compensator={type: none}",
    ]
    test = files.load(NAME, sets)
    fast, slow = rths_nodes.run(test), rths_nodes.run(rehearsal.slower(test, 10))
    n = len(fast.dof_displacement)
    difference = np.sqrt(np.mean((slow.dof_displacement[:n] - fast.dof_displacement) ** 2))
    assert difference < 0.01 * np.sqrt(np.mean(fast.dof_displacement**2))


def test_slow_time_and_levels_leave_the_corridor_of_the_full_test_behind(tmp_path: Path) -> None:
    file = tmp_path / "bands.npz"
    test = files.load(NAME, [f"monitor.corridor={file}", "monitor.corridor_action=trip"])
    for changed in (rehearsal.slower(test, 10), rehearsal.at_level(test, 0.5)):
        assert (changed.monitor.corridor, changed.monitor.corridor_action) == (None, "indicate")


def test_the_rehearsal_has_a_simulator_on_which_nothing_is_wrong() -> None:
    wrong = [
        "port.hydraulics=low",
        "port.interlock=open",
        "axes.story_1.sensors.force_scale=-1",
        "axes.story_1.sensors.displacement_offset=0.001",
        "axes.story_1.sensors.second={scale: 1.1, noise_rms: 1.0e-6}",
        "axes.story_1.output.start=0.01",
    ]
    test = files.load(NAME, wrong, rig="bench_simulated")
    right = rehearsal.simulated(test)
    assert right.port.transport_samples == test.port.transport_samples == 1
    assert (right.port.hydraulics, right.port.interlock) == (None, None)
    sensors = right.axes["story_1"].sensors
    assert (sensors.force_scale, sensors.displacement_offset) == (1.0, 0.0)
    assert sensors.force_noise_rms == test.axes["story_1"].sensors.force_noise_rms > 0.0
    assert sensors.second is not None
    assert (sensors.second.scale, sensors.second.noise_rms) == (1.0, 1e-6)
    assert right.axes["story_1"].output.start is None


def test_the_rehearsal_of_a_rig_by_udp_runs_without_it() -> None:
    test = files.load(NAME, ["duration=0.2"], rig="bench_udp")
    right = rehearsal.simulated(test)
    assert type(right.port).type_name == "simulator"
    assert rths_nodes.run(right).outcome == "finished"


def test_levels_on_channels_of_the_rig_are_left_out_of_the_rehearsal() -> None:
    level = "axes.story_1.limits.levels={displacement_disagreement: {maximum: 1.0e-4, channel: second}}"
    names = "port.auxiliary_names=['second [m]']"
    test = files.load(NAME, [level, names], rig="bench_udp")
    assert rehearsal.simulated(test).axes["story_1"].limits.levels is None


def test_a_rehearsal_without_a_model_of_the_specimen_is_refused() -> None:
    test = files.load(NAME, ["axes.story_1.specimen=null"], rig="bench_udp")
    with pytest.raises(ConfigError, match=naming("rehearsal", "axes.story_1.specimen", "missing")) as found:
        rehearsal.simulated(test)
    assert mentions(str(found.value), "leave", "rungs")


SPECIMENS = {
    "kelvin_voigt": True,
    "computed_spring": False,
    "elastoplastic_absorber": False,
    "degrading_column": False,
    "maxwell_damper": True,
}


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_specimen_that_depends_on_the_rate_is_found(name: str) -> None:
    defaults: dict[str, Any] = {"maxwell_damper": {"series_stiffness": 1e7, "damping": 1e5}}
    cls = registry.load("specimen", name)
    differs = rehearsal.rate_dependence(from_data(cls.Params, defaults.get(name, {})), 0.01, 10)
    assert (differs > rehearsal.SAME_FORCE) is SPECIMENS[name]


def test_parts_that_depend_on_the_rate_are_told() -> None:
    found = rehearsal.rate_remarks(files.load(NAME), 10)
    assert [words.split(":")[0] for words in found] == [
        "axes.story_1.specimen (kelvin_voigt)",
        "integrator (cr)",
        "compensator (adaptive_inverse)",
    ]
    assert mentions(found[0], "10", "differs")
    assert rehearsal.rate_remarks(files.load(NAME), 1) == []


def test_a_specimen_without_a_model_may_depend_on_the_rate() -> None:
    test = files.load(NAME, ["axes.story_1.specimen=null"], rig="bench_udp")
    assert mentions(rehearsal.rate_remarks(test, 10)[0], "axes.story_1.specimen", "rate dependence")


def test_a_rehearsal_leaves_out_levels_on_channels_that_only_the_rig_has(tmp_path: Path) -> None:
    """With what is made from them; what a simulator shows is watched as on the rig."""
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
