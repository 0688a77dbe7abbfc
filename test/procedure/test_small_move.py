# SPDX-License-Identifier: Apache-2.0
"""The small move finds what is wrong with a rig, before it is armed, in the words that an operator needs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import NOT_VERIFIED, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile, on_rig
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure import small_move
from rths_nodes.procedure.clearance import Offsets
from rths_nodes.procedure.drive import RigDrive

STIFFNESS = 2e6
WAY = 1e-3
UNKNOWN = {"stiffness": None, "stiffness_known_to": None}
WAVE = {"type": "sine", "amplitude": 0.01, "frequency": 1.0}
NOISE = {"displacement_noise_rms": 2e-6, "force_noise_rms": 50.0}


def scenario(axes: dict[str, dict[str, Any]], rig: dict[str, Any] | None = None, **more: Any) -> Scenario:
    """Axes with what is wrong with each; ``rig`` changes what the rig file says of all."""
    spring = {"type": "kelvin_voigt", "stiffness": STIFFNESS, "damping": 2e4}
    known: dict[str, Any] = {
        "displacement": {"unit": "m", "range": 0.1},
        "force": {"unit": "N", "range": 200e3},
        "command": {"unit": "m", "range": 0.1},
        "limits": {"stroke": 0.1, "velocity": 0.5, "force": 150e3},
        "small_move": {"displacement": WAY, "velocity": 4e-3, "force": 10e3},
        "stiffness": STIFFNESS,
        "stiffness_known_to": 0.03,
    }
    what = {
        "version": 1,
        "name": "moved",
        "servo_rate": 256.0,
        "substeps": 1,
        "duration": 1.0,
        "integrator": {
            "type": "prescribed",
            "displacement": {"type": "sine", "amplitude": 0.01, "frequency": 1.0},
        },
        "compensator": {"type": "none"},
        "axes": {
            name: {"actuator": {"type": "first_order", "alpha": 29.0}, "specimen": spring} | wrong
            for name, wrong in axes.items()
        },
    }
    file = {
        "version": 1,
        "name": "bench",
        "port": {"type": "simulator", "transport_samples": 1},
        "axes": {name: known | (rig or {}) for name in axes},
    }
    return from_data(Scenario, on_rig(what | more, from_data(RigFile, file)))


def connected(scenario: Scenario, unloaded: bool = True) -> tuple[RigDrive, Offsets]:
    """The rig, held, and its offsets."""
    heard: list[Measurement] = []
    drive = RigDrive(Assembly(scenario).port, scenario, False, on_measurement=heard.append)
    drive.connect()
    for _ in range(128):
        drive.tick()
    offsets = Offsets.of(tuple(scenario.axes), heard, drive.port.active_command, drive.command, "", 0.5)
    return drive, replace(offsets, unloaded=unloaded, confirmed=True)


def check(
    axes: dict[str, dict[str, Any]], rig: dict[str, Any] | None = None, unloaded: bool = True, **more: Any
) -> dict[str, AxisChecks]:
    test = scenario(axes, rig, **more)
    drive, offsets = connected(test, unloaded)
    start = drive.command.copy()
    found = small_move.check_axes(drive, test, offsets)
    np.testing.assert_array_equal(drive.command, start)  # wherever the move ended, it leads back
    return found


def words(found: dict[str, AxisChecks]) -> str:
    return " | ".join(each for axis in found.values() for each in axis.findings)


def with_noise(axes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: axis | {"sensors": NOISE | axis.get("sensors", {})} for name, axis in axes.items()}


ACTUATORS = (
    {"type": "pure_delay", "delay": 0.01},
    {"type": "first_order", "alpha": 10.0},
    {"type": "second_order"},
    {"type": "servo_hydraulic"},
)
HEALTHY: list[dict[str, Any]] = [
    *({"actuator": actuator} for actuator in ACTUATORS),
    {"output": {"start": 2e-3, "offset": -1e-3}},
    {"output": {"static_stiffness": 20e6}},
    {"output": {"lost_motion": 0.2e-3}},
    {"output": {"resolution": 5e-6}, "sensors": {"displacement_resolution": 5e-6, "force_resolution": 50.0}},
    {"sensors": {"displacement_offset": 1e-3, "force_offset": -500.0, "force_delay": 5}},
    {"sensors": {"second": {}}},
    {"sensors": {"force_drift": 5.0, "displacement_drift": 1e-7}},
]


@pytest.mark.parametrize("axis", HEALTHY, ids=[str(each) for each in HEALTHY])
@pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])
def test_nothing_is_found_on_a_healthy_rig(axis: dict[str, Any], noisy: bool) -> None:
    axes = {"a": axis, "b": {}}
    found = check(with_noise(axes) if noisy else axes)
    for each in found.values():
        assert each.findings == []
        verdicts = (each.displacement_sign, each.force_sign, each.displacement_scale, each.force_scale)
        assert verdicts == (VERIFIED,) * 4
        assert each.stiffness == pytest.approx(STIFFNESS, rel=0.02)
        assert (each.expected, each.low, each.high) == (STIFFNESS, 0.97 * STIFFNESS, 1.03 * STIFFNESS)


WRONG_RIGS: list[tuple[dict[str, Any], str]] = [
    ({"sensors": {"force_scale": -1.0}}, "axes.a: the force has the wrong sign"),
    (
        {"sensors": {"displacement_scale": -1.0}},
        "axes.a: the displacement has the wrong sign.*check the sign of displ",
    ),
    ({"output": {"scale": -1.0}}, "axes.a: the displacement has the wrong sign.*check the sign of command"),
    ({"sensors": {"displacement_dead": 1e-4}}, "axes.a: the displacement sensor does not respond"),
    ({"sensors": {"force_dead": 10.0}}, "axes.a: the load cell does not respond.*expected change: [12]"),
    (
        {"sensors": {"displacement_dead": 0.0, "force_dead": 0.0}},
        "axes.a: neither the displacement nor the force changes",
    ),
    ({"output": {"lost_motion": 5e-3}}, "axes.a: neither the displacement nor the force changes"),
    ({"sensors": {"force_scale": 1.1}}, r"axes.a: the stiffness is 2.\S+ N/m and differs by \+\S+% from"),
    ({"sensors": {"force_scale": 0.9}}, r"axes.a: the stiffness is 1.\S+ N/m and differs by -\S+% from"),
    ({"sensors": {"displacement_scale": 1.1}}, r"axes.a: the stiffness is 1.\S+ N/m and differs by -\S+% from"),
    ({"sensors": {"displacement_scale": 0.9}}, r"axes.a: the stiffness is 2.\S+ N/m and differs by \+\S+% from"),
    ({"sensors": {"displacement_scale": 1000.0}}, "axes.a: the axis moves by .* scale of the displacement"),
    (
        {"sensors": {"displacement_scale": 0.01}},
        "axes.a: (neither the displacement nor the force changes|the displacement sensor does not respond)",
    ),
    ({"sensors": {"second": {"scale": 1.1}}}, "axes.a: the second displacement sensor.*differ by -9.1%"),
    (
        {"sensors": {"second": {"scale": -1.0}}},
        "axes.a: the second displacement sensor.*has the wrong sign",
    ),
    ({"specimen": {"type": "kelvin_voigt", "stiffness": 4e7}}, "axes.a: the small move was aborted after"),
]


@pytest.mark.parametrize(("axis", "told"), WRONG_RIGS, ids=[str(each) for each, _ in WRONG_RIGS])
@pytest.mark.parametrize(
    ("axes", "noisy"), [(("a",), False), (("a",), True), (("b", "a"), True)], ids=["one", "noise", "second of two"]
)
def test_what_is_wrong_is_told(axis: dict[str, Any], told: str, axes: tuple[str, ...], noisy: bool) -> None:
    rigs: dict[str, dict[str, Any]] = {name: axis if name == "a" else {} for name in axes}
    found = check(with_noise(rigs) if noisy else rigs)
    assert re.search(told, words(found)), words(found)
    if "b" in axes and axes[0] == "b":
        assert found["b"].findings == []


@pytest.mark.parametrize("where", ["sensors", "output"])
@pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])
def test_swapped_axes_are_told_and_nothing_goes_on(where: str, noisy: bool) -> None:
    axes: dict[str, dict[str, Any]] = {"a": {where: {"cabled_to": "b"}}, "b": {where: {"cabled_to": "a"}}}
    found = check(with_noise(axes) if noisy else axes)
    for each in found.values():
        assert "axes.a and axes.b are swapped" in each.findings[0]
    assert mentions(found["b"].findings[1], "axes.b", "moved")


@pytest.mark.parametrize(
    "axis",
    [
        {"sensors": {"displacement_scale": -1.0}},
        {"output": {"scale": -1.0}},
        {"sensors": {"displacement_dead": 0.0}},
        {"sensors": {"displacement_dead": 0.0}, "output": {"scale": -1.0}},
    ],
    ids=str,
)
def test_a_wrong_displacement_stops_the_move_within_a_part_of_its_way(axis: dict[str, Any]) -> None:
    test = scenario({"a": axis})
    drive, offsets = connected(test)
    furthest = 0.0
    write = drive.port.write

    def seen(command: Any) -> None:
        nonlocal furthest
        furthest = max(furthest, float(np.abs(command.command).max()))
        write(command)

    drive.port.write = seen  # type: ignore[method-assign]
    found = small_move.check_axes(drive, test, offsets)
    assert found["a"].findings
    assert 0.0 < furthest <= 0.5 * WAY * (1.0 + 1e-9)


@pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])
def test_an_untared_load_cell_is_told(noisy: bool) -> None:
    axes: dict[str, dict[str, Any]] = {"a": {"sensors": {"force_offset": 2000.0}}, "b": {}}
    axes = with_noise(axes) if noisy else axes
    found = check(axes, unloaded=False)
    assert mentions(found["a"].remarks[0], "axes.a", "cell")
    assert mentions(found["a"].remarks[0], "1.00%", "range") or noisy
    assert found["b"].remarks == []
    assert words(check(axes, unloaded=True)) == ""


def test_a_stiffness_known_worse_than_3_percent_verifies_no_scale() -> None:
    for rig in (
        {"stiffness_known_to": 0.2},
        {"stiffness_known_to": None},
        {"stiffness": None, "stiffness_known_to": None},
    ):
        found = check({"a": {"sensors": {"force_scale": 1.1}}}, rig)["a"]
        assert found.findings == []
        assert (found.displacement_sign, found.force_sign) == (VERIFIED, VERIFIED)
        assert (found.displacement_scale, found.force_scale) == (NOT_VERIFIED, NOT_VERIFIED)
        assert any(mentions(each, "scale", "verified") for each in found.remarks)


def test_a_second_sensor_verifies_the_displacement_alone() -> None:
    found = check({"a": {"sensors": {"second": {"offset": 1e-3}, "force_scale": 1.1}}}, UNKNOWN)["a"]
    assert (found.displacement_scale, found.force_scale, found.findings) == (VERIFIED, NOT_VERIFIED, [])
    found = check({"a": {"sensors": {"second": {}, "force_scale": 1.1}}})["a"]
    assert (found.displacement_scale, found.force_scale) == (VERIFIED, WRONG)


def test_a_dashpot_has_its_sign_in_motion() -> None:
    dashpot = {"type": "kelvin_voigt", "stiffness": 0.0, "damping": 2e5}
    found = check(with_noise({"a": {"specimen": dashpot}}), UNKNOWN)["a"]
    assert (found.findings, found.force_sign, found.force_scale) == ([], VERIFIED, NOT_VERIFIED)
    found = check(with_noise({"a": {"specimen": dashpot, "sensors": {"force_scale": -1.0}}}), UNKNOWN)["a"]
    assert found.force_sign == WRONG


def test_a_rig_at_the_end_of_its_stroke_moves_inwards() -> None:
    wide = {"limits": {"stroke": 0.1, "velocity": 0.5, "force": 2e5}}
    found = check({"a": {"output": {"start": 0.0995}}}, wide)
    assert (found["a"].displacement_sign, found["a"].force_sign) == (VERIFIED, VERIFIED)


def test_a_trip_under_way_bars_the_way() -> None:
    tight = {"limits": {"stroke": 0.1, "velocity": 0.5, "force": 900.0}}
    move = {"small_move": {"displacement": WAY, "velocity": 4e-3, "force": 900.0}}
    test = scenario({"a": {}, "b": {}}, tight | move)
    drive, offsets = connected(test)
    found = small_move.check_axes(drive, test, offsets)
    assert mentions(found["a"].findings[0], "axes.a", "axes.a.limits.force", "measured")
    assert each_mentions(found["b"].findings, ("axes.b", "axes.a"))


def test_axes_of_one_specimen_have_the_stiffness_with_the_others_held() -> None:
    """The frame of marths_2023 couples its actuators; nothing is wrong, and nothing is found."""
    test = coupled()
    drive, offsets = connected(test)
    found = small_move.check_axes(drive, test, offsets)
    assert words(found) == ""
    assert all(each.force_sign == each.displacement_sign == VERIFIED for each in found.values())


def coupled(changes: list[str] | None = None) -> Scenario:
    """marths_2023 on a rig file."""
    known = {
        "displacement": {"unit": "m", "range": 0.03},
        "force": {"unit": "N", "range": 60e3},
        "command": {"unit": "m", "range": 0.02847},
        "limits": {"stroke": 0.0281, "velocity": 10.0, "force": 60e3},
        "small_move": {"displacement": 0.5e-3, "velocity": 4e-3, "force": 20e3},
    }
    plain = files.load("marths_2023", changes or []).data()
    rig = {"version": 1, "name": "frame", "port": {"type": "simulator", "transport_samples": 1}}
    file = from_data(RigFile, rig | {"axes": dict.fromkeys(plain["axes"], known)})
    return from_data(Scenario, on_rig(plain, file))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(
            "axes.actuator_1.sensors.force_scale=-1",
            ("axes.actuator_1", "sign", "force"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "axes.actuator_2.sensors.displacement_scale=-1",
            ("axes.actuator_2", "sign", "displacement"),
            marks=pytest.mark.soak,
        ),
        pytest.param("axes.actuator_2.sensors.force_dead=0", ("axes.actuator_2", "dead"), marks=pytest.mark.soak),
    ],
)
def test_what_is_wrong_with_a_coupled_rig_is_told(change: str, told: tuple[str, ...]) -> None:
    test = coupled([change])
    drive, offsets = connected(test)
    assert mentions(words(small_move.check_axes(drive, test, offsets)), *told)


def test_swapped_axes_of_a_coupled_rig_are_told() -> None:
    cables = [f"axes.actuator_{one}.sensors.cabled_to=actuator_{other}" for one, other in ((1, 2), (2, 1))]
    test = coupled(cables)
    drive, offsets = connected(test)
    assert "axes.actuator_1 and axes.actuator_2 are swapped" in words(small_move.check_axes(drive, test, offsets))


def test_nothing_moves_without_bounds_or_beside_too_much_scatter() -> None:
    test = scenario({"a": {}}, {"small_move": None})
    drive, offsets = connected(test)
    samples = drive.measured.sample
    with pytest.raises(ConfigError, match=naming("axes.a.small_move", "file", "missing")):
        small_move.check_axes(drive, test, offsets)
    test = scenario({"a": {"sensors": {"displacement_noise_rms": 1e-4}}})
    drive, offsets = connected(test)
    with pytest.raises(ConfigError, match=naming("small_move.displacement", "0.001 m")):
        small_move.check_axes(drive, test, offsets)
    assert drive.measured.sample == samples


@pytest.mark.parametrize("wrong", [{}, {"sensors": {"force_scale": 1.1}}], ids=["", "scale"])
def test_a_filtered_force_shows_the_same(wrong: dict[str, Any]) -> None:
    """The axes rest where they are compared: a filter delays nothing there."""
    low = {"feedback_filter": {"order": 2, "cutoff": 20.0, "delay": 0.011}}
    plain, found = (check({"a": wrong, "b": {}}, rig) for rig in (None, low))
    assert found["a"].stiffness == pytest.approx(plain["a"].stiffness, rel=1e-3)
    assert (found["a"].force_scale, bool(found["a"].findings)) == (plain["a"].force_scale, bool(wrong))
