# SPDX-License-Identifier: Apache-2.0
"""Tests of the small move, which finds faults of a rig before it is armed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions, naming
from slow_rig import connected, coupled, independent

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import NOT_VERIFIED, VERIFIED, WRONG, AxisChecks
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure import small_move
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.motions import Steps
from rths_nodes.procedure.small_move import DECLARED, SCENARIO, AxisMove

Axis = dict[str, Any]
STIFFNESS = 2e6
SMALL = 1e-3
UNKNOWN = {"stiffness": None, "stiffness_known_to": None}
UNKNOWN_IN_FILE = ("    stiffness: 7.6e6\n    stiffness_known_to: 0.03\n", "")
NOISE = {"displacement_noise_rms": 2e-6, "force_noise_rms": 50.0}
with_and_without_noise = pytest.mark.parametrize("noisy", [False, True], ids=["", "noise"])


def scenario(axes: dict[str, Axis], rig: Axis | None = None) -> Scenario:
    """Return a scenario of springs with changed ``axes``; ``rig`` changes all axes of the rig file."""
    spring = {"type": "kelvin_voigt", "stiffness": STIFFNESS, "damping": 2e4}
    rig_axis = {
        "displacement": {"unit": "m", "range": 0.1},
        "force": {"unit": "N", "range": 200e3},
        "command": {"unit": "m", "range": 0.1},
        "limits": {"stroke": 0.1, "velocity": 0.5, "force": 150e3},
        "small_move": {"displacement": SMALL, "velocity": 4e-3, "force": 10e3},
        "stiffness": STIFFNESS,
        "stiffness_known_to": 0.03,
    }
    rig_axes = dict.fromkeys(axes, rig_axis | (rig or {}))
    return independent({name: {"specimen": spring} | axis for name, axis in axes.items()}, rig_axes)


def check_scenario(scenario: Scenario) -> dict[str, AxisChecks]:
    drive, offsets, _ = connected(scenario)
    return small_move.check_axes(drive, scenario, offsets)


def check(axes: dict[str, Axis], rig: Axis | None = None, unloaded: bool = True) -> dict[str, AxisChecks]:
    test = scenario(axes, rig)
    drive, offsets, _ = connected(test, unloaded)
    start = drive.command.copy()
    checks = small_move.check_axes(drive, test, offsets)
    np.testing.assert_array_equal(drive.command, start)  # every move returns
    return checks


def findings(checks: dict[str, AxisChecks]) -> str:
    return " | ".join(finding for axis in checks.values() for finding in axis.findings)


def with_noise(axes: dict[str, Axis], noisy: bool = True) -> dict[str, Axis]:
    if not noisy:
        return axes
    return {name: axis | {"sensors": NOISE | axis.get("sensors", {})} for name, axis in axes.items()}


HEALTHY: list[Axis] = [
    {"actuator": {"type": "pure_delay", "delay": 0.01}},
    {"actuator": {"type": "first_order", "alpha": 10.0}},
    {"actuator": {"type": "second_order"}},
    {"actuator": {"type": "servo_hydraulic"}},
    {"output": {"start": 2e-3, "offset": -1e-3}},
    {"output": {"static_stiffness": 20e6}},
    {"output": {"lost_motion": 0.2e-3}},
    {"output": {"resolution": 5e-6}, "sensors": {"displacement_resolution": 5e-6, "force_resolution": 50.0}},
    {"sensors": {"displacement_offset": 1e-3, "force_offset": -500.0, "force_delay": 5}},
    {"sensors": {"second": {}}},
    {"sensors": {"force_drift": 5.0, "displacement_drift": 1e-7}},
]


@pytest.mark.parametrize("axis", HEALTHY, ids=str)
@with_and_without_noise
def test_healthy_rig_has_no_findings(axis: Axis, noisy: bool) -> None:
    for result in check(with_noise({"a": axis, "b": {}}, noisy)).values():
        assert result.findings == []
        verdicts = (result.displacement_sign, result.force_sign, result.displacement_scale, result.force_scale)
        assert verdicts == (VERIFIED,) * 4
        assert result.stiffness == pytest.approx(STIFFNESS, rel=0.02)
        assert (result.expected, result.low, result.high) == (STIFFNESS, 0.97 * STIFFNESS, 1.03 * STIFFNESS)


FAULTS: list[tuple[Axis, str]] = [
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
    ({"sensors": {"second": {"scale": -1.0}}}, "axes.a: the second displacement sensor.*has the wrong sign"),
    ({"specimen": {"type": "kelvin_voigt", "stiffness": 4e7}}, "axes.a: the small move was aborted after"),
]


@pytest.mark.parametrize(("axis", "finding"), FAULTS, ids=[str(axis) for axis, _ in FAULTS])
@pytest.mark.parametrize(
    ("axes", "noisy"), [(("a",), False), (("a",), True), (("b", "a"), True)], ids=["one", "noise", "second of two"]
)
def test_fault_is_found(axis: Axis, finding: str, axes: tuple[str, ...], noisy: bool) -> None:
    checks = check(with_noise({name: axis if name == "a" else {} for name in axes}, noisy))
    assert re.search(finding, findings(checks)), findings(checks)
    if "b" in axes:
        assert checks["b"].findings == []


@pytest.mark.parametrize("where", ["sensors", "output"])
@with_and_without_noise
def test_swapped_axes_are_found(where: str, noisy: bool) -> None:
    axes = {"a": {where: {"cabled_to": "b"}}, "b": {where: {"cabled_to": "a"}}}
    checks = check(with_noise(axes, noisy))
    for result in checks.values():
        assert "axes.a and axes.b are swapped" in result.findings[0]
    assert mentions(checks["b"].findings[1], "axes.b", "moved")


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
def test_wrong_displacement_stops_move_early(axis: Axis) -> None:
    test = scenario({"a": axis})
    drive, offsets, _ = connected(test)
    sent = []
    write = drive.port.write

    def watched(command: Any) -> None:
        sent.append(float(np.abs(command.command).max()))
        write(command)

    drive.port.write = watched  # type: ignore[method-assign]
    assert small_move.check_axes(drive, test, offsets)["a"].findings
    assert 0.0 < max(sent) <= 0.5 * SMALL * (1.0 + 1e-9)


@with_and_without_noise
def test_untared_load_cell_is_reported(noisy: bool) -> None:
    axes = with_noise({"a": {"sensors": {"force_offset": 2000.0}}, "b": {}}, noisy)
    checks = check(axes, unloaded=False)
    assert mentions(checks["a"].remarks[0], "axes.a", "cell")
    assert mentions(checks["a"].remarks[0], "1.00%", "range") or noisy
    assert checks["b"].remarks == []
    assert findings(check(axes, unloaded=True)) == ""


def test_stiffness_known_worse_than_3_percent_verifies_no_scale() -> None:
    for rig in ({"stiffness_known_to": 0.2}, {"stiffness_known_to": None}, UNKNOWN):
        result = check({"a": {"sensors": {"force_scale": 1.1}}}, rig)["a"]
        assert result.findings == []
        assert (result.displacement_sign, result.force_sign) == (VERIFIED, VERIFIED)
        assert (result.displacement_scale, result.force_scale) == (NOT_VERIFIED, NOT_VERIFIED)
        assert mentions(result.remarks, "scale", "verified")


def test_second_sensor_verifies_only_displacement() -> None:
    result = check({"a": {"sensors": {"second": {"offset": 1e-3}, "force_scale": 1.1}}}, UNKNOWN)["a"]
    assert (result.displacement_scale, result.force_scale, result.findings) == (VERIFIED, NOT_VERIFIED, [])
    result = check({"a": {"sensors": {"second": {}, "force_scale": 1.1}}})["a"]
    assert (result.displacement_scale, result.force_scale) == (VERIFIED, WRONG)


def test_second_sensor_without_value_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = small_move.judge

    def judged(rig: Any, first: Any, moves: Any, stopped: str) -> dict[str, AxisChecks]:
        for stand in moves[0].stands:
            stand.auxiliary[:] = np.nan
        return judge(rig, first, moves, stopped)

    monkeypatch.setattr(small_move, "judge", judged)
    result = check({"a": {"sensors": {"second": {}}}}, UNKNOWN)["a"]
    assert result.displacement_scale == NOT_VERIFIED


def test_sign_of_dashpot_is_found_in_motion() -> None:
    dashpot = {"type": "kelvin_voigt", "stiffness": 0.0, "damping": 2e5}
    result = check(with_noise({"a": {"specimen": dashpot}}), UNKNOWN)["a"]
    assert (result.findings, result.force_sign, result.force_scale) == ([], VERIFIED, NOT_VERIFIED)
    result = check(with_noise({"a": {"specimen": dashpot, "sensors": {"force_scale": -1.0}}}), UNKNOWN)["a"]
    assert result.force_sign == WRONG


def test_rig_at_end_of_stroke_moves_inwards() -> None:
    limits = {"limits": {"stroke": 0.1, "velocity": 0.5, "force": 2e5}}
    result = check({"a": {"output": {"start": 0.0995}}}, limits)["a"]
    assert (result.displacement_sign, result.force_sign) == (VERIFIED, VERIFIED)


def test_trip_during_small_move_is_a_finding() -> None:
    limits = {"limits": {"stroke": 0.1, "velocity": 0.5, "force": 900.0}}
    move = {"small_move": {"displacement": SMALL, "velocity": 4e-3, "force": 900.0}}
    checks = check_scenario(scenario({"a": {}, "b": {}}, limits | move))
    assert mentions(checks["a"].findings[0], "axes.a", "axes.a.limits.force", "measured")
    assert each_mentions(checks["b"].findings, ("axes.b", "axes.a"))


def test_stop_before_small_move_of_axis_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    test = scenario({"a": {}, "b": {}})
    drive, offsets, _ = connected(test)
    moved = small_move.SmallMoves._move

    def stopped(moves: small_move.SmallMoves, move: AxisMove) -> Steps[None]:
        if move.index == 1:
            drive.stop("enough")
        return moved(moves, move)

    monkeypatch.setattr(small_move.SmallMoves, "_move", stopped)
    checks = small_move.check_axes(drive, test, offsets)
    assert checks["a"].findings == []
    assert each_mentions(checks["b"].findings, ("axes.b", "enough"))


def test_small_move_needs_bounds_and_low_noise() -> None:
    test = scenario({"a": {}}, {"small_move": None})
    drive, offsets, _ = connected(test)
    samples = drive.measured.sample
    with pytest.raises(ConfigError, match=naming("axes.a.small_move", "file", "missing")):
        small_move.check_axes(drive, test, offsets)
    test = scenario({"a": {"sensors": {"displacement_noise_rms": 1e-4}}})
    drive, offsets, _ = connected(test)
    with pytest.raises(ConfigError, match=naming("small_move.displacement", "0.001 m")):
        small_move.check_axes(drive, test, offsets)
    assert drive.measured.sample == samples


@pytest.mark.parametrize("fault", [{}, {"sensors": {"force_scale": 1.1}}], ids=["", "scale"])
def test_filtered_force_gives_same_result(fault: Axis) -> None:
    """Axes are compared at rest, where a filter has no delay."""
    low_pass = {"feedback_filter": {"order": 2, "cutoff": 20.0, "delay": 0.011}}
    plain, filtered = (check({"a": fault, "b": {}}, rig)["a"] for rig in (None, low_pass))
    assert filtered.stiffness == pytest.approx(plain.stiffness, rel=1e-3)
    assert (filtered.force_scale, bool(filtered.findings)) == (plain.force_scale, bool(fault))


# -- Coupled axes: the frame of marths_2023


def check_frame(*changes: str) -> dict[str, AxisChecks]:
    return check_scenario(coupled(changes, small_move={"displacement": 0.5e-3, "velocity": 4e-3, "force": 20e3}))


def test_coupled_axes_have_no_findings() -> None:
    """Each axis has the stiffness that it shows while the other is held."""
    checks = check_frame()
    assert findings(checks) == ""
    assert all(result.force_sign == result.displacement_sign == VERIFIED for result in checks.values())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("axes.actuator_1.sensors.force_scale=-1", ("axes.actuator_1", "sign", "force")),
        ("axes.actuator_2.sensors.displacement_scale=-1", ("axes.actuator_2", "sign", "displacement")),
        ("axes.actuator_2.sensors.force_dead=0", ("axes.actuator_2", "dead")),
    ],
)
def test_fault_of_coupled_axis_is_found(change: str, parts: tuple[str, ...]) -> None:
    assert mentions(findings(check_frame(change)), *parts)


def test_swapped_coupled_axes_are_found() -> None:
    cables = [f"axes.actuator_{a}.sensors.cabled_to=actuator_{b}" for a, b in ((1, 2), (2, 1))]
    assert "axes.actuator_1 and axes.actuator_2 are swapped" in findings(check_frame(*cables))


# -- Comparison with the stiffness that the scenario expects


def check_walk(w):
    w.refer()
    return w.session.check()["story_1"]


@pytest.mark.parametrize(
    ("wrong", "ratio"),
    [
        ("sensors.force_scale=0.1", 0.1),
        ("sensors.force_scale=2", 2.0),
        ("sensors.displacement_scale=0.5", 2.0),
        ("sensors.displacement_scale=1.2", 1.0 / 1.2),
        ("sensors.force_scale=1", 1.0),
    ],
)
def test_unexpected_stiffness_needs_signature(walk, wrong, ratio):
    w = walk(f"axes.story_1.{wrong}", rig=UNKNOWN_IN_FILE)
    result = check_walk(w)
    assert result.ratios == {SCENARIO: pytest.approx(ratio, rel=0.02)}
    reason = f"the stiffness of story_1 is {ratio:.2f} times the scenario's"
    assert sum(reason in remark for remark in result.remarks) == 1
    if wrong == "sensors.displacement_scale=0.5":
        static = "the axis moves by 50% of its command. The control loop has a static error, or the scale of the "
        assert any(static in remark for remark in result.remarks)
    if 0.67 <= ratio <= 1.5:
        assert result.unlike == []
        return
    assert result.unlike == [reason]
    w.session.sign_for("scale of displacement of story_1 not verified", "A. Nyone")
    w.session.sign_for("scale of force of story_1 not verified", "A. Nyone")
    with pytest.raises(ConfigError, match=naming("open item")):
        w.session.sign_for("story_1", "A. Nyone")
    with pytest.raises(ActRefused, match=naming(reason, "verify")):
        w.session.position()
    (item,) = w.session.clearance.unsigned()
    assert item.startswith("stiffness of story_1")
    w.session.sign_for(item, "A. Nyone")
    assert mentions(w.record.deviations, reason, "Nyone")
    w.session.position()


def test_rate_dependent_specimen_is_compared_at_rest(walk):
    """At rest it is as stiff as its parallel spring: 2e6 of 10e6 N/m."""
    maxwell = "{type: maxwell_damper, damping: 0.3e6, series_stiffness: 8.0e6, parallel_stiffness: 2.0e6}"
    result = check_walk(walk(f"axes.story_1.specimen={maxwell}", rig=UNKNOWN_IN_FILE))
    assert (result.ratios, result.unlike) == ({SCENARIO: pytest.approx(1.0, rel=0.02)}, [])
    assert result.stiffness < 2.5e6


def test_missing_expectation_is_reported(walk):
    w = walk(rig=UNKNOWN_IN_FILE).refer()
    # once the simulator is built, the scenario lacks the specimen, as one of a real rig may
    object.__setattr__(w.session.scenario.axes["story_1"], "specimen", None)
    result = w.session.check()["story_1"]
    assert (result.ratios, result.unlike) == ({}, [])
    assert mentions(result.remarks, "compared", "describes")


def test_specimen_without_static_stiffness_is_not_compared(walk):
    maxwell = "{type: maxwell_damper, damping: 0.3e6, series_stiffness: 8.0e6}"
    result = check_walk(walk(f"axes.story_1.specimen={maxwell}", rig=UNKNOWN_IN_FILE))
    assert (result.stiffness, result.ratios, result.unlike) == (None, {}, [])
    assert mentions(result.remarks, "force", "motion")
    assert not mentions(result.remarks, "compared", "describes")


def test_stiffness_assumed_by_integrator_is_compared(walk):
    client = "integrator={type: remote, experimental_stiffness: [[0.76e6]]}"
    result = check_walk(walk(client, "structure=null", "ground_motion={type: none}", rig=UNKNOWN_IN_FILE))
    assert result.ratios[DECLARED] == pytest.approx(10.0, rel=0.02)
    texts = [text.removeprefix("the ") for text in result.unlike]
    assert texts == [f"stiffness of story_1 is {result.ratios[DECLARED]:.2f} times {DECLARED}"]
