# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths stability``: text, JSON, figure, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

from rths_nodes.analysis.figures import stability as figures
from rths_nodes.analysis.stability.judgement import judge_loop
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.overrides import override

TEST = "horiuchi_1996_verification"
UNSTABLE = ["--set", "compensator.type=none"]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_margins_of_stable_test_are_printed(output: Callable[..., str]) -> None:
    text = output("stability", TEST)
    first, *rest = text.splitlines()
    assert mentions(first, TEST, "stable", "26.6 %", "10 ms", "13.63 ms")
    assert mentions(first, "natural", "2 Hz")
    assert sum(line.rstrip().endswith(" stable") for line in rest) == 4
    for part in ("k*/k", "critical delay", "critical first natural frequency", "assumed: small motion"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "name"), [(UNSTABLE, TEST), (["--case", "no_compensation"], f"{TEST}.no_compensation")]
)
def test_unstable_test_is_printed_with_limits(output: Callable[..., str], options: list[str], name: str) -> None:
    """The exit code stays 0."""
    text = output("stability", TEST, *options)
    first = text.splitlines()[0]
    assert mentions(first, name, "UNSTABLE", "-203 %", "5.731 Hz")
    assert mentions(first, "fall", "10 ms")
    assert text.count("UNSTABLE") == 4  # the verdict and three of the modes


def test_check_warns_of_small_margin(output: Callable[..., str]) -> None:
    """The delay may grow from 26.86 to 26.93 ms; unknown changes of a rig are larger."""
    small = ["yielding_five_story", "--set", "compensator.type=none"]
    small += ["--set", "structure.damping.ratios=[0.0171, 0.0171]"]
    assert mentions(output("stability", *small).splitlines()[0], "stable", "0.28 %")
    lines = [line for line in output("check", *small).splitlines() if "delay margin" in line]
    for line in lines:
        assert all(part in line for part in ("0.28 %", "26.86 ms", "26.93 ms"))
    assert [line.startswith("  caution: ") for line in lines] == [False, True]


def test_json_has_margins_and_modes(output: Callable[..., str]) -> None:
    stable = json.loads(output("stability", TEST, "--json"))
    assert (stable["scenario"], stable["stable"], stable["growing_roots"]) == (TEST, True, 0)
    assert stable["critical_delay_s"] > stable["delay_s"] == pytest.approx(0.010)
    assert stable["delay_margin"] == pytest.approx(1.0 - stable["delay_s"] / stable["critical_delay_s"])
    assert [mode["stable"] for mode in stable["modes"]] == [True] * 4
    assert set(stable["modes"][0]["apparent_stiffness"]) == {"story_1"}
    unstable = json.loads(output("stability", TEST, *UNSTABLE, "--json"))
    assert unstable["stable"] is False
    assert unstable["critical_delay_s"] < unstable["delay_s"]
    assert unstable["least_gain"] is None


@pytest.mark.parametrize(
    "suffix", [".svg", *(pytest.param(kind, marks=pytest.mark.soak) for kind in (".png", ".pdf"))]
)
def test_figure_is_written(suffix: str, output: Callable[..., str]) -> None:
    text = output("stability", TEST, "--figure", f"stability{suffix}")
    assert text.endswith(f"figure: stability{suffix}\n")
    assert Path(f"stability{suffix}").stat().st_size > 10_000


@pytest.mark.parametrize("overrides", [[], ["compensator.type=none"], ["axes.story_1.actuator.delay=0.0"]])
def test_figure_shows_computed_stability(overrides: list[str]) -> None:
    """The damping of each mode is on its curve; the curve of the critical mode is zero at the limit."""
    result = judge_loop(sampled_loop(override(load(TEST), overrides)))
    figure = figures.draw(result, TEST)
    stiffness, damping, delay, frequency = figure.axes
    assert stiffness.get_lines()[1].get_ydata()[0] == pytest.approx(1.0)
    assert damping.get_lines()[1].get_ydata()[0] == pytest.approx(0.0)
    for panel, value in ((delay, 1e3 * result.delay), (frequency, 1.0)):
        curves = {line.get_label(): line for line in panel.get_lines()}
        for number, mode in enumerate(result.modes, 1):
            (curve,) = [line for label, line in curves.items() if label.startswith(f"mode {number}:")]
            assert np.interp(value, *curve.get_data()) == pytest.approx(100.0 * mode.loop_damping_ratio, abs=0.05)
    limits = {delay: result.critical_delay and 1e3 * result.critical_delay}
    limits[frequency] = result.frequency_factor and result.frequency_factor.value
    for panel, limit in limits.items():
        if limit:
            lines = [line.get_data() for line in panel.get_lines() if len(line.get_xdata()) > 2]
            assert min(abs(np.interp(limit, x, y)) for x, y in lines) < 0.2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["predefined_sine"], "structure: missing"),
        ([TEST, "--figure", "stability.docx"], "stability.docx"),
        ([TEST, "--set", "compensator.order=9"], "compensator.order"),
        (["no_such_scenario"], "unknown scenario"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], reason: str, refusal: Callable[..., str]) -> None:
    error = refusal("stability", *arguments)
    assert reason in error
    assert len(error.splitlines()) == 1
    assert not list(Path().iterdir())
