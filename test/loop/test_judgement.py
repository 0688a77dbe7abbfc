# SPDX-License-Identifier: Apache-2.0
"""Tests of the plausibility rules: a case for every rule, no cautions for plausible rigs of any size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from messages import each_mentions, mentions, naming
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
D, F, L = "axes.bench.displacement.", "axes.bench.force.", "axes.bench.limits."
C, V = "axes.bench.corrections.", "axes.bench.limits.levels."
SETS = "axes.story_1.limits"
OF_WHOLE_RIG = {
    "levels.bridged_share": {"maximum": 0.05},
    "levels.expressions": {"power": {"of": "force.bench * piston_velocity.bench", "unit": "kW", "maximum": 9.0}},
    "bridge": {"max_bridge": 0.005},
    "monitor": {"energy_error_percent": 4.0, "reference_energy": 20.0, "stuck_displacement": 0.002},
}
LEVEL = {"minimum": -1e5, "maximum": 1e5, "persistence": 2, "action": "hold"}
DAMPED = {"mass": 5e5, "frequency": 0.77, "restoring_force": {"type": "linear", "stiffness": 11.7e6}}

ROWS: list[tuple[Any, ...]] = [
    (
        "velocity_beyond_stroke",
        {L + "velocity": 100.0},
        "braking distance at 20 m/s^2 is 250 m, but the stroke is +- 0.25 m",
    ),
    ("stop_of_no_actuator", {L + "deceleration": 1e6}, "deceleration = 1e+06 m/s^2: must be <= 10000 m/s^2"),
    ("stop_in_one_sample", {L + "deceleration": 5e3}, "a motion at 1.2 m/s stops within one sample of 0.977 ms"),
    ("tracking_error_beyond_stroke", {L + "tracking_error": 10.0}, "tracking_error = 10 m: must be <= 0.25 m"),
    (
        "limit_at_end_of_sensor",
        {L + "force": 2e6},
        "force = 2e+06 N: the range of the force sensor ends at 2e+06 N",
    ),
    ("limit_at_end_of_sensor", {L + "stroke": 0.26, D + "range": 260.0}, "ends at 0.26 m"),
    (
        "level_broken_at_rest",
        {V + "force_rate": {"minimum": 1e6}},
        "minimum = 1e+06 N/s: must be <= 0. The quantity is zero",
    ),
    (
        "level_broken_without_load",
        {V + "force": {"minimum": 1e5}},
        "levels.force.minimum = 100000 N: must be <= 0",
    ),
    ("level_broken_without_load", {V + "displacement": {"maximum": -0.01}}, "maximum = -0.01 m: must be >= 0"),
    ("level_only_told", {V + "force": {"maximum": 1e6, "action": "indicate"}}, "action = 'indicate'"),
    (
        "level_acts_late",
        {V + "force": {"maximum": 1e6, "persistence": 100_000}},
        "in this time, 97.7 s, the axis can move 117 m; its total stroke is 0.5 m",
    ),
    ("level_within_noise", {V + "force": {"maximum": 300.0}}, "noise and resolution alone reach 600 N"),
    ("piston_velocity_beside_limit", {V + "piston_velocity": {"maximum": 1e-6}}, "maximum = 1e-06 m/s"),
    ("piston_velocity_beside_limit", {V + "piston_velocity": {"maximum": 2.0}}, "limits.velocity is 1.2 m/s"),
    ("command_step_beyond_velocity", {V + "command_step": {"maximum": 0.1}}, "must be within +- 0.001172 m"),
    *(
        ("level_of_rig_is_weaker", {V + "force": dict(LEVEL)}, f"levels.force{part}", f"{SETS}.levels{changed}")
        for changed, part in {
            "=null": " = left out: must not be weaker than on its rig (minimum = -100000 N, maximum = 1",
            "={displacement: {maximum: 0.1}}": " = left out: must not be weaker",
            ".force.maximum=1.1e5": ": must not be weaker than on its rig (minimum = -100000 N, maximum = "
            "100000 N, persistence = 2 samples, action = hold), but is minimum = -100000 N, maximum = 110000 N, ",
            ".force.minimum=null": ": must not be weaker",
            ".force.persistence=3": ": must not be weaker",
            ".force.action=indicate": ": must not be weaker",
        }.items()
    ),
    *(
        ("level_of_rig_is_weaker", OF_WHOLE_RIG, part, changed)
        for changed, part in {
            "levels=null": "levels.bridged_share: must not be weaker than on its rig (maximum = 0.05, ",
            "levels.bridged_share.maximum=0.9": "but is maximum = 0.9, persistence = 1 sample, action = stop",
            "levels.expressions.power.maximum=1e9": "levels.expressions.power: must not be weaker",
            "levels.expressions.power.of=force.story_1*command.story_1": "levels.expressions.power: must not",
            "bridge.max_bridge=0.03": "bridge.max_bridge = 0.03 s: must be <= 0.005 s, the value of its rig",
            "monitor.energy_error_percent=null": "monitor.energy_error_percent = left out: must be <= 4 %",
            "monitor.reference_energy=1e9": "monitor.reference_energy = 1e+09 J: must be <= 20 J",
            "monitor.stuck_displacement=null": "monitor.stuck_displacement = left out: must be <= 0.002 m",
        }.items()
    ),
    ("bridge_length_beyond_bridge", {"levels.bridge_length": {"maximum": 1e6}}, "= 1e+06 samples: must be <= 10"),
    ("share_of_all", {"levels.bridged_share": {"maximum": 1.0}}, "bridged_share.maximum = 1: must be < 1"),
    (
        "disagreement_beyond_sensor",
        {V + "displacement_disagreement": {"maximum": 0.2, "channel": "second"}},
        "maximum = 0.2 m: must be within +- 0.1 m, the range of second",
    ),
    (
        "interlock_without_heartbeat",
        {
            V + "force": {"maximum": 1e6, "action": "interlock"},
            "port": {"type": "ros2_control", "joints": ["bench"]},
        },
        "the port ros2_control has no heartbeat to drop. Without a heartbeat, 'interlock' has the effect of",
        "time_ratio=10",
    ),
    (
        "error_not_bounded",
        {L + "tracking_error": None},
        "limits.tracking_error of the rig file bench: missing [m]",
    ),
    ("noise_covers_range", {F + "noise_rms": 3000.0}, "force_noise_rms = 3e+06 N: must be < "),
    ("noise_covers_range", {"auxiliary.second.noise_rms": 40.0}, "second.noise_rms = 40 mm: must be < 33.33 mm"),
    ("noise_is_large", {D + "noise_rms": 20.0}, "noise_rms = 0.02 m: the noise is 7% of the range"),
    (
        "scale_of_another_unit",
        {F + "scale": 200e3},
        "axes.story_1.rig_axis.force.scale = 200000 kN: must be 200 kN, because no converter reaches the range of "
        "2000 kN at 0.01 ",
    ),
    ("scale_of_another_unit", {F + "scale": 2000e3 / 2**15}, "must be 0.0610352 kN, because"),
    ("scale_of_another_unit", {D + "scale": 27500.0}, "at 0.01 (V, mA or counts)"),
    ("range_of_another_unit", {F + "range": 2e6}, "the range is 2e+09 N, 1.11e+03 times limits.force"),
    ("range_is_large", {F + "range": 2e5}, "the range is 2e+08 N, 111 times limits.force = 1.8e+06 N"),
    ("signal_of_no_converter", {D + "scale": 1e4}, "corresponds to 0.0275 at the port"),
    ("signal_of_no_converter", {F + "scale": 1e-6}, "corresponds to 2e+09 at the port"),
    ("calibrated_in_future", {F + "calibrated": "2999-01-01"}, "= 2999-01-01: today is 2026-06-01"),
    ("calibrated_long_ago", {F + "calibrated": "1900-01-01"}, "= 1900-01-01: this date is 126 years ago"),
    (
        "calibrated_long_ago",
        {"auxiliary.second.calibrated": "2025-01-01"},
        "= 2025-01-01: this date is 1.41 years ago",
    ),
    ("calibration_expired", {F + "expires": "2026-05-31"}, "= 2026-05-31: today is 2026-06-01"),
    ("never_calibrated", {D + "calibrated": ""}, "calibrated = '': missing date"),
    ("friction_beyond_force", {C[:-1]: {"friction": 1e9, "smoothing_velocity": 1e-3}}, "friction = 1e+09 N"),
    ("friction_is_large", {C[:-1]: {"friction": 5e5, "smoothing_velocity": 1e-3}}, "friction = 500000 N"),
    (
        "fixture_beyond_force",
        {C[:-1]: {"fixture_mass": 1e6, "acceleration": "accelerometer"}},
        "fixture_mass = 1e+06 kg: the inertial force at limits.deceleration = 20 m/s^2 is 2e+07 N, but",
    ),
    (
        "scale_of_length",
        {"axes.bench.similitude": {"length": 1e6, "force": 1e12}},
        "length = 1e+06: the usual range is 1/200 to 200",
    ),
    ("scale_of_force", {"axes.bench.similitude": {"force": 1e6}}, "force = 1e+06: the usual range is 0.01 to 100"),
    (
        "stiffness_hardly_known",
        {"axes.bench.stiffness_known_to": 0.9},
        "known_to = 0.9: typical values are at most 0.3",
    ),
    ("no_servo_rate", {"servo_rate": None}, "servo_rate of the rig file bench: missing [Hz]"),
    (
        "rate_of_another_rig",
        {},
        "servo_rate = 512 Hz: must be 1024 Hz, the rate of the controller of the rig bench",
        "servo_rate=512",
    ),
    ("bridge_beyond_silence", {"bridge": {"max_bridge": 0.5}}, "max_bridge = 0.5 s: port.silence is 0.1 s"),
    ("silence_is_long", {"port.silence": 10.0}, "port.silence = 10 s: this time is 1.024e+04 servo periods"),
    ("silence_is_long", {"port.silence": 10.0, "port.longest_wait": 10.0}, "typical values are less than 10 s"),
    ("wait_is_long", {"port.longest_wait": 1000.0}, "port.longest_wait = 1000 s: typical values are at most 10 s"),
    ("start_is_a_jump", {"port.start_tolerance": 0.1}, "for axes.story_1 = 0.1: this is a jump of 2.6 mm"),
    ("stiffness_of_another_structure", {}, "= 1.176e+07 N/m: mass = 5.034e+08 kg", "structure.mass=503.4e6"),
    ("stiffness_of_another_structure", {}, "give 1.178e+07 N/m", "structure.restoring_force.stiffness=11.76e9"),
    ("stiffness_beside_frequency", {}, "frequency = 2.5 Hz give 1.242e+08 N/m", "structure.frequency=2.5"),
    (
        "period_of_structure",
        {},
        "the first period is 0.04 s, only 4.1 integ",
        "structure={type: sdof, mass: 5e5, frequency: 25}",
    ),
    (
        "period_of_structure",
        {},
        "the first period is 100 s, but the test takes 30",
        "structure={type: sdof, mass: 5e8, frequency: 0.01}",
    ),
    (
        "specimen_of_another_rig",
        {},
        "the stiffness in the rig file is 7.6e+06",
        "axes.story_1.specimen.stiffness=7.6e3",
    ),
    (
        "specimen_without_force",
        {},
        "stiffness = 7.6 N/m: the force at the limits of stroke and velocity is only 1.9 N, but limits.force is "
        "1.8e+06 N",
        "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6, damping: 0}",
    ),
    (
        "small_move_beyond_force",
        {"axes.bench.stiffness": 7.6e9},
        "= 0.001 m: the force is 7.6e+06 N with a stiffness of",
    ),
]
"""Rule, changes of the rig file, part of the message, overrides of the scenario."""
ELSEWHERE = {
    *("specimen_beside_partition", "force_error_beyond_force", "record_of_another_unit", "copies_that_follow"),
    *("led_beyond_force_error", "force_loop_not_commissioned"),
}
"""Rules with tests of their own, here or in test_force_axes.py and test_rungs.py."""
BESIDE = {
    "piston_velocity_beside_limit": {"level_within_noise"},
    "specimen_without_force": {"specimen_of_another_rig"},
    "small_move_beyond_force": {"specimen_of_another_rig"},
}
"""Further rules that report the same number."""


def rig_file(folder: Path, changes: Mapping[str, Any], rig: Mapping[str, Any] = RIG) -> Path:
    """Write ``rig`` with ``changes`` by path; None deletes a key."""
    data = deepcopy(dict(rig))
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = data
        for name in sections:
            section = section.setdefault(name, {})
        if value is None:
            del section[last]
        else:
            section[last] = value
    file = folder / "bench.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def problems(folder: Path, changes: Mapping[str, Any], sets: list[str]) -> dict[str, list[str]]:
    """Return the problems of chen_ricles_2010 on the rig, by rule."""
    messages: dict[str, list[str]] = {}
    try:
        scenario = files.load("chen_ricles_2010", sets, rig=rig_file(folder, changes))
        judgement.refuse(scenario, False)
    except ConfigError as error:
        return {REFUSED: list(error.problems)}
    for caution in judgement.cautions(scenario, False, TODAY):
        messages.setdefault(caution.name.partition(":")[0], []).append(caution.words)
    return messages


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)])
def test_implausible_number_is_reported(tmp_path: Path, row: tuple[Any, ...]) -> None:
    name, changes, part, *sets = row
    messages = problems(tmp_path, changes, sets)
    (rule,) = (rule for rule in judgement.RULES if rule.name == name)
    key = REFUSED if rule.weight == REFUSED else name
    assert any(part in text and text.endswith(rule.reason) for text in messages.get(key, [])), messages
    assert set(messages) - {key, "component"} <= BESIDE.get(name, set()), messages


def test_level_of_rig_may_be_narrowed_and_added(tmp_path: Path) -> None:
    sets = [f"{SETS}.levels.force={{minimum: -9e4, maximum: 9e4, persistence: 1, action: stop}}"]
    sets += [f"{SETS}.levels.displacement={{minimum: -0.1, maximum: 0.1}}"]
    assert problems(tmp_path, {V + "force": dict(LEVEL)}, sets) == {}
    reported = LEVEL | {"action": "indicate", "maximum": None, "minimum": None, "warn_maximum": 1e5}
    assert problems(tmp_path, {V + "force": reported}, [f"{SETS}.levels=null"]) == {}


@pytest.mark.parametrize(
    ("sets", "key"),
    [
        ([f"{SETS}.levels=null", "axes.story_1.rig_axis.limits.levels=null"], "axes.story_1.rig_axis"),
        (["servo_rate=512", "rig_file.servo_rate=512"], "rig_file"),
        (["axes.story_1={limits: {stroke: 0.1, velocity: 1, force: 1e5, tracking_error: 0.01}}"], "rig_axis"),
        (["rig_file=null", "axes.story_1.rig_axis=null"], "rig_file"),
    ],
)
def test_override_cannot_change_the_rig_file(tmp_path: Path, sets: list[str], key: str) -> None:
    (text, *_) = problems(tmp_path, {V + "force": dict(LEVEL)}, sets)[REFUSED]
    assert mentions(text, key)


def test_whole_rig_may_be_narrowed(tmp_path: Path) -> None:
    sets = ["levels.bridged_share.maximum=0.01", "bridge.max_bridge=0.004", "monitor.energy_error_percent=3"]
    assert problems(tmp_path, OF_WHOLE_RIG, sets) == {}
    emulated = OF_WHOLE_RIG | {"port.emulator": True, "port.address": "127.0.0.1"}
    assert REFUSED not in problems(tmp_path, emulated, ["levels=null", "bridge.max_bridge=0.03"])


def test_scenario_on_a_rig_keeps_bounds_of_the_rig(tmp_path: Path) -> None:
    on_rig = files.load("chen_ricles_2010", rig=rig_file(tmp_path, OF_WHOLE_RIG))
    weaker = ["levels.bridged_share.maximum=0.9", "bridge.max_bridge=0.03", "monitor.energy_error_percent=null"]
    for scenario in (on_rig, on_rig.data()):
        with pytest.raises(ConfigError) as refused:
            files.load(scenario, weaker)
        assert len(refused.value.problems) == len(weaker)


def test_levels_of_every_real_rig_cannot_be_weakened(tmp_path: Path) -> None:
    """The scenario may replace them neither itself nor by ``--set``, unless the rig file replaces them."""
    rig, name = rig_file(tmp_path, {}), "chen_ricles_2010"
    weaker = {"bridged_share": {"maximum": 0.99, "action": "indicate"}, "parameter_at_bound": {"maximum": 1e9}}
    for scenario, sets in ((files.load(name).data() | {"levels": weaker}, []), (name, {"levels": weaker})):
        with pytest.raises(ConfigError) as refused:
            files.load(scenario, sets, rig=rig)
        assert each_mentions(refused.value.problems, ("bridged_share", "0.1"), ("parameter_at_bound", "512"))
    assert problems(tmp_path, {"levels.bridged_share": weaker["bridged_share"]}, []) == {}


def test_energy_limit_of_rig_cannot_be_weakened_by_its_reference(tmp_path: Path) -> None:
    limited, key = {"monitor": {"energy_error_percent": 5.0}}, "monitor.reference_energy"
    (text, *_) = problems(tmp_path, limited, [f"{key}=1e20"])[REFUSED]
    assert mentions(text, f"{key} = 1e+20 J", "energy_error_percent")
    assert problems(tmp_path, {}, [f"{key}=1e3"]) == {}


def test_force_error_beyond_force_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("force_error", "1e+06 N", "<= 700000 N", "limits.force")):
        files.load("column_under_axial_load", ["axes.load.limits.force_error=1e6"])


def test_record_in_other_unit_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "record.txt"
    file.write_text("".join(f"{0.01 * k:.2f} {2.86 * (k % 2):.3f}\n" for k in range(100)))
    rule, record = "record_of_another_unit: ground_motion.unit", f"type: record, file: {file}, unit: g, scale: 0.1"
    cautions, accepted = (
        judgement.cautions(files.load("chen_ricles_2010", [f"ground_motion={{{record}{more}}}"]))
        for more in ("", ", accept_any_peak: true")
    )
    (text,) = (caution.words for caution in cautions if caution.name == rule)
    assert mentions(text, "peak", "28.05 m/s^2")
    assert rule not in [caution.name for caution in accepted]


STATED = 13.093e6
"""Stiffness of the first story in the scenario, N/m."""
SPRING, DAMPER = {"type": "kelvin_voigt", "stiffness": 3e6}, {"type": "maxwell_damper", "parallel_stiffness": 2e6}
INITIAL: dict[str, tuple[dict[str, Any], float]] = {
    **dict.fromkeys(("computed_spring", "kelvin_voigt", "degrading_column"), ({"stiffness": 3e6}, 3e6)),
    "elastoplastic_absorber": ({"stiffness": 3e6}, 3e6),
    "softening_elastomeric": ({"stiffness": 1e6, "friction_force": 1e4, "slip_displacement": 0.01}, 2e6),
    "slipping_elastomeric": ({"stiffness": 1e6, "relaxing_stiffness": 0.0}, 1e6),
    "with_mass": ({"mass": 1.0, "specimen": SPRING}, 3e6),
    "parallel": ({"first": SPRING | {"stiffness": 1e6}, "second": DAMPER}, 3e6),
}
"""Specimen -> parameters, and stiffness at small motion, N/m."""


def partition_cautions(sets: list[str]) -> list[str]:
    cautions = judgement.cautions(files.load("horiuchi_1996_verification", sets), True, TODAY)
    return [caution.words for caution in cautions if caution.name.startswith("specimen_beside_partition")]


@pytest.mark.parametrize("kind", INITIAL)
def test_specimen_is_compared_with_partition(kind: str) -> None:
    parameters, stiffness = INITIAL[kind]
    params = yaml.safe_dump({"type": kind, **parameters}, default_flow_style=True, width=1000).strip()
    (text,) = partition_cautions([f"axes.story_1.specimen={params}"])
    values = f"{stiffness:g} N/m", f"{STATED:g} N/m", f"{STATED / stiffness:.3g}"
    for part in ("axes.story_1.specimen", "structure.experimental_stiffnesses", *values):
        assert part in text, part


@pytest.mark.parametrize(("stiffness", "doubtful"), [(10.0, True), (7e6, False), (26e6, False), (27e6, True)])
def test_factor_of_two_between_specimen_and_partition_is_allowed(stiffness: float, doubtful: bool) -> None:
    assert bool(partition_cautions([f"axes.story_1.specimen.stiffness={stiffness!r}"])) == doubtful


def test_rig_stiffness_is_compared_with_partition(tmp_path: Path) -> None:
    sets = ["structure={type: shear_frame, masses: [5e5], stiffnesses: [2e7], experimental_stiffnesses: [1e6]}"]
    texts = problems(tmp_path, {}, sets)["specimen_beside_partition"]
    assert ["axes.story_1.rig_axis.stiffness = 7.6e+06 N/m" in text for text in texts] == [True, False]
    assert all("ratio of 7.6" in text for text in texts)


def test_every_rule_has_a_row() -> None:
    names = [rule.name for rule in judgement.RULES]
    assert len(set(names)) == len(names)
    assert set(names) == {row[0] for row in ROWS} | ELSEWHERE
    assert {rule.weight for rule in judgement.RULES} == {REFUSED, CAUTION}


# No false cautions


@pytest.mark.parametrize("name", files.shipped())
def test_shipped_scenarios_have_no_cautions(name: str) -> None:
    for case in ("", *files.load(name).cases):
        assert judgement.cautions(files.load(name, case=case), True, TODAY) == []


EXPECTED = {"bench_ros2_control": ["component: port"]}
"""Expected cautions of a shipped rig file: its controller has no watchdog."""
RATES = {"bench_ros2_control": ["servo_rate=256", "substeps=2", "time_ratio=10"]}


@pytest.mark.parametrize("name", files.shipped(files.RIG))
def test_cautions_of_shipped_rig_files(name: str) -> None:
    scenario = files.load(of_rig(name), RATES.get(name, []), rig=name)
    assert [caution.name for caution in judgement.cautions(scenario, True, TODAY)] == EXPECTED.get(name, [])


def test_example_rig_of_page_has_no_cautions(tmp_path: Path) -> None:
    file = tmp_path / "page.yaml"
    file.write_text(re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)[1])
    scenario = files.load("chen_ricles_2010", rig=file)
    judgement.refuse(scenario, False)
    assert judgement.cautions(scenario, False, TODAY) == []


DESKTOP = {
    D[:-1]: {
        **{"unit": "mm", "range": 6.0, "scale": 0.6, "resolution": 0.0005, "noise_rms": 0.0002},
        "calibrated": "2026-03-02",
    },
    F[:-1]: {"unit": "N", "range": 12.0, "noise_rms": 0.002, "calibrated": "2026-03-02"},
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
    D + "resolution": 0.005,
    F + "range": 6000.0,
    F + "noise_rms": 1.0,
    L + "force": 5e6,
    V + "force": {"minimum": -4e6, "maximum": 4e6, "persistence": 2},
    "axes.bench.stiffness": 400e6,
    "axes.bench.small_move": {"displacement": 0.5e-3, "velocity": 5e-3, "force": 0.4e6},
    C[:-1]: {"fixture_mass": 5e3, "acceleration": "accelerometer"},
}
SLOW = {L + "velocity": 0.01, L + "deceleration": 10.0}
SIZES = {"10 N and 5 mm": (DESKTOP, 4e3, 10.0), "5 MN": (LARGE, 400e6, 26e6), "10 mm/s": (SLOW, 7.6e6, 503.4e3)}


@pytest.mark.parametrize("size", SIZES)
def test_plausible_rig_of_any_size_has_no_cautions(tmp_path: Path, size: str) -> None:
    changes, stiffness, mass = SIZES[size]
    specimen = f"axes.story_1.specimen={{type: kelvin_voigt, stiffness: {stiffness}, damping: 0}}"
    structure = f"structure={{type: sdof, mass: {mass}, frequency: 0.77}}"
    sets = [structure, f"integrator.equivalent_stiffness={stiffness}", specimen]
    assert problems(tmp_path, changes, sets) == {}


def test_plausible_rig_has_no_cautions(tmp_path: Path) -> None:
    assert problems(tmp_path, {}, []) == {}
