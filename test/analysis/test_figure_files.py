# SPDX-License-Identifier: Apache-2.0
"""Tests of figures and curves as files, of figures for journals and of their style."""

from __future__ import annotations

import csv
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures import analyses
from rths_nodes.analysis.figures import drawing as files
from rths_nodes.analysis.figures.drawing import STYLE, Base, Drawing, Recordings, in_style, on_paper, save, styled
from rths_nodes.analysis.figures.histories import compared
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.document import render
from rths_nodes.app.api import stability as judge
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

HISTOGRAM = {"edges_s": [1e-5, 2e-5, 4e-5, 8e-5, 16e-5], "counts": [1.0, 9.0, 0.0, 2.0]}


@cache
def recorded(name: str = "chen_ricles_2010", *overrides: str) -> Run:
    run = rths_nodes.run(name, ["duration=4", *overrides])
    return dataclasses.replace(run, timing={"loop_histogram": HISTOGRAM})


def printed(name: str = "chen_ricles_2010", width: float = 85.0) -> list[Drawing]:
    return files.for_print(figures.drawings(Recordings.one(Evaluation(recorded(name)))), width)


@cache
def sheets(name: str = "chen_ricles_2010") -> tuple[Drawing, ...]:
    return tuple(printed(name))


def drawn_in(sheet: Drawing) -> Any:
    """The axes of a figure, untyped, as the stubs of matplotlib are incomplete."""
    return sheet.axes


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    return head, rows


def column(path: Path, name: str) -> Array:
    head, rows = read(path)
    return np.array([float(row[head.index(name)] or "nan") for row in rows])


def test_table_has_every_sample_with_units(tmp_path: Path) -> None:
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
def test_every_drawn_point_is_in_table(name: str) -> None:
    for sheet in sheets(name):
        columns = [columns for _, columns in files.tables(sheet)]
        values = [np.column_stack([*table.values()]) for table in map(filled, columns)]
        pairs = [
            set(map(tuple, table[:, pair].tolist()))
            for table in values
            for pair in permutations(range(table.shape[1]), 2)
        ]
        for line in (line for panel in drawn_in(sheet) for line in panel.lines if len(line.get_xdata()) > 2):
            drawn = np.column_stack(line.get_data())
            points = set(map(tuple, drawn[np.isfinite(drawn).all(axis=1)].tolist()))
            assert any(points <= pair for pair in pairs), sheet.name


def filled(columns: dict[str, Array]) -> dict[str, Array]:
    n = max(map(len, columns.values()))
    return {head: np.append(values, np.full(n - len(values), np.nan)) for head, values in columns.items()}


def test_histories_with_other_times_have_separate_tables() -> None:
    time, sheet = np.arange(5.0), Drawing("both")
    sheet.record(Base("steps", time), "force (kN)", np.array([1.0, np.nan, 3.0]))
    sheet.record(Base("steps", time), "energy (J)", time)
    sheet.record(Base("samples", 0.1 * time), "force (kN)", time)
    (steps, first), (samples, second) = files.tables(sheet)
    assert (steps, samples) == ("both_steps", "both_samples")
    assert [*first] == ["time (s)", "force (kN)", "energy (J)"]
    np.testing.assert_array_equal(filled(first)["force (kN)"], [1.0, np.nan, 3.0, np.nan, np.nan])
    assert [*second] == ["time (s)", "force (kN)"]


