# SPDX-License-Identifier: Apache-2.0
"""The table of judgements: a row for every rule, no word about what is shipped, or about a rig of any size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import mentions, naming
from shipped_cases import of_rig

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED

TODAY = date(2026, 6, 1)
PAGE = Path(__file__).resolve().parents[2] / "doc" / "rig_file.md"
AXIS: dict[str, Any] = {
    "serves": ["story_1"],
    "displacement": {"unit": "mm", "range": 275.0, "scale": 27.5, "noise_rms": 0.002, "calibrated": "2026-03-02"},
    "force": {"unit": "kN", "range": 2000.0, "scale": 200.0, "noise_rms": 0.1, "calibrated": "2026-03-02"},
    "command": {"unit": "mm", "range": 260.0, "scale": 26.0},
    "limits": {"stroke": 0.25, "velocity": 1.2, "force": 1.8e6, "deceleration": 20.0, "tracking_error": 0.02},
    "stiffness": 7.6e6,
    "stiffness_known_to": 0.03,
    "small_move": {"displacement": 1e-3, "velocity": 2e-3, "force": 30e3},
}
RIG: dict[str, Any] = {
    "version": 1,
    "name": "bench",
    "servo_rate": 1024.0,
    "port": {"type": "udp", "address": "192.168.7.5"},
    "axes": {"bench": AXIS},
    "auxiliary": {
        "second": {"unit": "mm", "range": 100.0, "calibrated": "2026-03-02"},
        "accelerometer": {"unit": "m/s^2", "range": 50.0, "calibrated": "2026-03-02"},
    },
}
L, C, V = "axes.bench.limits.", "axes.bench.corrections.", "axes.bench.limits.levels."
DAMPED = {"mass": 5e5, "frequency": 0.77, "restoring_force": {"type": "linear", "stiffness": 11.7e6}}

ROWS: list[tuple[str, Mapping[str, Any], list[str], str]] = [
    (
        "velocity_beyond_stroke",
        {L + "velocity": 100.0},
        [],
        "braking distance at 20 m/s^2 is 250 m, but the stroke is +- 0.25 m",
    ),
    ("stop_of_no_actuator", {L + "deceleration": 1e6}, [], "deceleration = 1e+06 m/s^2: must be <= 10000 m/s^2"),
    (
        "stop_in_one_sample",
        {L + "deceleration": 5e3},
        [],
        "a motion at 1.2 m/s stops within one sample of 0.977 ms",
    ),
    ("tracking_error_beyond_stroke", {L + "tracking_error": 10.0}, [], "tracking_error = 10 m: must be <= 0.25 m"),
    (
        "limit_at_end_of_sensor",
        {L + "force": 2e6},
        [],
        "force = 2e+06 N: the range of the force sensor ends at 2e+06 N",
    ),
    ("limit_at_end_of_sensor", {L + "stroke": 0.26, "axes.bench.displacement.range": 260.0}, [], "ends at 0.26 m"),
    (
        "level_broken_at_rest",
        {V + "force_rate": {"minimum": 1e6}},
        [],
        "minimum = 1e+06 N/s: must be <= 0. The quantity is zero",
    ),
    (
        "level_broken_without_load",
        {V + "force": {"minimum": 1e5}},
        [],
        "levels.force.minimum = 100000 N: must be <= 0",
    ),
    ("level_broken_without_load", {V + "displacement": {"maximum": -0.01}}, [], "maximum = -0.01 m: must be >= 0"),
    ("level_only_told", {V + "force": {"maximum": 1e6, "action": "indicate"}}, [], "action = 'indicate'"),
    (
        "level_acts_late",
        {V + "force": {"maximum": 1e6, "persistence": 100_000}},
        [],
        "in this time, 97.7 s, the axis can move",
    ),
    ("level_within_noise", {V + "force": {"maximum": 300.0}}, [], "noise and resolution alone reach 600 N"),
    ("piston_velocity_beside_limit", {V + "piston_velocity": {"maximum": 1e-6}}, [], "maximum = 1e-06 m/s"),
    ("piston_velocity_beside_limit", {V + "piston_velocity": {"maximum": 2.0}}, [], "limits.velocity is 1.2 m/s"),
    ("command_step_beyond_velocity", {V + "command_step": {"maximum": 0.1}}, [], "must be within +- 0.001172 m"),
    (
        "bridge_length_beyond_bridge",
        {"levels.bridge_length": {"maximum": 1e6}},
        [],
        "= 1e+06 samples: must be <= 10",
    ),
    ("share_of_all", {"levels.bridged_share": {"maximum": 1.0}}, [], "bridged_share.maximum = 1: must be < 1"),
    (
        "disagreement_beyond_sensor",
        {V + "displacement_disagreement": {"maximum": 0.2, "channel": "second"}},
        [],
        "maximum = 0.2 m: must be within +- 0.1 m, the range of second",
    ),
    (
        "interlock_without_heartbeat",
        {
            V + "force": {"maximum": 1e6, "action": "interlock"},
            "port": {"type": "ros2_control", "joints": ["bench"]},
        },
        ["time_ratio=10"],
        "the port ros2_control has no heartbeat to drop. Without a heartbeat, 'interlock' has the effect of",
    ),
    (
        "error_not_bounded",
        {L + "tracking_error": None},
        [],
        "limits.tracking_error of the rig file bench: missing [m]",
    ),
    ("noise_covers_range", {"axes.bench.force.noise_rms": 3000.0}, [], "force_noise_rms = 3e+06 N: must be < "),
    (
        "noise_covers_range",
        {"auxiliary.second.noise_rms": 40.0},
        [],
        "second.noise_rms = 40 mm: must be < 33.33 mm",
    ),
    (
        "noise_is_large",
        {"axes.bench.displacement.noise_rms": 20.0},
        [],
        "noise_rms = 0.02 m: the noise is 7% of the range",
    ),
    (
        "scale_of_another_unit",
        {"axes.bench.force.scale": 200e3},
        [],
        "axes.story_1.rig_axis.force.scale = 200000 kN: must be 200 kN, because no converter reaches the range of "
        "2000 kN at 0.01 ",
    ),
    ("scale_of_another_unit", {"axes.bench.force.scale": 2000e3 / 2**15}, [], "must be 0.0610352 kN, because"),
    ("scale_of_another_unit", {"axes.bench.displacement.scale": 27500.0}, [], "at 0.01 (V, mA or counts)"),
    (
        "range_of_another_unit",
        {"axes.bench.force.range": 2e6},
        [],
        "the range is 2e+09 N, 1.11e+03 times limits.force",
    ),
    (
        "range_is_large",
        {"axes.bench.force.range": 2e5},
        [],
        "the range is 2e+08 N, 111 times limits.force = 1.8e+06 N",
    ),
    ("signal_of_no_converter", {"axes.bench.displacement.scale": 1e4}, [], "corresponds to 0.0275 at the port"),
    ("signal_of_no_converter", {"axes.bench.force.scale": 1e-6}, [], "corresponds to 2e+09 at the port"),
    (
        "calibrated_in_future",
        {"axes.bench.force.calibrated": "2999-01-01"},
        [],
        "= 2999-01-01: today is 2026-06-01",
    ),
    (
        "calibrated_long_ago",
        {"axes.bench.force.calibrated": "1900-01-01"},
        [],
        "= 1900-01-01: this date is 126 years ago",
    ),
    (
        "calibrated_long_ago",
        {"auxiliary.second.calibrated": "2025-01-01"},
        [],
        "= 2025-01-01: this date is 1.41 years ago",
    ),
    ("calibration_expired", {"axes.bench.force.expires": "2026-05-31"}, [], "= 2026-05-31: today is 2026-06-01"),
    ("never_calibrated", {"axes.bench.displacement.calibrated": ""}, [], "calibrated = '': missing date"),
    ("friction_beyond_force", {C[:-1]: {"friction": 1e9, "smoothing_velocity": 1e-3}}, [], "friction = 1e+09 N"),
    ("friction_is_large", {C[:-1]: {"friction": 5e5, "smoothing_velocity": 1e-3}}, [], "friction = 500000 N"),
    (
        "fixture_beyond_force",
        {C[:-1]: {"fixture_mass": 1e6, "acceleration": "accelerometer"}},
        [],
        "fixture_mass = 1e+06 kg: the inertia at limits.deceleration = 20 m/s^2 is 2e+07 N, but limits.force is",
    ),
    (
        "scale_of_length",
        {"axes.bench.similitude": {"length": 1e6, "force": 1e12}},
        [],
        "length = 1e+06: the usual range is 1/200 to 200",
    ),
    (
        "scale_of_force",
        {"axes.bench.similitude": {"force": 1e6}},
        [],
        "force = 1e+06: the usual range is 0.01 to 100",
    ),
    (
        "stiffness_hardly_known",
        {"axes.bench.stiffness_known_to": 0.9},
        [],
        "known_to = 0.9: a usual value is at most 0.3",
    ),
    ("no_servo_rate", {"servo_rate": None}, [], "servo_rate of the rig file bench: missing [Hz]"),
    ("bridge_beyond_silence", {"bridge": {"max_bridge": 0.5}}, [], "max_bridge = 0.5 s: port.silence is 0.1 s"),
    ("silence_is_long", {"port.silence": 10.0}, [], "port.silence = 10 s: this time is 1.024e+04 servo periods"),
    ("silence_is_long", {"port.silence": 10.0, "port.longest_wait": 10.0}, [], "a usual value is less than 10 s"),
    (
        "wait_is_long",
        {"port.longest_wait": 1000.0},
        [],
        "port.longest_wait = 1000 s: a usual value is at most 10 s",
    ),
    ("start_is_a_jump", {"port.start_tolerance": 0.1}, [], "for axes.story_1 = 0.1: this is a jump of 2.6 mm"),
    ("stiffness_of_another_structure", {}, ["structure.mass=503.4e6"], "= 1.176e+07 N/m: mass = 5.034e+08 kg"),
    ("stiffness_of_another_structure", {}, ["structure.restoring_force.stiffness=11.76e9"], "give 1.178e+07 N/m"),
    ("stiffness_beside_frequency", {}, ["structure.frequency=2.5"], "frequency = 2.5 Hz give 1.242e+08 N/m"),
    (
        "period_of_structure",
        {},
        ["structure={type: sdof, mass: 5e5, frequency: 25}"],
        "the first period is 0.04 s, only 4.1 integ",
    ),
    (
        "period_of_structure",
        {},
        ["structure={type: sdof, mass: 5e8, frequency: 0.01}"],
        "the first period is 100 s, but the test takes 30",
    ),
    (
        "specimen_of_another_rig",
        {},
        ["axes.story_1.specimen.stiffness=7.6e3"],
        "the stiffness in the rig file is 7.6e+06",
    ),
    (
        "specimen_without_force",
        {},
        ["axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6, damping: 0}"],
        "stiffness = 7.6 N/m: the force at the limits of stroke and velocity is only 1.9 N, but limits.force is "
        "1.8e+06 N",
    ),
    (
        "small_move_beyond_force",
        {"axes.bench.stiffness": 7.6e9},
        [],
        "= 0.001 m: the force is 7.6e+06 N with a stiffness of",
    ),
]
"""Rule, what differs in the rig file, what is set in the scenario, what it says."""
ELSEWHERE = {
    "specimen_beside_partition": "test_a_specimen_is_compared_with_the_partition",
    "force_error_beyond_force": "test_a_load_is_judged_as_a_displacement_is",
    "record_of_another_unit": "test_a_record_in_another_unit_is_told",
    "copies_that_follow": "test_copies_that_follow_are_refused_on_a_real_rig",
    "led_beyond_force_error": "test_a_real_rig_corrects_a_force_by_no_more_than_its_force_error",
    "force_loop_not_commissioned": "test_a_force_loop_of_a_real_controller_is_signed_for",
}
"""Rules with a test of their own, on another scenario (test_force_axes.py, test_copies_on_the_ladder.py)."""
BESIDE = {
    "piston_velocity_beside_limit": {"level_within_noise"},
    "specimen_without_force": {"specimen_of_another_rig"},
    "small_move_beyond_force": {"specimen_of_another_rig"},
}
"""Rules that say something of the same number."""


def rig_file(folder: Path, changes: Mapping[str, Any], rig: Mapping[str, Any] = RIG) -> Path:
    """The file of ``rig`` with ``changes`` by path; None leaves out."""
    data = deepcopy(dict(rig))
    for key, value in changes.items():
        *places, last = key.split(".")
        at = data
        for place in places:
            at = at.setdefault(place, {})
        if value is None:
            del at[last]
        else:
            at[last] = value
    file = folder / "bench.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def said(folder: Path, changes: Mapping[str, Any], sets: list[str], real: bool = True) -> dict[str, list[str]]:
    """What is said of chen_ricles_2010 on the rig, by rule."""
    found: dict[str, list[str]] = {}
    try:
        scenario = files.load("chen_ricles_2010", sets, rig=rig_file(folder, changes))
        judgement.refuse(scenario, not real)
    except ConfigError as error:
        return {REFUSED: list(error.problems)}
    for each in judgement.cautions(scenario, not real, TODAY):
        found.setdefault(each.name.partition(":")[0], []).append(each.words)
    return found


def of(name: str) -> judgement.Rule:
    return next(rule for rule in judgement.RULES if rule.name == name)


@pytest.mark.parametrize(
    ("rule", "changes", "sets", "words"), ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)]
)
def test_a_number_that_is_not_right_is_told(
    tmp_path: Path, rule: str, changes: Mapping[str, Any], sets: list[str], words: str
) -> None:
    found = said(tmp_path, changes, sets)
    key = REFUSED if of(rule).weight == REFUSED else rule
    assert [each for each in found.get(key, []) if words in each and each.endswith(of(rule).reason)], found
    assert set(found) - {key, "component"} <= BESIDE.get(rule, set()), found


def test_a_load_is_judged_as_a_displacement_is() -> None:
    name = "column_under_axial_load"
    with pytest.raises(ConfigError, match=naming("force_error", "1e+06 N", "<= 700000 N", "limits.force")):
        files.load(name, ["axes.load.limits.force_error=1e6"])


def test_a_record_in_another_unit_is_told(tmp_path: Path) -> None:
    file = tmp_path / "record.txt"
    file.write_text("".join(f"{0.01 * k:.2f} {2.86 * (k % 2):.3f}\n" for k in range(100)))
    given = f"ground_motion={{type: record, file: {file}, unit: g, scale: 0.1}}"
    (caution,) = (
        each
        for each in judgement.cautions(files.load("chen_ricles_2010", [given]))
        if each.name == "record_of_another_unit: ground_motion.unit"
    )
    assert mentions(caution.words, "peak", "28.05 m/s^2")
    meant = given.replace("scale", "accept_any_peak: true, scale")
    names = [each.name for each in judgement.cautions(files.load("chen_ricles_2010", [meant]))]
    assert "record_of_another_unit: ground_motion.unit" not in names


STATED = 13.093e6
"""N/m: what the structure of the scenario states of its first story."""
INITIAL: dict[str, tuple[dict[str, Any], float]] = {
    "computed_spring": ({"stiffness": 3e6}, 3e6),
    "kelvin_voigt": ({"stiffness": 3e6}, 3e6),
    "degrading_column": ({"stiffness": 3e6}, 3e6),
    "elastoplastic_absorber": ({"stiffness": 3e6}, 3e6),
    "softening_elastomeric": ({"stiffness": 1e6, "friction_force": 1e4, "slip_displacement": 0.01}, 2e6),
    "slipping_elastomeric": ({"stiffness": 1e6, "relaxing_stiffness": 0.0}, 1e6),
    "with_mass": ({"mass": 1.0, "specimen": {"type": "kelvin_voigt", "stiffness": 3e6}}, 3e6),
    "parallel": (
        {
            "first": {"type": "kelvin_voigt", "stiffness": 1e6},
            "second": {"type": "maxwell_damper", "parallel_stiffness": 2e6},
        },
        3e6,
    ),
}
"""Specimen -> parameters and its stiffness at small motion, N/m."""


def of_partition(sets: list[str]) -> list[str]:
    scenario = files.load("horiuchi_1996_verification", sets)
    found = judgement.cautions(scenario, True, TODAY)
    return [each.words for each in found if each.name.startswith("specimen_beside_partition")]


@pytest.mark.parametrize("kind", INITIAL)
def test_a_specimen_is_compared_with_the_partition(kind: str) -> None:
    parameters, stiffness = INITIAL[kind]
    params = yaml.safe_dump({"type": kind, **parameters}, default_flow_style=True, width=1000).strip()
    (words,) = of_partition([f"axes.story_1.specimen={params}"])
    ratio = f"{STATED / stiffness:.3g}"
    for part in ("axes.story_1.specimen", "N/m", "structure.experimental_stiffnesses", f"{STATED:g} N/m", ratio):
        assert part in words, part
    assert f"{stiffness:g} N/m" in words


@pytest.mark.parametrize(("stiffness", "doubtful"), [(10.0, True), (7e6, False), (26e6, False), (27e6, True)])
def test_a_factor_of_two_is_allowed_between_specimen_and_partition(stiffness: float, doubtful: bool) -> None:
    assert bool(of_partition([f"axes.story_1.specimen.stiffness={stiffness!r}"])) == doubtful


def test_the_stiffness_of_a_rig_file_is_compared_with_the_partition(tmp_path: Path) -> None:
    sets = ["structure={type: shear_frame, masses: [5e5], stiffnesses: [2e7], experimental_stiffnesses: [1e6]}"]
    found = said(tmp_path, {}, sets)["specimen_beside_partition"]
    assert ["axes.story_1.rig_axis.stiffness = 7.6e+06 N/m" in words for words in found] == [True, False]
    assert all("ratio of 7.6" in words for words in found)


def test_every_rule_has_a_row() -> None:
    tried = {row[0] for row in ROWS} | set(ELSEWHERE)
    names = [rule.name for rule in judgement.RULES]
    assert len(set(names)) == len(names)
    assert set(names) == tried
    assert {rule.weight for rule in judgement.RULES} == {REFUSED, CAUTION}


# -- no false word ------------------------------------------------------------------------------------------------


def test_a_good_rig_has_no_word(tmp_path: Path) -> None:
    assert said(tmp_path, {}, []) == {}


@pytest.mark.parametrize("name", files.shipped())
def test_no_shipped_scenario_has_a_word(name: str) -> None:
    for case in ("", *files.load(name).cases):
        assert judgement.cautions(files.load(name, case=case), True, TODAY) == []


MEANT = {"bench_ros2_control": ["component: port"]}
"""Names of the cautions that a shipped rig file is meant to have: its controller has no watchdog."""
RATES = {"bench_ros2_control": ["servo_rate=256", "substeps=2", "time_ratio=10"]}


@pytest.mark.parametrize("name", files.shipped(files.RIG))
def test_a_shipped_rig_file_has_the_words_that_are_meant(name: str) -> None:
    scenario = files.load(of_rig(name), RATES.get(name, []), rig=name)
    assert [each.name for each in judgement.cautions(scenario, True, TODAY)] == MEANT.get(name, [])


def test_the_rig_of_the_page_has_the_words_that_are_meant(tmp_path: Path) -> None:
    found = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found
    file = tmp_path / "page.yaml"
    file.write_text(found[1])
    scenario = files.load("chen_ricles_2010", rig=file)
    judgement.refuse(scenario, False)
    assert judgement.cautions(scenario, False, TODAY) == []


DESKTOP = {
    "axes.bench.displacement": {
        **{"unit": "mm", "range": 6.0, "scale": 0.6, "resolution": 0.0005, "noise_rms": 0.0002},
        "calibrated": "2026-03-02",
    },
    "axes.bench.force": {"unit": "N", "range": 12.0, "noise_rms": 0.002, "calibrated": "2026-03-02"},
    "axes.bench.command": {"unit": "mm", "range": 5.5},
    L[:-1]: {
        **{"stroke": 0.005, "velocity": 0.1, "force": 10.0, "deceleration": 20.0, "tracking_error": 1e-3},
        "levels": {"force": {"minimum": -8.0, "maximum": 8.0}, "piston_velocity": {"maximum": 0.12}},
    },
    "axes.bench.stiffness": 4e3,
    "axes.bench.small_move": {"displacement": 0.2e-3, "velocity": 2e-3, "force": 3.0},
    C[:-1]: {"fixture_mass": 0.1, "acceleration": "accelerometer"},
}
LARGE = {
    "axes.bench.displacement.resolution": 0.005,
    "axes.bench.force.range": 6000.0,
    "axes.bench.force.noise_rms": 1.0,
    L + "force": 5e6,
    V + "force": {"minimum": -4e6, "maximum": 4e6, "persistence": 2},
    "axes.bench.stiffness": 400e6,
    "axes.bench.small_move": {"displacement": 0.5e-3, "velocity": 5e-3, "force": 0.4e6},
    C[:-1]: {"fixture_mass": 5e3, "acceleration": "accelerometer"},
}
SLOW = {L + "velocity": 0.01, L + "deceleration": 10.0}
SIZES = {
    "10 N and 5 mm": (DESKTOP, 4e3, 10.0),
    "5 MN": (LARGE, 400e6, 26e6),
    "10 mm/s": (SLOW, 7.6e6, 503.4e3),
}


@pytest.mark.parametrize("size", SIZES)
def test_a_rig_of_any_size_has_no_word(tmp_path: Path, size: str) -> None:
    changes, stiffness, mass = SIZES[size]
    sets = [
        f"structure={{type: sdof, mass: {mass}, frequency: 0.77}}",
        f"integrator.equivalent_stiffness={stiffness}",
        f"axes.story_1.specimen={{type: kelvin_voigt, stiffness: {stiffness}, damping: 0}}",
    ]
    assert said(tmp_path, changes, sets) == {}
