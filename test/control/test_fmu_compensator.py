# SPDX-License-Identifier: Apache-2.0
"""A controller as an FMU: its commands are those of the same law here, and its end is the end of the test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fmus import changed, of_text, skip_without_fmi
from generic_client import models_left
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu.process import PROGRAM
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

CONTROLLER = """
#include <math.h>
#include <stdlib.h>

#include "model.h"

/* u = r + tau v + c a + k sum of (r before - y) - f / stiffness, of two axes */
enum { R, V, A, Y, F, R2, V2, A2, Y2, F2, TAU, C, K, STIFFNESS, U, U2, SUM, SUM2, BEFORE, BEFORE2, SAMPLES };

int model_start(double *v) { return 0; }

int model_step(double *v, double t, double h)
{
    for (int i = 0; i < 2; i++) {
        const double *of = v + 5 * i;
        v[SUM + i] += v[K] * (v[BEFORE + i] - of[Y]);
        v[BEFORE + i] = of[R];
        v[U + i] = of[R] + v[TAU] * of[V] + v[C] * of[A] + v[SUM + i] - of[F] / v[STIFFNESS];
    }
    v[SAMPLES] += 1.0;
    WRONG;
    return 0;
}
"""
UNITS = ("m", "m/s", "m/s^2", "m", "N")
TAU = 0.0273


def controller(wrong: str = "", version: int = 2, units: Sequence[str] = UNITS, command: str = "m") -> Path:
    inputs = [
        (f"{noun}{axis}", "input", unit) for axis in ("", "2") for noun, unit in zip("rvayf", units, strict=True)
    ]
    parameters = [(name, "parameter", "", start) for name, start in (("tau", TAU), ("c", 0.0), ("k", 0.0))]
    stiffness = ("stiffness", "parameter", "", 1e30)
    outputs = [("u", "output", command), ("u2", "output", command), ("sum", "output", "m"), ("sum2", "local")]
    rest = [("before", "local"), ("before2", "local"), ("samples", "output")]
    variables = (*inputs, *parameters, stiffness, *outputs, *rest)
    return of_text("controller", CONTROLLER, variables, version, (f"-DWRONG={wrong}",))


@pytest.fixture(scope="module", autouse=True)
def _fmi() -> Iterator[None]:
    skip_without_fmi()
    yield
    assert models_left(PROGRAM) == []


AXIS = "target: r, velocity: v, acceleration: a, measured: y, force: f, command: u"


def as_fmu(file: Path, more: str = "", axis: str = AXIS) -> list[str]:
    words = f"{{type: fmu, file: {file}, axes: {{story_1: {{{axis}}}}}{more}}}"
    return ["duration=2", f"compensator={words}"]


def run(overrides: Sequence[str], **options: Any) -> Any:
    result = hosts.run("chen_ricles_2010", overrides, **options)
    assert result.outcome == "finished", result.reason
    return rths_nodes.read(result.recording) if "record" in options else result.read()


@pytest.mark.parametrize("version", [2, 3])
def test_a_derivative_feedforward_as_fmu_is_ours_to_the_bit(version: int) -> None:
    ours = run(["duration=2", f"compensator={{type: derivative_feedforward, delay: {TAU}}}"])
    found = run(as_fmu(controller(version=version)))
    assert np.ptp(ours.command) > 1e-3, "m: it has moved"
    assert np.array_equal(found.command, ours.command)


def test_each_input_is_what_it_is_called() -> None:
    """Of two axes, in their order; velocity and what was measured are not those of the other one."""
    second = AXIS.replace(",", "2,").replace("command: u", "command: u2")
    text = f"{{type: fmu, file: {controller()}, axes: {{a: {{{AXIS}}}, b: {{{second}}}}}, shown: [sum, samples], "
    parameters: dict[str, float] = {"c": 1e-4, "k": 0.01, "stiffness": 1e6}
    data = yaml.safe_load(f"{text} parameters: {parameters}}}")
    cls = registry.load("compensator", "fmu")
    compensator = cls(from_data(cls.Params, {k: v for k, v in data.items() if k != "type"}), 1e-3, 2)
    rng = np.random.default_rng(1)
    total, before = np.zeros(2), np.zeros(2)
    compensator.open()
    try:
        for sample in range(1, 6):
            x, v, a, y, f = rng.normal(size=(5, 2)) * np.array([[1.0], [1.0], [1.0], [1.0], [1e3]])
            rows = [each.tolist() for each in (x, v, a, y, f)]
            found = compensator.commands(*rows, False, False)
            total, before = total + 0.01 * (before - y), x
            np.testing.assert_allclose(found, x + TAU * v + 1e-4 * a + total - f / 1e6, rtol=1e-13)
            assert compensator.state() == [pytest.approx(total[0], rel=1e-13), sample]
    finally:
        compensator.close()
    assert compensator.state_names == ("sum", "samples")
    assert compensator.state_units == {"sum": "m"}


def test_its_target_may_be_read_ahead() -> None:
    """As that of any other law: by a Taylor series."""
    ours = run(["duration=2", "compensator={type: derivative_feedforward, delay: 0.0, lead: 0.0273}"])
    found = run(as_fmu(controller(), ", parameters: {tau: 0.0}, lead: 0.0273"))
    assert np.array_equal(found.command, ours.command)


def test_units_of_the_controller_become_si() -> None:
    in_si = run(as_fmu(controller()))
    other = controller(units=("mm", "mm/s", "m/s^2", "mm", "kN"), command="mm")
    found = run(as_fmu(other))
    np.testing.assert_allclose(found.command, in_si.command, rtol=1e-12, atol=1e-15)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_hosts_are_equal_to_the_bit(host: str, tmp_path: Path, different: Any) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    words = [*as_fmu(controller(), ", parameters: {k: 0.01}, shown: [sum]"), "duration=1"]
    embedded = run(words)
    other = run(words, host=host, record=tmp_path / host, keep=False)
    assert different(embedded, other) == []


def test_it_is_set_back_to_its_start() -> None:
    words = as_fmu(controller(), ", parameters: {k: 0.01}, shown: [samples]")
    compensator = Assembly(files.load("chen_ricles_2010", words)).compensator
    one = [1e-3]
    compensator.open()
    try:
        first = [compensator.commands(one, one, one, [0.0], [0.0], False, False) for _ in range(5)]
        assert compensator.state() == [5.0]
        compensator.reset()
        assert compensator.state() == [0.0]
        again = [compensator.commands(one, one, one, [0.0], [0.0], False, False) for _ in range(5)]
    finally:
        compensator.close()
    assert again == first
    assert first[0] != first[-1]


AT = "(at 0.0976562 s)"
WRONG = {
    "crash": ("if (t > 0.097) *(volatile int *)0 = 1", "the FMU was ended by SIGSEGV"),
    "discard": ("if (t > 0.097) return 2", "fmi2DoStep has returned fmi2Discard at 0.0976562 s"),
    "nan": ("if (t > 0.097) v[U] = NAN", "u is nan at 0.0986328 s: must be a number"),
    "loop": ("if (t > 0.097) for (;;)", "the FMU has not answered in 0.5 s"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_it_does_wrong_stops_the_rig_in_words(wrong: str) -> None:
    statement, says = WRONG[wrong]
    result = hosts.run("chen_ricles_2010", as_fmu(controller(statement), ", answer_within: 0.5"))
    assert (result.outcome, result.exit_code) == ("failed", 1)
    assert "compensator: controller_" in result.reason
    assert says in result.reason
    assert AT in result.reason


@pytest.mark.nodes
@pytest.mark.parametrize("wrong", ["crash", "loop"])
def test_so_it_is_with_nodes(wrong: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    statement, says = WRONG[wrong]
    words = as_fmu(controller(statement), ", answer_within: 0.5")
    result = hosts.run("chen_ricles_2010", words, host="composed", record=tmp_path / "run", keep=False)
    assert result.outcome == "failed"
    assert says in result.reason


def refused(words: Sequence[str]) -> str:
    with pytest.raises(ConfigError) as refusal:
        hosts.run("chen_ricles_2010", words)
    return str(refusal.value)


def test_what_does_not_fit_is_refused() -> None:
    file = controller()
    assert mentions(
        refused(
            ["duration=2", f"compensator={{type: fmu, file: {file}, axes: {{other: {{target: r, command: u}}}}}}"]
        ),
        "compensator.axes",
        "test",
    )
    swapped = refused(as_fmu(file, axis="target: u, command: r"))
    assert mentions(swapped, "axes.story_1.target", "u", "FMU")
    assert mentions(swapped, "axes.story_1.command", "r", "FMU")
    assert mentions(
        refused(as_fmu(file, axis="target: r, velocity: y, command: u")), "axes.story_1.velocity", "y", "FMU", "m"
    )
    assert "shown[0] = 'k'" in refused(as_fmu(file, ", shown: [k]"))
    chained = f"{{type: chain, first: {as_fmu(file)[1].partition('=')[2]}, second: {{type: none}}}}"
    assert mentions(refused(["duration=2", f"compensator={chained}"]), "compensator.first.type", "fmu")


def test_a_wrong_start_is_refused(tmp_path: Path) -> None:
    file = changed(controller(), tmp_path / "controller.fmu", ('guid="', 'guid="not '))
    words = refused(as_fmu(file))
    assert mentions(words, "compensator.file", "controller.fmu", "FMU", "1")


def test_its_stability_is_not_judged() -> None:
    with pytest.raises(ConfigError, match=naming("compensator.type", "fmu")):
        judge(files.load("chen_ricles_2010", as_fmu(controller())))


def test_check_lists_it_and_measures_its_sample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    words = [part for each in as_fmu(controller()) for part in ("--set", each)]
    assert main(["check", "chen_ricles_2010", *words]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "compensator", "inputs", "0.0", "m/s", "2", "N")
    assert mentions(told, "compensator", "r2", "0.0")
    assert mentions(told, "compensator", "0.977 ms")