def test_repeated_curve_is_written_once(tmp_path: Path) -> None:
    sheet, base = Drawing("x"), Base("samples", np.arange(3.0))
    for panel in sheet.panels(1, 2)[0]:
        sheet.curve(panel, base, "force (kN)", np.array([1.0, np.nan]))
    sheet.record(base, "energy (J)", base.values)
    files.write_curves([sheet], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "time (s),force (kN),energy (J)\n0.0,1.0,0.0\n1.0,,1.0\n2.0,,2.0\n"


def test_histogram_table_has_both_edges_of_bars(tmp_path: Path) -> None:
    files.write_curves(sheets(), tmp_path)
    head, rows = read(tmp_path / "timing.csv")
    assert head == ["loop from (µs)", "loop to (µs)", "samples of loop"]
    expected = [[10, 20, 1], [20, 40, 9], [40, 80, 0], [80, 160, 2]]
    np.testing.assert_allclose(np.array(rows, dtype=float), expected, rtol=1e-12)


@pytest.mark.parametrize(("kind", "width"), [("pdf", 85.0), ("svg", 85.0), ("svg", 170.0)])
def test_figures_have_requested_width_and_are_reproducible(kind: str, width: float, tmp_path: Path) -> None:
    chosen = [sheet for sheet in printed(width=width) if sheet.name in ("displacement", "timing")]
    for folder, drawn in (("a", chosen), ("b", printed(width=width))):
        files.write_figures(drawn, tmp_path / folder, kind)
    first, again = (
        [(tmp_path / folder / f"{sheet.name}.{kind}").read_bytes() for sheet in chosen] for folder in "ab"
    )
    assert first == again
    for content in first:
        match = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)|<svg[^>]* width=\"([\d.]+)pt", content)
        assert match
        assert float(match[1] or match[2]) == pytest.approx(width / 25.4 * 72.0, abs=0.01)
    captions = (tmp_path / "a" / "captions.txt").read_text(encoding="utf-8")
    assert all(sheet.title in captions and sheet.caption in captions for sheet in chosen)


def grey(colour: str) -> float:
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_figures_are_legible_in_grey(name: str) -> None:
    """Lines differ by dashes, width or brightness; letters are large, within the figure and do not overlap."""
    for sheet in sheets(name):
        sheet.draw_without_rendering()
        for panel in drawn_in(sheet):
            lines = [line for line in panel.lines if len(line.get_xdata()) > 2]
            looks = [(line.get_color(), line._unscaled_dash_pattern, line.get_linewidth()) for line in lines]
            for (a, dashes, thin), (b, other_dashes, thick) in combinations(looks, 2):
                dark = abs(grey(a) - grey(b))
                wider = max(thin, thick) > 1.5 * min(thin, thick)
                assert dashes != other_dashes or dark > 0.25 or wider, sheet.name
        texts: Any = [text for text in sheet.findobj(Text) if text.get_text() and text.get_visible()]
        assert texts
        assert min(text.get_fontsize() for text in texts) >= 6.0
        labels = [text for panel in drawn_in(sheet) for text in (panel.xaxis.label, panel.yaxis.label)]
        assert min(text.get_fontsize() for text in labels) >= 7.0
        width, height = sheet.bbox.size
        for panel in drawn_in(sheet):
            numbers = [tick.label1 for axis in (panel.xaxis, panel.yaxis) for tick in axis._update_ticks()]
            labels = [panel.xaxis.label, panel.yaxis.label, panel.title, panel._left_title]
            boxes = [text.get_window_extent() for text in labels if text.get_text()]
            for box in boxes:
                assert -0.5 <= box.x0 <= box.x1 <= width + 0.5, sheet.name
                assert -0.5 <= box.y0 <= box.y1 <= height + 0.5, sheet.name
            for text in (text for text in numbers if text.get_text() and text.get_visible()):
                assert not text.get_window_extent().count_overlaps(boxes), (sheet.name, text.get_text())


def test_eighteen_names_have_distinct_looks_in_grey() -> None:
    with in_style(on_paper(85.0)):
        looks = [*styled(map(str, range(18))).values()]
    assert len({(str(look["ls"]), look["lw"]) for look in looks}) == 18
    assert (looks[0]["ls"], looks[0]["lw"]) == ("-", 1.0)


def test_report_writes_curves_and_figures_next_to_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "predefined_sine", "--set", "duration=2", "--record", str(tmp_path / "run")]) == 0
    page = tmp_path / "out" / "sine.html"
    page.parent.mkdir()
    capsys.readouterr()
    words = ["report", str(tmp_path / "run"), "--out", str(page), "--csv", "--figures", "--format", "svg"]
    assert main([*words, "--width", "90"]) == 0
    folder = page.parent
    output = f"{page}\ncurves: {folder / 'sine_curves'}\nfigures: {folder / 'sine_figures'}\n"
    assert capsys.readouterr().out == output
    drawn = {path.stem for path in (folder / "sine_figures").glob("*.svg")}
    assert {"displacement", "control_error", "energy", "synchronisation", "timing"} <= drawn
    written = {path.stem.removesuffix("_samples").removesuffix("_steps") for path in folder.glob("*_curves/*.csv")}
    assert written == drawn


