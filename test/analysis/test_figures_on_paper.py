# SPDX-License-Identifier: Apache-2.0
"""Figures for journals: 89 and 183 mm wide, letters in the file, legends beside the curves, no title."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from messages import naming

import rths_nodes
from rths_nodes.analysis.figures import characteristics, compared, stability, style
from rths_nodes.app.api import stability as judge
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.run import Run

INCH = 25.4
WIDTHS = (89.0, 183.0)


@cache
def recorded(name: str = "chen_ricles_2010") -> Run:
    return rths_nodes.run(name, duration=2.0)


def stable(millimetres: float | None) -> Figure:
    return drawn(millimetres, lambda: stability.draw(judge("three_independent_axes"), "a title"))


def runs(millimetres: float | None) -> Figure:
    both = [(name, recorded()) for name in ("one", "another")]
    return drawn(millimetres, lambda: compared.draw(both))


def drawn(millimetres: float | None, draw: Callable[[], Figure]) -> Figure:
    with style.in_style(style.on_paper(millimetres) if millimetres else style.STYLE):
        figure = draw()
        if millimetres:
            style.fit(figure)
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_letters_are_part_of_a_figure_of_the_width(kind: str, width: float, tmp_path: Path) -> None:
    path = tmp_path / f"both.{kind}"
    style.save(path, width, compared.draw, [("one", recorded())])
    content = path.read_bytes()
    if kind == "pdf":
        (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+)", content)
        assert float(box) / 72.0 * INCH == pytest.approx(width, abs=0.1)
        assert b"/FontFile2" in content
        assert b"/Type3" not in content
    else:
        points = re.findall(r'<svg[^>]* width="([\d.]+)pt"', content.decode())
        assert float(points[0]) / 72.0 * INCH == pytest.approx(width, abs=0.1)
        assert b"<text" not in content


def test_panels_stand_one_below_another_where_the_paper_is_narrow() -> None:
    lefts = {width: {round(panel.get_position().x0, 2) for panel in stable(width).axes} for width in WIDTHS}
    assert len(lefts[89.0]) < len(lefts[183.0]) == 2
    assert not any(text.get_text() for text in stable(89.0).texts)
    assert [text.get_text()[:7] for text in stable(None).texts] == ["a title"]


@pytest.mark.parametrize("draw", [stable, runs])
@pytest.mark.parametrize("width", [None, *WIDTHS])
def test_no_legend_lies_on_a_panel(width: float | None, draw: Callable[[float | None], Figure]) -> None:
    figure = draw(width)
    legends = [*figure.legends, *(panel.get_legend() for panel in figure.axes)]
    boxes = [legend.get_window_extent() for legend in legends if legend]
    assert boxes
    for panel in figure.axes:
        inside = panel.get_window_extent()
        for box in boxes:
            assert box.y0 >= inside.y1 - 1.0 or box.y1 <= inside.y0 or box.x0 >= inside.x1 or box.x1 <= inside.x0


def test_many_runs_differ_by_colour_and_dashes() -> None:
    figure = drawn(None, lambda: compared.draw([(f"run {number}", recorded()) for number in range(8)]))
    looks = {(str(line.get_color()), str(line._dash_pattern)) for line in figure.axes[1].lines[1:]}  # type: ignore[attr-defined]
    assert len(looks) == 8


def test_lines_of_a_characterisation_run_with_frequency() -> None:
    """The amplitudes differ a little from test to test."""
    tests: Any = [SimpleNamespace(wanted=0.02 - 1e-5 * hz, frequency=hz) for hz in (3.0, 0.5, 1.0)]
    (family,) = characteristics._by_amplitude(tests).values()
    assert [test.frequency for test in family] == [0.5, 1.0, 3.0]


def test_a_figure_of_a_notebook_is_saved_in_its_style(tmp_path: Path) -> None:
    before = matplotlib.rcParams["pdf.fonttype"]
    panel = recorded().plot("tracking", style="paper", width=183.0)  # type: ignore[attr-defined]
    panel.figure.savefig(tmp_path / "tracking.pdf")
    assert b"/FontFile2" in (tmp_path / "tracking.pdf").read_bytes()
    assert INCH * panel.figure.get_figwidth() == pytest.approx(183.0)
    assert matplotlib.rcParams["pdf.fonttype"] == before
    with pytest.raises(ConfigError, match=naming("style", "poster", "paper")):
        recorded().plot("tracking", style="poster")  # type: ignore[attr-defined]
    pyplot.close("all")


def test_options_of_a_figure_are_refused_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    for options, names in {
        ("--style", "paper"): "--figure",
        ("--figure", "a.pdf", "--width", "89"): "--style paper",
        ("--figure", "a.pdf", "--style", "paper", "--width", "20"): "60",
    }.items():
        assert main(["stability", "chen_ricles_2010", *options]) == 2
        output, error = capsys.readouterr()
        assert not output
        assert names in error


def test_a_figure_that_is_higher_than_a_page_is_refused() -> None:
    figure = Figure(figsize=(4.0, 40.0), layout="constrained")
    figure.subplots(20, 1)
    with pytest.raises(ConfigError, match="247 mm"), style.in_style(style.on_paper(89.0)):
        style.fit(figure)
