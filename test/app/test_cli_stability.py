# SPDX-License-Identifier: Apache-2.0
"""`rths stability`: what it prints, its JSON, its figure, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

from rths_nodes.analysis.figures import stability as figures
from rths_nodes.analysis.stability.judgement import judge_loop
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.app.cli import main
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.overrides import override

TEST = "horiuchi_1996_verification"
UNSTABLE = ["--set", "compensator.type=none"]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["stability", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_a_stable_test_is_told_its_margins(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, TEST)
    first, *rest = text.splitlines()
    assert mentions(first, TEST, "stable", "26.6 %", "10 ms", "13.63 ms")
    assert mentions(first, "natural", "2 Hz")
    assert sum(line.rstrip().endswith(" stable") for line in rest) == 4
    for words in ("k*/k", "critical delay", "critical first natural frequency", "assumed: small motion"):
        assert words in text


def test_an_unstable_test_is_told_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It is information: the exit code stays 0."""
    text = said(capsys, TEST, *UNSTABLE)
    first = text.splitlines()[0]
    assert mentions(first, TEST, "UNSTABLE", "-203 %", "5.731 Hz")
    assert mentions(first, "fall", "10 ms")
    assert text.count("UNSTABLE") == 4  # the verdict and three of the modes


def test_a_case_can_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert "UNSTABLE" in said(capsys, TEST, "--case", "no_compensation")


def test_a_small_margin_is_a_caution_of_check(capsys: pytest.CaptureFixture[str]) -> None:
    """The delay may grow from 26.86 to 26.93 ms: unknown changes of the rig are larger."""
    small = ["yielding_five_story"]
    for words in ("compensator.type=none", "structure.damping.ratios=[0.0171, 0.0171]"):
        small += ["--set", words]
    assert mentions(said(capsys, *small).splitlines()[0], "stable", "0.28 %")
    assert main(["check", *small]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "delay margin" in line]
    for line in lines:
        assert all(words in line for words in ("0.28 %", "26.86 ms", "26.93 ms"))
    assert [line.startswith("  caution: ") for line in lines] == [False, True]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, TEST, "--json"))
    assert (found["scenario"], found["stable"], found["growing_roots"]) == (TEST, True, 0)
    assert found["critical_delay_s"] > found["delay_s"] == pytest.approx(0.010)
    assert found["delay_margin"] == pytest.approx(1.0 - found["delay_s"] / found["critical_delay_s"])
    assert [mode["stable"] for mode in found["modes"]] == [True] * 4
    assert set(found["modes"][0]["apparent_stiffness"]) == {"story_1"}
    unstable = json.loads(said(capsys, TEST, *UNSTABLE, "--json"))
    assert unstable["stable"] is False
    assert unstable["critical_delay_s"] < unstable["delay_s"]
    assert unstable["least_gain"] is None


@pytest.mark.parametrize(
    "suffix", [".svg", *(pytest.param(kind, marks=pytest.mark.soak) for kind in (".png", ".pdf"))]
)
def test_the_figure_is_written(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, TEST, "--figure", f"stability{suffix}")
    assert text.endswith(f"figure: stability{suffix}\n")
    assert Path(f"stability{suffix}").stat().st_size > 10_000


@pytest.mark.parametrize("words", [[], ["compensator.type=none"], ["axes.story_1.actuator.delay=0.0"]])
def test_the_figure_shows_what_was_judged(words: list[str]) -> None:
    """Every mode's damping stands on its curve at this test, and the curve in question is zero at the limit."""
    found = judge_loop(sampled_loop(override(load(TEST), words)))
    figure = figures.draw(found, TEST)
    stiffness, damping, delay, frequency = figure.axes
    assert stiffness.get_lines()[1].get_ydata()[0] == pytest.approx(1.0)
    assert damping.get_lines()[1].get_ydata()[0] == pytest.approx(0.0)
    for panel, now in ((delay, 1e3 * found.delay), (frequency, 1.0)):
        curves = {line.get_label(): line for line in panel.get_lines()}
        for number, mode in enumerate(found.modes, 1):
            (curve,) = [line for label, line in curves.items() if label.startswith(f"mode {number}:")]
            x, y = curve.get_data()
            assert np.interp(now, x, y) == pytest.approx(100.0 * mode.loop_damping_ratio, abs=0.05)
    limits = [(delay, None if found.critical_delay is None else 1e3 * found.critical_delay)]
    limits.append((frequency, found.frequency_factor.value if found.frequency_factor else None))
    for panel, limit in limits:
        if limit:
            lines = [line.get_data() for line in panel.get_lines() if len(line.get_xdata()) > 2]
            assert min(abs(np.interp(limit, x, y)) for x, y in lines) < 0.2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["predefined_sine"], "structure: missing"),
        ([TEST, "--figure", "stability.docx"], "stability.docx"),
        ([TEST, "--set", "compensator.order=9"], "compensator.order"),
        (["no_such_scenario"], "unknown scenario"),
    ],
)
def test_what_is_wrong_is_refused(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stability", *words]) == ExitCode.REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert len(err.splitlines()) == 1
    assert not list(Path().iterdir())
