# SPDX-License-Identifier: Apache-2.0
"""Figures and curves as files: the tables hold what is drawn, the figures fit a column and can be read in grey."""

from __future__ import annotations

import csv
import dataclasses
import re
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from messages import mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures import files
from rths_nodes.analysis.figures.sheet import Base, Sheet, View
from rths_nodes.analysis.figures.style import BAND, PALETTE, in_grey
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app.cli import main
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

HISTOGRAM = {"edges_s": [1e-5, 2e-5, 4e-5, 8e-5, 16e-5], "counts": [1.0, 9.0, 0.0, 2.0]}


@cache
def recorded(name: str = "chen_ricles_2010", *overrides: str) -> Run:
    run = rths_nodes.run(name, ["duration=4", *overrides])
    return dataclasses.replace(run, timing={"loop_histogram": HISTOGRAM})


def view(name: str = "chen_ricles_2010") -> View:
    return View.one(Evaluation(recorded(name)))


@cache
def sheets(name: str = "chen_ricles_2010") -> tuple[Sheet, ...]:
    return tuple(files.draw(view(name), 85.0))


def drawn_in(sheet: Sheet) -> Any:
    """The axes of a figure, with all that the stubs of matplotlib do not know."""
    return sheet.figure.axes


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    return head, rows


def column(path: Path, name: str) -> Array:
    head, rows = read(path)
    return np.array([float(row[head.index(name)] or "nan") for row in rows])


# Tables


def test_a_table_has_every_sample_and_its_units(tmp_path: Path) -> None:
    files.write_curves(sheets(), tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"displacement.csv", "control_error.csv", "hysteresis_steps.csv"}
    run, path = recorded(), tmp_path / "displacement.csv"
    assert read(path)[0] == ["time (s)", "target (mm)", "measured (mm)", "command (mm)"]
    np.testing.assert_allclose(column(path, "time (s)"), run.time, rtol=1e-11)
    np.testing.assert_allclose(column(path, "measured (mm)"), 1e3 * run.displacement[:, 0], rtol=1e-11)
    loop = tmp_path / "hysteresis_samples.csv"
    assert read(loop)[0] == ["time (s)", "measured displacement (mm)", "measured force (kN)"]
    np.testing.assert_allclose(column(loop, "measured force (kN)"), 1e-3 * run.force[:, 0], rtol=1e-11)


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_every_line_of_a_figure_stands_in_its_table(name: str) -> None:
    """Each point that is drawn is a row of two columns: nothing is drawn that is not written."""
    for sheet in sheets(name):
        columns = [columns for _, columns in files.tables(sheet)]
        values = [np.column_stack([*each.values()]) for each in map(filled, columns)]
        pairs = [
            set(map(tuple, each[:, pair].tolist()))
            for each in values
            for pair in permutations(range(each.shape[1]), 2)
        ]
        for line in (line for panel in drawn_in(sheet) for line in panel.lines if len(line.get_xdata()) > 2):
            drawn = np.column_stack(line.get_data())
            points = set(map(tuple, drawn[np.isfinite(drawn).all(axis=1)].tolist()))
            assert any(points <= pair for pair in pairs), sheet.name


def filled(columns: dict[str, Array]) -> dict[str, Array]:
    n = max(map(len, columns.values()))
    return {head: np.append(each, np.full(n - len(each), np.nan)) for head, each in columns.items()}


def test_histories_over_other_times_stand_in_tables_of_their_own() -> None:
    time, sheet = np.arange(5.0), Sheet("both")
    sheet.record(Base("steps", time), "force (kN)", np.array([1.0, np.nan, 3.0]))
    sheet.record(Base("steps", time), "energy (J)", time)
    sheet.record(Base("samples", 0.1 * time), "force (kN)", time)
    (steps, first), (samples, second) = files.tables(sheet)
    assert (steps, samples) == ("both_steps", "both_samples")
    assert [*first] == ["time (s)", "force (kN)", "energy (J)"]
    np.testing.assert_array_equal(filled(first)["force (kN)"], [1.0, np.nan, 3.0, np.nan, np.nan])
    assert [*second] == ["time (s)", "force (kN)"]


def test_what_is_shown_twice_is_written_once(tmp_path: Path) -> None:
    sheet, base = Sheet("x"), Base("samples", np.arange(3.0))
    for panel in sheet.row(1.0, 6, 6):
        sheet.curve(panel, base, "force (kN)", np.array([1.0, np.nan]), ("", "k", "-"))
    sheet.record(base, "energy (J)", base.values)
    files.write_curves([sheet], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "time (s),force (kN),energy (J)\n0,1,0\n1,,1\n2,,2\n"


def test_a_histogram_stands_in_its_table_with_both_ends_of_its_bars(tmp_path: Path) -> None:
    files.write_curves(sheets(), tmp_path)
    head, rows = read(tmp_path / "timing.csv")
    assert head == ["loop from (µs)", "loop to (µs)", "samples of loop"]
    assert rows == [["10", "20", "1"], ["20", "40", "9"], ["40", "80", "0"], ["80", "160", "2"]]


# Figures


@pytest.mark.parametrize(("kind", "width"), [("pdf", 85.0), ("svg", 85.0), ("svg", 170.0)])
def test_figures_are_as_wide_as_asked_for_and_the_same_every_time(kind: str, width: float, tmp_path: Path) -> None:
    chosen = [sheet for sheet in files.draw(view(), width) if sheet.name in ("displacement", "timing")]
    for folder, drawn in (("a", chosen), ("b", files.draw(view(), width))):
        files.write_figures(drawn, tmp_path / folder, kind)
    first, again = ([(tmp_path / folder / f"{of.name}.{kind}").read_bytes() for of in chosen] for folder in "ab")
    assert first == again
    for content in first:
        found = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)|<svg[^>]* width=\"([\d.]+)pt", content)
        assert found
        assert float(found[1] or found[2]) == pytest.approx(width / 25.4 * 72.0, abs=0.01)
    words = (tmp_path / "a" / "captions.txt").read_text(encoding="utf-8")
    assert all(sheet.title in words and sheet.caption in words for sheet in chosen)


