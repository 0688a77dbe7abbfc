# SPDX-License-Identifier: Apache-2.0
"""Tests of a controller as FMU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fmus import changed, of_text
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

pytestmark = pytest.mark.usefixtures("fmi")

CONTROLLER = """
#include <math.h>
#include <stdlib.h>

#include "model.h"

/* u = r + tau v + c a + k sum (previous r - y) - f / stiffness, for two axes */
enum { R, V, A, Y, F, R2, V2, A2, Y2, F2, TAU, C, K, STIFFNESS, U, U2, SUM, SUM2, BEFORE, BEFORE2, SAMPLES };

int model_start(double *v) { return 0; }

int model_step(double *v, double t, double h)
{
    for (int i = 0; i < 2; i++) {
        const double *in = v + 5 * i;
        v[SUM + i] += v[K] * (v[BEFORE + i] - in[Y]);
        v[BEFORE + i] = in[R];
        v[U + i] = in[R] + v[TAU] * in[V] + v[C] * in[A] + v[SUM + i] - in[F] / v[STIFFNESS];
    }
    v[SAMPLES] += 1.0;
    FAULT;
    return 0;
}
"""
UNITS = ("m", "m/s", "m/s^2", "m", "N")
TAU = 0.0273


def controller(fault: str = "", version: int = 2, units: Sequence[str] = UNITS, command: str = "m") -> Path:
    inputs = [
        (f"{noun}{axis}", "input", unit) for axis in ("", "2") for noun, unit in zip("rvayf", units, strict=True)
    ]
    parameters = [(name, "parameter", "", start) for name, start in (("tau", TAU), ("c", 0.0), ("k", 0.0))]
    stiffness = ("stiffness", "parameter", "", 1e30)
    outputs = [("u", "output", command), ("u2", "output", command), ("sum", "output", "m"), ("sum2", "local")]
    rest = [("before", "local"), ("before2", "local"), ("samples", "output")]
    variables = (*inputs, *parameters, stiffness, *outputs, *rest)
    return of_text("controller", CONTROLLER, variables, version, (f"-DFAULT={fault}",))


AXIS = "target: r, velocity: v, acceleration: a, measured: y, force: f, command: u"


def as_fmu(file: Path, extra: str = "", axis: str = AXIS) -> list[str]:
    data = f"{{type: fmu, file: {file}, axes: {{story_1: {{{axis}}}}}{extra}}}"
    return ["duration=2", f"compensator={data}"]


def run(overrides: Sequence[str], **options: Any) -> Any:
    result = hosts.run("chen_ricles_2010", overrides, **options)
    assert result.outcome == "finished", result.reason
    return rths_nodes.read(result.recording) if "record" in options else result.read()


@pytest.mark.parametrize("version", [2, 3])
def test_fmu_feedforward_equals_built_in_bitwise(version: int) -> None:
    expected = run(["duration=2", f"compensator={{type: derivative_feedforward, delay: {TAU}}}"])
    result = run(as_fmu(controller(version=version)))
    assert np.ptp(expected.command) > 1e-3
    assert np.array_equal(result.command, expected.command)


def test_inputs_of_two_axes_are_assigned_by_name() -> None:
    second = AXIS.replace(",", "2,").replace("command: u", "command: u2")
    text = f"{{type: fmu, file: {controller()}, axes: {{a: {{{AXIS}}}, b: {{{second}}}}}, shown: [sum, samples], "
    parameters: dict[str, float] = {"c": 1e-4, "k": 0.01, "stiffness": 1e6}
    data = yaml.safe_load(f"{text} parameters: {parameters}}}")
    cls = registry.load("compensator", "fmu")
    compensator = cls(from_data(cls.Params, {k: v for k, v in data.items() if k != "type"}), 1e-3, 2)
    rng = np.random.default_rng(1)
    total, previous = np.zeros(2), np.zeros(2)
    with closing(compensator):
        compensator.open()
        for sample in range(1, 6):
            x, v, a, y, f = rng.normal(size=(5, 2)) * np.array([[1.0], [1.0], [1.0], [1.0], [1e3]])
            rows = [row.tolist() for row in (x, v, a, y, f)]
            result = compensator.commands(*rows, False, False)
            total, previous = total + 0.01 * (previous - y), x
            np.testing.assert_allclose(result, x + TAU * v + 1e-4 * a + total - f / 1e6, rtol=1e-13)
            assert compensator.state() == [pytest.approx(total[0], rel=1e-13), sample]
    assert compensator.state_names == ("sum", "samples")
    assert compensator.state_units == {"sum": "m"}


def test_lead_extrapolates_target() -> None:
    expected = run(["duration=2", "compensator={type: derivative_feedforward, delay: 0.0, lead: 0.0273}"])
    result = run(as_fmu(controller(), ", parameters: {tau: 0.0}, lead: 0.0273"))
    assert np.array_equal(result.command, expected.command)


def test_fmu_units_are_converted_to_si() -> None:
    in_si = run(as_fmu(controller()))
    millimetres = controller(units=("mm", "mm/s", "m/s^2", "mm", "kN"), command="mm")
    np.testing.assert_allclose(run(as_fmu(millimetres)).command, in_si.command, rtol=1e-12, atol=1e-15)


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_give_identical_results(host: str, tmp_path: Path, different: Any) -> None:
    overrides = [*as_fmu(controller(), ", parameters: {k: 0.01}, shown: [sum]"), "duration=1"]
    embedded = run(overrides)
    assert different(embedded, run(overrides, host=host, record=tmp_path / host, keep=False)) == []


def test_reset_restores_initial_state() -> None:
    overrides = as_fmu(controller(), ", parameters: {k: 0.01}, shown: [samples]")
    compensator = Assembly(files.load("chen_ricles_2010", overrides)).compensator
    motion = [[1e-3]] * 3
    with closing(compensator):
        compensator.open()
        first = [compensator.commands(*motion, [0.0], [0.0], False, False) for _ in range(5)]
        assert compensator.state() == [5.0]
        compensator.reset()
        assert compensator.state() == [0.0]
        again = [compensator.commands(*motion, [0.0], [0.0], False, False) for _ in range(5)]
    assert again == first
    assert first[0] != first[-1]


AT = "(at 0.0976562 s)"
FAULTS = {
    "crash": ("if (t > 0.097) *(volatile int *)0 = 1", "the FMU was ended by SIGSEGV"),
    "discard": ("if (t > 0.097) return 2", "fmi2DoStep has returned fmi2Discard at 0.0976562 s"),
    "nan": ("if (t > 0.097) v[U] = NAN", "u is nan at 0.0986328 s: must be a number"),
    "loop": ("if (t > 0.097) for (;;)", "the FMU has not answered in 0.5 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fmu_fault_stops_rig_with_reason(fault: str) -> None:
    statement, reason = FAULTS[fault]
    result = hosts.run("chen_ricles_2010", as_fmu(controller(statement), ", answer_within: 0.5"))
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert all(part in result.reason for part in ("compensator: controller_", reason, AT))


@pytest.mark.nodes(ros=True)
@pytest.mark.parametrize("fault", ["crash", "loop"])
def test_fmu_fault_stops_nodes_with_reason(fault: str, tmp_path: Path) -> None:
    statement, reason = FAULTS[fault]
    overrides = as_fmu(controller(statement), ", answer_within: 0.5")
    result = hosts.run("chen_ricles_2010", overrides, host="composed", record=tmp_path / "run", keep=False)
    assert result.outcome == "failed"
    assert reason in result.reason


def refused(overrides: Sequence[str]) -> str:
    with pytest.raises(ConfigError) as error:
        hosts.run("chen_ricles_2010", overrides)
    return str(error.value)


def test_incompatible_settings_are_refused() -> None:
    file = controller()
    other = f"compensator={{type: fmu, file: {file}, axes: {{other: {{target: r, command: u}}}}}}"
    assert mentions(refused(["duration=2", other]), "compensator.axes", "test")
    swapped = refused(as_fmu(file, axis="target: u, command: r"))
    assert mentions(swapped, "axes.story_1.target", "u", "FMU")
    assert mentions(swapped, "axes.story_1.command", "r", "FMU")
    in_metres = refused(as_fmu(file, axis="target: r, velocity: y, command: u"))
    assert mentions(in_metres, "axes.story_1.velocity", "y", "FMU", "m")
    assert "shown[0] = 'k'" in refused(as_fmu(file, ", shown: [k]"))
    chained = f"{{type: chain, first: {as_fmu(file)[1].partition('=')[2]}, second: {{type: none}}}}"
    assert mentions(refused(["duration=2", f"compensator={chained}"]), "compensator.first.type", "fmu")


def test_fmu_with_wrong_guid_is_refused(tmp_path: Path) -> None:
    file = changed(controller(), tmp_path / "controller.fmu", ('guid="', 'guid="not '))
    assert mentions(refused(as_fmu(file)), "compensator.file", "controller.fmu", "FMU", "1")


def test_stability_judgement_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("compensator.type", "fmu")):
        judge(files.load("chen_ricles_2010", as_fmu(controller())))


def test_check_lists_inputs_and_computing_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    words = [word for override in as_fmu(controller()) for word in ("--set", override)]
    assert main(["check", "chen_ricles_2010", *words]) == 0
    output = capsys.readouterr().out
    assert mentions(output, "compensator", "inputs", "0.0", "m/s", "2", "N")
    assert mentions(output, "compensator", "r2", "0.0")
    assert mentions(output, "compensator", "0.977 ms")