def test_invalid_options_are_refused_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(tmp_path / "none"), "--out", str(tmp_path / "page.html")]
    assert main([*words, "--format", "svg", "--width", "20"]) == 2
    output = capsys.readouterr().err
    assert mentions(output, "--format", "--figures")
    assert mentions(output, "--width", "20 mm", "60", "400 mm")
    assert not list(tmp_path.iterdir())


HEADINGS = {
    "energy_steps": {"input (kJ)", "kinetic (kJ)", "experimental substructure (kJ)"},
    "loads": {"load target force (kN)", "load force (kN)"},
    "copies": {
        "stiffness (of the initial value)",
        "stiffness, copies have (of the initial value)",
        "stiffness, one standard deviation, lower (of the initial value)",
        "mean square of innovation",
    },
}


@pytest.mark.parametrize(
    ("scenario", "table"),
    [
        ("chen_ricles_2010", "energy_steps"),
        ("column_under_axial_load", "loads"),
        ("learning_five_story", "copies"),
    ],
)
def test_headings_of_tables_remain(scenario: str, table: str) -> None:
    """Programs of users read these columns since 0.9.0."""
    tables = dict(row for sheet in sheets(scenario) for row in files.tables(sheet))
    assert HEADINGS[table] <= tables[table].keys()


def test_report_of_force_axis_has_partition_and_load() -> None:
    """A force-controlled axis is not moved by the structure."""
    run = rths_nodes.run("column_under_axial_load", ["duration=1"])
    assert mentions(render(run), "Partition", "numerical")
    tables = {
        name for sheet in figures.drawings(Recordings.one(Evaluation(run))) for name, _ in files.tables(sheet)
    }
    assert "loads" in tables


INCH = 25.4
WIDTHS = (89.0, 183.0)


@cache
def short_run(name: str = "chen_ricles_2010") -> Run:
    return rths_nodes.run(name, duration=2.0)


def stable(millimetres: float | None) -> Drawing:
    return drawn(millimetres, lambda: analyses.stability(judge("three_independent_axes"), "a title"))


def runs(millimetres: float | None) -> Drawing:
    both = [(name, short_run()) for name in ("one", "another")]
    return drawn(millimetres, lambda: compared(both))


def drawn(millimetres: float | None, draw: Callable[[], Drawing]) -> Drawing:
    with in_style(on_paper(millimetres) if millimetres else STYLE):
        figure = draw()
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_figure_has_width_and_embedded_letters(kind: str, width: float, tmp_path: Path) -> None:
    path = tmp_path / f"both.{kind}"
    save(path, width, compared, [("one", short_run())])
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


def test_panels_are_stacked_on_narrow_paper() -> None:
    lefts = {width: {round(panel.get_position().x0, 2) for panel in stable(width).axes} for width in WIDTHS}
    assert len(lefts[89.0]) < len(lefts[183.0]) == 2
    assert not any(text.get_text() for text in stable(89.0).texts)
    assert [text.get_text()[:7] for text in stable(None).texts] == ["a title"]


@pytest.mark.parametrize("draw", [stable, runs])
@pytest.mark.parametrize("width", [None, *WIDTHS])
def test_legends_do_not_overlap_panels(width: float | None, draw: Callable[[float | None], Drawing]) -> None:
    figure = draw(width)
    legends = [*figure.legends, *(panel.get_legend() for panel in figure.axes)]
    boxes = [legend.get_window_extent() for legend in legends if legend]
    assert boxes
    for panel in figure.axes:
        inside = panel.get_window_extent()
        for box in boxes:
            assert box.y0 >= inside.y1 - 1.0 or box.y1 <= inside.y0 or box.x0 >= inside.x1 or box.x1 <= inside.x0