def grey(colour: str) -> float:
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_lines_of_a_panel_differ_in_grey_and_letters_have_seven_points(name: str) -> None:
    """By their dashes, their breadth, or how dark they are."""
    for sheet in sheets(name):
        sheet.figure.draw_without_rendering()
        for panel in drawn_in(sheet):
            lines = [line for line in panel.lines if len(line.get_xdata()) > 2]
            looks = [(line.get_color(), line._unscaled_dash_pattern, line.get_linewidth()) for line in lines]
            for (a, dashes, thin), (b, others, thick) in combinations(looks, 2):
                dark = abs(grey(a) - grey(b))
                assert dashes != others or dark > 0.25 or max(thin, thick) > 1.5 * min(thin, thick), sheet.name
        words: Any = [text for text in sheet.figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert words
        assert min(text.get_fontsize() for text in words) >= 6.0
        labels = [text for panel in drawn_in(sheet) for text in (panel.xaxis.label, panel.yaxis.label)]
        assert min(text.get_fontsize() for text in labels) >= 7.0


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_nothing_is_drawn_beyond_the_edge_of_a_narrow_figure_or_over_other_words(name: str) -> None:
    for sheet in sheets(name):
        sheet.figure.draw_without_rendering()
        width, height = sheet.figure.bbox.size
        for panel in drawn_in(sheet):
            numbers = [text for axis in (panel.xaxis, panel.yaxis) for text in axis.get_ticklabels()]
            labels = [panel.xaxis.label, panel.yaxis.label, panel.title, panel._left_title]
            boxes = [text.get_window_extent() for text in labels if text.get_text()]
            for box in boxes:
                assert box.x0 >= -0.5, sheet.name
                assert box.x1 <= width + 0.5, sheet.name
                assert box.y0 >= -0.5, sheet.name
                assert box.y1 <= height + 0.5, sheet.name
            for text in (text for text in numbers if text.get_text() and text.get_visible()):
                assert not text.get_window_extent().count_overlaps(boxes), (sheet.name, text.get_text())


def test_eighteen_names_have_eighteen_looks_in_grey() -> None:
    from rths_nodes.analysis.figures.style import styled

    looks = [in_grey(colour, line, 1.0)[1:] for _, colour, line in styled(map(str, range(18)))]
    assert len(set(map(str, looks))) == 18
    assert in_grey(BAND, "-", 2.8) == (BAND, "-", 2.8)
    assert in_grey(PALETTE[0], "-", 1.0) == (PALETTE[0], "-", 1.0)


# The command


def test_the_command_writes_both_beside_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "predefined_sine", "--set", "duration=2", "--record", str(tmp_path / "run")]) == 0
    page = tmp_path / "out" / "sine.html"
    page.parent.mkdir()
    capsys.readouterr()
    words = ["report", str(tmp_path / "run"), "--out", str(page), "--csv", "--figures", "--format", "svg"]
    assert main([*words, "--width", "90"]) == 0
    beside = page.parent
    told = f"{page}\ncurves: {beside / 'sine_curves'}\nfigures: {beside / 'sine_figures'}\n"
    assert capsys.readouterr().out == told
    drawn = {path.stem for path in (beside / "sine_figures").glob("*.svg")}
    assert {"displacement", "control_error", "energy", "synchronisation", "timing"} <= drawn
    written = {path.stem.removesuffix("_samples").removesuffix("_steps") for path in beside.glob("*_curves/*.csv")}
    assert written == drawn


def test_options_that_make_no_sense_are_refused_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", str(tmp_path / "none"), "--out", str(tmp_path / "page.html")]
    assert main([*words, "--format", "svg", "--width", "20"]) == 2
    told = capsys.readouterr().err
    assert mentions(told, "--format", "--figures")
    assert mentions(told, "--width", "20 mm", "60", "400 mm")
    assert not list(tmp_path.iterdir())


def test_the_report_of_a_test_with_an_axis_by_force_has_its_partition_and_its_load(tmp_path: Path) -> None:
    """An axis that is controlled by force is no part of what the structure moves."""
    run = rths_nodes.run("column_under_axial_load", ["duration=1"])
    (tmp_path / "page.html").write_text(figures_of(run), encoding="utf-8")
    tables = {name for sheet in figures.sheets(View.one(Evaluation(run))) for name, _ in files.tables(sheet)}
    assert "loads" in tables


def figures_of(run: Run) -> str:
    from rths_nodes.analysis.report.document import render as page

    html = page(run)
    assert mentions(html, "Partition", "numerical")
    return html