def test_many_runs_differ_by_colour_and_dashes() -> None:
    figure = drawn(None, lambda: compared([(f"run {number}", short_run()) for number in range(8)]))
    looks = {(str(line.get_color()), str(line._dash_pattern)) for line in figure.axes[0].lines[1:]}  # type: ignore[attr-defined]
    assert len(looks) == 8


def test_characterisation_lines_are_sorted_by_frequency() -> None:
    """The amplitudes differ slightly between tests."""
    tests: Any = [SimpleNamespace(wanted=0.02 - 1e-5 * hz, frequency=hz) for hz in (3.0, 0.5, 1.0)]
    (family,) = analyses._by_amplitude(tests).values()
    assert [test.frequency for test in family] == [0.5, 1.0, 3.0]


def test_notebook_figure_is_saved_in_its_style(tmp_path: Path) -> None:
    before = matplotlib.rcParams["pdf.fonttype"]
    panel = short_run().plot("tracking", style="paper", width=183.0)  # type: ignore[attr-defined]
    panel.figure.savefig(tmp_path / "tracking.pdf")
    assert b"/FontFile2" in (tmp_path / "tracking.pdf").read_bytes()
    assert INCH * panel.figure.get_figwidth() == pytest.approx(183.0)
    assert matplotlib.rcParams["pdf.fonttype"] == before
    with pytest.raises(ConfigError, match=naming("style", "poster", "paper")):
        short_run().plot("tracking", style="poster")  # type: ignore[attr-defined]
    pyplot.close("all")


def test_invalid_figure_options_are_refused_before_run(capsys: pytest.CaptureFixture[str]) -> None:
    for options, names in {
        ("--style", "paper"): "--figure",
        ("--figure", "a.pdf", "--width", "89"): "--style paper",
        ("--figure", "a.pdf", "--style", "paper", "--width", "20"): "60",
    }.items():
        assert main(["stability", "chen_ricles_2010", *options]) == 2
        output, error = capsys.readouterr()
        assert not output
        assert names in error


def test_figure_higher_than_page_is_refused(tmp_path: Path) -> None:
    figure = Drawing()
    figure.panels(20)
    with pytest.raises(ConfigError, match="247 mm"):
        save(tmp_path / "tall.pdf", 89.0, lambda: figure)
    assert not [*tmp_path.iterdir()]


ROOT = Path(__file__).parents[2]
SETTINGS = """
text.usetex: True
font.size: 20
lines.linewidth: 7
xtick.labelbottom: False
axes.prop_cycle: cycler('color', ['red'])
"""
SHORT = ["chen_ricles_2010", "--set", "duration=1"]


def page(recording: Path, out: Path, settings: str) -> bytes:
    """The page of a recording from a process with these settings of matplotlib."""
    command = [sys.executable, "-m", "rths_nodes.app.cli", "report", str(recording), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MATPLOTLIBRC": settings}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return out.read_bytes()


def test_page_is_independent_of_user_settings(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text(SETTINGS)
    (tmp_path / "empty").write_text("")
    assert main(["run", *SHORT, "--record", str(tmp_path / "run")]) == 0
    pages = {
        page(tmp_path / "run", tmp_path / "page.html", str(tmp_path / name)) for name in ("matplotlibrc", "empty")
    }
    assert len(pages) == 1


def test_style_starts_from_defaults_and_restores_settings() -> None:
    with matplotlib.rc_context({"text.usetex": True, "xtick.labelbottom": False, "font.size": 20.0}):
        with in_style():
            assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["xtick.labelbottom"]) == (False, True)
            assert matplotlib.rcParams["font.size"] == STYLE["font.size"]
        assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["font.size"]) == (True, 20.0)


def test_failed_page_keeps_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The disk is full after the test."""
    full = tmp_path / "page.html"
    full.symlink_to("/dev/full")
    assert main(["run", *SHORT, "--no-record", "--report", str(full)]) == 0
    output = capsys.readouterr()
    assert mentions(output.out, "chen_ricles_2010", "finished")
    assert mentions(output.err, "page.html", "space", "left")
    assert "report:" not in output.out
