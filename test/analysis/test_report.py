# SPDX-License-Identifier: Apache-2.0
"""Tests of the report: complete, self-contained and safe, with the indices of the test."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import loop_parts
import numpy as np
import pytest
from messages import each_mentions, mentions

import rths_nodes
from rths_nodes.analysis import figures
from rths_nodes.analysis.figures.drawing import RASTER, Recordings
from rths_nodes.analysis.figures.histories import bars
from rths_nodes.analysis.histories import Evaluation, energies, ground_acceleration, strongest
from rths_nodes.analysis.overlay import Aligned, check, differences, names, on_times
from rths_nodes.analysis.report import document
from rths_nodes.analysis.report.document import NO_SAFETY, render, write_report
from rths_nodes.analysis.units import rounded
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

STARTED = "2030-01-02T03:04:05+00:00"
INFORMATION = {"host": "embedded", "pace": "lockstep", "started": STARTED, "version": "9.8.7", "run_id": "r-77"}
TITLES = (
    "Displacement: measured follows target",
    "Tracking in detail: within",
    "Control error: largest",
    "Tracking indicator: magnitude up to",
    "Compensator: Δα ends at",
    "Hysteresis: the specimen carried up to",
    "Energy: the tracking error added",
    "Synchronisation: measured versus target",
    "Equilibrium: the residual is only rounding",
    "Response: ",
    "Excitation: ",
)
VOID = {"meta", "link", "br", "img", "hr", "input", "wbr"}


def simulate(scenario: Scenario) -> Run:
    outcome, run = loop_parts.simulate(scenario)
    information = {"outcome": outcome.state.name.lower(), "reason": outcome.reason, **INFORMATION}
    return dataclasses.replace(run, information=information)


@cache
def paper(*overrides: str) -> Run:
    return simulate(load("chen_ricles_2010", ["duration=4", *overrides]))


@cache
def page() -> str:
    return render(paper())


@cache
def sine(axes: int, noise: float = 0.0) -> Run:
    """The predefined sine with several axes, the actuators of which differ."""
    data = load("predefined_sine", ["duration=3"]).data()
    axis = data["axes"].pop("axis_1")
    axis["sensors"]["displacement_noise_rms"] = noise
    for number in range(axes):
        data["axes"][f"axis_{number + 1}"] = copy.deepcopy(axis)
        data["axes"][f"axis_{number + 1}"]["actuator"]["alpha"] = 29.0 - 3.0 * number
    return simulate(from_data(Scenario, data))


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the text: figures take most of the time."""
    page()  # cached with its figures
    monkeypatch.setattr(figures, "FIGURES", ())


@pytest.fixture
def two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the shading of histories."""
    page()
    monkeypatch.setattr(figures, "FIGURES", figures.FIGURES[:2])


def without(run: Run, samples: int, steps: int, **changes: Any) -> Run:
    """The first ``samples`` and ``steps`` of a run."""
    cut: dict[str, Any] = {}
    for name, values in run.arrays().items():
        if len(values) == len(run.time):
            cut[name] = values[:samples]
        else:
            cut[name] = values[: max(0, steps - (len(run.step_time) - len(values)))]
    return dataclasses.replace(run, **(cut | changes))


def cell(html: str, title: str) -> list[str]:
    """The values in the row ``title`` of the table of indices."""
    row = re.search(rf"<tr><th>{re.escape(title)}(?:<div[^>]*>.*?</div>)?</th>(.*?)</tr>", html)
    assert row, title
    return re.findall(r'<td class="n[^>]*>(.*?)</td>', row[1])


class Balanced(HTMLParser):
    """Checks that every element is closed, and collects attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_self_contained(html: str) -> None:
    assert not re.search(r"https?:|file://|@import|<script|<link|<iframe", html)
    for tag, name, value in Balanced(html).attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value[:60])
        assert not name.startswith("on"), (tag, name)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


def test_page_is_self_contained_and_small() -> None:
    assert_self_contained(page())
    assert len(page()) < 1_000_000


def test_page_of_noisy_run_is_self_contained_and_small() -> None:
    run = sine(3)
    n, rng = 3 * RASTER, np.random.default_rng(1)
    noise = rng.normal(0.0, 1e-3, (n, 3))
    arrays = {
        name: np.resize(values, (n, *values.shape[1:])) + (noise if values.shape[1:] == (3,) else 0)
        for name, values in run.arrays().items()
        if len(values) == len(run.time) and name not in ("time", "step_time", "flags")
    }
    long = dataclasses.replace(
        without(run, 0, 1), **(arrays | {"time": run.scenario.dt * np.arange(n), "flags": np.zeros(n, np.uint32)})
    )
    html = render(long)
    assert "data:image/png;base64," in html
    assert len(html) < 3_000_000
    assert_self_contained(html)


def test_references_inside_page_are_unique() -> None:
    defined = re.findall(r' id="([^"]*)"', page())
    assert len(defined) == len(set(defined))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', page())) <= set(defined)


def test_head_names_run() -> None:
    text = Balanced(page()).text
    for part in (
        *(INFORMATION[key] for key in ("host", "pace", "version", "run_id")),
        *("2030-01-02 03:04:05 UTC", "chen_ricles_2010", "elcentro_1940_ns, scale 0.52", "1024 Hz"),
    ):
        assert part in text
    assert '<span class="badge good">finished</span>' in page()
    assert mentions(page(), "Transport", "samples", "0")
    assert "Samples</dt><dd>4\u202f100</dd>" in page()  # 4 s are 410 whole steps of 10 samples
    assert NO_SAFETY in text
    assert mentions(NO_SAFETY, "software stop", "not a safety function")


def test_page_has_largest_error_figures_and_scenario() -> None:
    index = paper().metrics["axes"]["story_1"]
    millimetres, percent = rounded(index["max_error_m"], 1e3, 2), rounded(index["max_error_percent"], 1.0, 2)
    assert mentions(page(), millimetres, percent)
    text = Balanced(page()).text
    assert all(title in text for title in TITLES)
    labels = ("displacement (mm)", "restoring force (kN)", "tracking indicator (mm²)", "HSEM, running (%)")
    assert all(label in text for label in (*labels, "energy (kJ)"))
    assert page().count("<svg") == len(TITLES)
    assert all(part in page() for part in ("k_p_per_mm2: 0.4", "<summary>Scenario"))


@pytest.mark.parametrize(
    ("value", "factor", "shown"),
    [
        (0.000944182, 1e3, "0.944"),
        (3.2095, 1.0, "3.21"),
        (-0.0294183, 1e3, "−29.4"),
        (1234.56, 1.0, "1\u202f235"),
        (0.00002, 1.0, "0.000"),
        (-0.00002, 1.0, "0.000"),
        (0.0, 1.0, "0"),
        (math.nan, 1.0, "–"),
        (math.inf, 1.0, "–"),
        (None, 1.0, "–"),
        (9.999, 1.0, "10.00"),
    ],
)
def test_values_are_rounded_for_display(value: float | None, factor: float, shown: str) -> None:
    assert rounded(value, factor) == shown


@pytest.mark.usefixtures("no_figures")
def test_indices_are_shown_rounded_with_units() -> None:
    made_up = {
        "axes": {
            "story_1": {
                "max_error_m": 0.00123456,
                "max_error_percent": 3.45678,
                "error_norm_percent": 0.98765,
                "delay_s": -0.000456,
                "tracking_indicator_m2": 12.3456e-6,
            }
        },
        "hsem_percent": math.nan,
        "max_displacement_m": 0.0312345,
        "min_displacement_m": -0.0298765,
        "end_displacement_m": 0.0,
    }
    html = render(dataclasses.replace(paper(), metrics=made_up))
    assert cell(html, "Largest control error") == ["1.23"]
    assert cell(html, "Largest control error, relative (J3)") == ["3.46"]
    assert cell(html, "Error norm (J2)") == ["0.988"]
    assert cell(html, "Delay (J1)") == ["−0.456"]
    assert cell(html, "Tracking indicator at the end") == ["12.3"]
    assert cell(html, "Energy error HSEM") == ["–"]
    assert cell(html, "Largest displacement") == ["31.2"]
    assert cell(html, "Smallest displacement") == ["−29.9"]
    assert cell(html, "Displacement at the end") == ["0"]
    assert "0.46\u00a0ms early" in html
    for unit in ("mm", "%", "ms", "mm²"):
        assert f'<td class="unit">{unit}</td>' in html


@pytest.mark.usefixtures("no_figures")
def test_recording_without_indices_shows_dashes() -> None:
    html = render(dataclasses.replace(paper(), metrics={}, information={}))
    assert cell(html, "Error norm (J2)") == ["–"]
    assert '<span class="badge unknown">unknown</span>' in html
    assert mentions(html, "indices", "recorded")


def test_true_indices_are_shown_only_with_sensor_noise(no_figures: None) -> None:
    assert "story_1 true" not in page()
    run = sine(2, noise=2e-5)
    html = render(run)
    assert re.findall(r'<th class="n">(axis_\d (?:measured|true))</th>', html) == [
        f"axis_{n} {kind}" for n in (1, 2) for kind in ("measured", "true")
    ]
    samples = Evaluation(run).counted
    shown = cell(html, "Largest control error")
    for kind, displacement in enumerate((run.displacement, run.true_displacement)):
        error = np.abs(run.target - displacement)[samples].max(axis=0)
        assert shown[kind::2] == [rounded(float(value), 1e3) for value in error]


def test_true_indices_equal_measured_with_perfect_sensors() -> None:
    run = sine(2)
    again = Evaluation(run).indices(true=True)
    for name, index in run.metrics["axes"].items():
        assert {key: again[name][key] for key in index} == pytest.approx(index, rel=1e-9, abs=1e-15)


def test_noise_affects_only_measured_indices() -> None:
    """With an exact inverse the true error is zero, and J2 of the measured one is the noise over the target."""
    overrides = ["compensator={type: inverse, alpha: 29}", "axes.axis_1.sensors.displacement_noise_rms=2e-5"]
    run = simulate(load("predefined_sine", ["duration=3", *overrides]))
    measured = Evaluation(run).indices()["axis_1"]
    assert Evaluation(run).indices(true=True)["axis_1"]["error_norm_percent"] < 1e-6
    assert measured["error_norm_percent"] == pytest.approx(100.0 * 2e-5 / np.std(run.target), rel=0.05)


def test_frequency_evaluation_equals_response_of_plant() -> None:
    """alpha = 29 without compensation: 28 samples of delay for a slow motion, gain slightly below 1."""
    run = simulate(load("predefined_sine", ["duration=4", "compensator.type=none"]))
    index = Evaluation(run).indices()["axis_1"]
    response = 1.0 / (1.0 + 28.0 * (1.0 - np.exp(-2j * math.pi / 1024.0)))  # Eq. (3) at 1 Hz
    assert index["fei_frequency_hz"] == pytest.approx(1.0, abs=0.05)
    assert index["fei_amplitude"] == pytest.approx(abs(response), rel=2e-3)
    assert index["fei_delay_s"] == pytest.approx(-np.angle(response) / (2.0 * math.pi), rel=0.03)
    assert index["delay_s"] == pytest.approx(index["fei_delay_s"], rel=0.03)


def test_report_excludes_soft_start(two_figures: None) -> None:
    overrides = ["soft_start={amplitude: 0.003, duration: 0.5, rise_time: 0.2, fall_time: 0.2, rest_time: 0.3}"]
    run = paper(*overrides)
    first = Evaluation(run).first_sample
    assert first == 1 + run.scenario.soft_start_steps * run.scenario.samples_per_step
    assert Evaluation(run).counted[0] == first
    running, index = Evaluation(run).running, run.metrics["axes"]["story_1"]
    assert running.tracking_indicator[-1, 0] == pytest.approx(index["tracking_indicator_m2"], rel=1e-9)
    percent = 100.0 * running.energy_error[-1] / running.input_energy[-1]
    assert percent == pytest.approx(run.metrics["hsem_percent"], rel=1e-9)
    again = Evaluation(run).indices()["story_1"]
    assert {key: again[key] for key in index} == pytest.approx(index, rel=1e-9)
    parts = energies(Evaluation(run))
    assert all(not values[: run.scenario.soft_start_steps].any() for values in parts.values())
    html = render(run)
    assert mentions(html, "Flagged", first - 1)
    assert f"soft start ({first - 1})" in html


def test_tripped_run_shows_reason_and_safe_stop(two_figures: None) -> None:
    run = paper("axes.story_1.limits.force=2.0e5")
    assert run.outcome == "tripped"
    html = render(run)
    assert '<span class="badge bad">tripped</span>' in html
    assert "axes.story_1.limits.force: measured = " in html
    assert mentions(html, "test", "limit")
    assert f"safe stop ({int(np.sum(run.flags & FLAG_TRIPPED > 0))})" in html
    assert "safe stop (" not in page()


def test_bridged_samples_are_shaded_and_counted(two_figures: None) -> None:
    flags = paper().flags.copy()
    flags[100:117] |= FLAG_BRIDGED
    html = render(dataclasses.replace(paper(), flags=flags))
    assert all(part in html for part in ("bridged (17)", "Flagged samples: 17 bridged."))


def test_pauses_and_slowed_samples_are_explained(two_figures: None) -> None:
    flags = paper().flags.copy()
    flags[100:109] |= FLAG_SLOWED
    timing = {"pauses": 2.0, "slowed": 9.0, "paused_s": 0.31}
    html = render(dataclasses.replace(paper(), flags=flags, timing=timing))
    assert "slowed (9)" in html
    assert mentions(html, "9", "paused", "2", "0.31 s")
    assert mentions(html, "9", "slowed", "valid")


def test_stop_before_first_step_is_reported() -> None:
    html = render(paper("axes.story_1.limits.velocity=1e-9"))
    assert all(part in html for part in ("axes.story_1.limits.velocity", "to the stop"))


SOAK = [pytest.param(*numbers, marks=pytest.mark.soak) for numbers in ((0, 1), (2, 2))]


@pytest.mark.parametrize(("samples", "steps"), [(0, 0), (1, 1), (12, 3), *SOAK])
def test_tiny_runs_are_reported(samples: int, steps: int) -> None:
    run = without(paper(), samples, steps, information={"outcome": "tripped", "reason": "too soon"}, metrics={})
    html = render(run)
    assert_self_contained(html)
    assert "too soon" in html


def test_gaps_in_recording_are_reported() -> None:
    run = paper()
    holes = {name: values.copy() for name, values in run.arrays().items() if values.dtype == float}
    measured = ("displacement", "force", "true_displacement", "true_force")
    for name in ("target", "command", *measured, "compensator"):
        holes[name][2000:2100] = np.nan
    html = render(dataclasses.replace(run, **holes))
    assert all(title in html for title in TITLES)
    assert "nan" not in Balanced(html).text


def test_hostile_names_are_escaped() -> None:
    evil = "<script>alert('&\"1')</script>{x}"
    html = render(
        dataclasses.replace(
            paper(),
            scenario=attrs.evolve(paper().scenario, name=evil, description=evil),  # bypasses validation
            information={"outcome": evil, "reason": evil, "host": evil, evil: evil},
            compensator_names=("axes.story_1.$" + evil, "axes.story_1.$\\frac", evil),
        )
    )
    assert_self_contained(html)
    assert Balanced(html).text.count(evil) >= 6


def test_unwritable_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "render", lambda run, reference, test, defaults: "page")
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "report.html", tmp_path):
        with pytest.raises(OSError, match=re.escape(str(tmp_path))):
            write_report(paper(), path)


def test_report_is_reproducible(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "report.html"
    write_report(paper(), file)
    assert file.read_text(encoding="utf-8") == page()
    assert page().startswith("<!DOCTYPE html>")


def test_several_axes_share_figures_and_legend() -> None:
    html = render(sine(2))
    assert len(cell(html, "Error norm (J2)")) == 2
    assert cell(html, "Energy error HSEM") == ["–"]  # no structure: no input energy
    text = Balanced(html).text
    assert all(f"measured axis_{number}" in text for number in (1, 2))
    assert mentions(text, "2", "followed", "targets")
    assert "sine, amplitude 0.02 m, frequency 1 Hz" in text
    assert "numerical substructure (computed)" not in text


@pytest.mark.usefixtures("no_figures")
def test_timing_has_table_and_figure() -> None:
    clock = {"mean_s": 22.5e-6, "median_s": 21e-6, "p99_s": 43.21e-6, "p999_s": 0.0001, "max_s": None}
    edges = np.geomspace(1e-6, 1.0, 61).tolist()
    timing = {
        "loop": clock,
        "lateness": clock | {"max_s": 1.5e-3},
        "missed": 3,
        "bridged": 0,
        "loop_histogram": {"edges_s": edges, "counts": [0.0] * 10 + [5.0, 100.0, 1.0] + [0.0] * 47},
        "lateness_histogram": {"edges_s": edges, "counts": []},  # inconsistent: not drawn
    }
    information = paper().information | {"pace": "realtime"}
    html = render(dataclasses.replace(paper(), timing=timing, information=information))
    assert cell(html, "Computing time of one sample") == ["22.5", "21.0", "43.2", "100", "–"]
    assert cell(html, "Lateness of a tick") == ["22.5", "21.0", "43.2", "100", "1\u202f500"]
    assert "Missed ticks: 3." in html
    assert html.count("<svg") == 1
    assert mentions(html, "servo period", "977\u00a0µs")
    assert "servo period" in html[html.index("<svg") :]
    assert mentions(page(), "timing", "recorded")
    lockstep = render(dataclasses.replace(paper(), timing=timing))
    assert cell(lockstep, "Computing time of one sample") == ["22.5", "21.0"]
    assert "no servo period" in lockstep
    assert not any(part in lockstep for part in ("99.9 %", "977\u00a0µs", "<svg"))


@pytest.mark.parametrize("overrides", [(), ("axes.story_1.limits.force=2.0e5",)])
def test_running_indices_end_at_indices_of_test(overrides: tuple[str, ...]) -> None:
    run = paper(*overrides)
    running = Evaluation(run).running
    axis = run.metrics["axes"]["story_1"]
    assert running.tracking_indicator[-1, 0] == pytest.approx(axis["tracking_indicator_m2"], rel=1e-9)
    percent = 100.0 * running.energy_error[-1] / running.input_energy[-1]
    assert percent == pytest.approx(run.metrics["hsem_percent"], rel=1e-9)
    assert np.abs(running.control_error).max() == axis["max_error_m"]
    scale = abs(running.input_energy[-1]) + running.elastic_energy
    assert running.energy_error_percent[-1] == pytest.approx(100.0 * running.energy_error[-1] / scale, rel=1e-3)
    assert running.elastic_energy == pytest.approx(0.5 * 11.76e6 * 0.010**2)
    run = sine(2)
    running = Evaluation(run).running
    expected = [run.metrics["axes"][name]["tracking_indicator_m2"] for name in run.axes]
    assert running.tracking_indicator[-1].tolist() == pytest.approx(expected, rel=1e-9)
    assert np.isnan(running.energy_error_percent).all()


def test_input_energy_equals_sum_of_parts() -> None:
    run = paper()
    parts = energies(Evaluation(run))
    total = parts.pop("input")
    force, moved = run.external_force[:, 0], run.dof_displacement[: len(total), 0]
    np.testing.assert_allclose(np.diff(total), 0.5 * (force[1:] + force[:-1]) * np.diff(moved), atol=1e-8)
    balance = total - sum(parts.values())
    assert np.abs(balance).max() < 0.02 * total.max()  # the explicit algorithm's velocity leads by half a step
    assert abs(balance[-1]) < 0.003 * total[-1]


def test_ground_acceleration_equals_record() -> None:
    run = paper()
    assembly = Assembly(run.scenario)
    structure = assembly.structure
    force = assembly.external_force[: len(run.external_force)]
    np.testing.assert_allclose(
        ground_acceleration(Evaluation(run)), -force[:, 0] / structure.mass[0, 0], rtol=1e-12
    )


def test_states_are_grouped_by_quantity() -> None:
    states = Evaluation(sine(2)).states
    assert set(states) == {"alpha", "delta_alpha", "tracking_indicator"}
    assert set(states["alpha"]) == {"axis_1", "axis_2"}
    mixed = dataclasses.replace(sine(2), compensator_names=("gain", "axes.a.x", "b", "c", "d", "e"))
    assert set(Evaluation(mixed).states["gain"]) == {""}


def test_histogram_bars_have_no_empty_ends() -> None:
    edges, counts = bars({"edges_s": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "counts": [0.0, 2.0, 0.0, 1.0, 0.0]})
    assert edges.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert counts.tolist() == [2.0, 0.0, 1.0]
    for empty in ({}, {"edges_s": [1.0, 2.0], "counts": [0.0]}, {"edges_s": [1.0], "counts": [1.0]}):
        assert [len(values) for values in bars(empty)] == [0, 0]


def test_strongest_window_ignores_constant_offset() -> None:
    time = np.arange(0.0, 20.0, 0.01)
    values = np.where(time > 12.0, 0.05, 0.0) + 0.04 * np.sin(20.0 * time) * (np.abs(time - 6.0) < 1.0)
    start, end = strongest(time, values[:, None], 2.0)
    assert start == pytest.approx(5.0, abs=0.1)
    assert end - start == pytest.approx(2.0)


def test_matplotlib_is_imported_only_by_report() -> None:
    code = (
        "import sys, rths_nodes.loop.embedded, rths_nodes.recording.run, rths_nodes.analysis.histories;"
        "assert 'matplotlib' not in sys.modules;"
        "import rths_nodes.analysis.report.document;"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# Several recordings on one page


@cache
def recorded(name: str = "predefined_sine", *overrides: str) -> Run:
    return rths_nodes.run(name, ["duration=3", *overrides])


def aligned(name: str, run: Run) -> Aligned:
    return Aligned(name, Evaluation(run))


def test_difference_of_scaled_copy_is_its_scale() -> None:
    run = recorded()
    larger = dataclasses.replace(run, displacement=1.1 * run.displacement)
    first = aligned("A", run)
    assert all(difference.largest == 0.0 for difference in differences(first, aligned("B", run)).values())
    difference = differences(first, aligned("B", larger))["displacement of axis_1"]
    assert (difference.rms_share, difference.largest_share) == (pytest.approx(0.1), pytest.approx(0.1))
    moved = run.displacement[first.rows, 0]
    assert difference.rms == pytest.approx(0.1 * math.sqrt(np.mean(moved**2)))
    assert difference.at == first.time[np.argmax(np.abs(moved))]


def test_other_times_are_interpolated_without_extrapolation() -> None:
    time, source = np.linspace(0.0, 2.0, 9), np.linspace(0.0, 1.0, 11)
    values = on_times(time, source, 3.0 * source)
    np.testing.assert_allclose(values[:5], 3.0 * time[:5])
    assert np.isnan(values[5:]).all()
    np.testing.assert_array_equal(on_times(source, source[:4], source[:4])[:4], source[:4])


def test_slow_test_is_aligned_with_real_time_test() -> None:
    """The target of a predefined sine does not depend on the rate."""
    fast, slow = aligned("A", recorded()), aligned("B", recorded("predefined_sine", "time_ratio=4"))
    assert slow.time[-1] == pytest.approx(fast.time[-1])
    error = on_times(fast.time, slow.time, slow.target[:, 0]) - fast.target[:, 0]
    assert np.nanmax(np.abs(error)) < 0.01 * np.abs(fast.target).max()


def test_incompatible_tests_are_refused_by_name() -> None:
    longer, other = recorded("predefined_sine", "duration=4"), recorded("chen_ricles_2010")
    with pytest.raises(ConfigError) as error:
        check({"A": recorded(), "B": longer, "C": other})
    assert each_mentions(error.value.problems, ("B", "duration", "4 s", "3 s"), ("C", "axes", "story_1", "axis_1"))


def test_names_are_shortest_distinct_endings() -> None:
    assert names([("x", "A"), ("x", "B")]) == ["A", "B"]
    assert names([("x", "T1", "rung_g"), ("x", "T2", "rung_g")]) == ["T1/rung_g", "T2/rung_g"]
    assert names([("x", "A"), ("x", "A")]) == ["A (1)", "A (2)"]


def test_page_lists_unfinished_tests_first(tmp_path: Path) -> None:
    stopped = recorded("chen_ricles_2010", "axes.story_1.limits.force=2.0e5")
    tests = [("A", recorded("chen_ricles_2010"), None), ("B<i>", stopped, None)]
    document.write_comparison(tests, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = re.search(r'<header>\s*<p class="first">(.*?)</p>', page)
    assert first
    assert mentions(first[1], "B", "tripped")
    assert "A:" not in first[1]
    assert "1 of 2 finished" in page
    assert "axes.story_1.limits.force" in page.replace("<wbr>", "")
    assert "<i>" not in page
    assert page.count("<svg") == 8  # too short for the delay over time
    for title in ("Displacement", "Difference from A", "Control error", "Force", "Response", "Energy"):
        assert re.search(rf"</span>{title}</h3>", page)


def test_single_test_shares_panel_and_several_have_one_per_axis() -> None:
    run = recorded("three_independent_axes")
    tests = [aligned("A", run), aligned("B", run)]
    alone, both = (
        next(figure for figure in figures.drawings(shown) if figure.name == "control_error")
        for shown in (Recordings.one(Evaluation(run)), Recordings(tests))
    )
    ((_, table),), ((_, several),) = alone.tables, both.tables
    assert [*table] == [f"control error {axis} (mm)" for axis in run.axes]
    assert len(alone.axes) == 1
    assert [panel.get_ylabel().replace("\n", " ") for panel in both.axes] == [*table]
    for axis in run.axes:
        for name in "BA":
            values = several[f"{name}: control error {axis} (mm)"]
            np.testing.assert_array_equal(values, table[f"control error {axis} (mm)"])


def test_report_command_compares_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, changes in (("A", []), ("B", ["--set", "compensator.type=none"])):
        arguments = ["run", "predefined_sine", "--set", "duration=2", *changes, "--record", str(tmp_path / name)]
        assert main(arguments) == 0
    capsys.readouterr()
    page = tmp_path / "both.html"
    assert main(["report", str(tmp_path / "A"), str(tmp_path / "B"), "--out", str(page), "--csv"]) == 0
    assert capsys.readouterr().out == f"{page}\ncurves: {tmp_path / 'both_curves'}\n"
    head = (tmp_path / "both_curves" / "displacement.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head == "time (s),A: target (mm),A: displacement (mm),B: displacement (mm)"
    assert main(["report", str(tmp_path / "A"), str(tmp_path / "B"), "--reference"]) == 2


def sections(run: Run | None, file: Path) -> dict[str, str]:
    """Sections of the report on ``run`` by title, except those about the host."""
    assert run is not None
    write_report(run, file)
    matches = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", file.read_text(encoding="utf-8"), re.DOTALL)
    # ids are hashes of layout coordinates, whose last bits depend on the order of the solver
    ids = re.compile(r"(?<=[#\"])[pm][0-9a-f]{10}\b")
    return {title: ids.sub("", text) for title, text in matches if title not in ("Timing", "Test")}


@pytest.mark.nodes(ros=True)
def test_report_on_recording_equals_report_on_run(tmp_path: Path) -> None:
    loaded = files.load("phillips_spencer_2012", ["duration=1"], "f")
    expected = sections(hosts.run(loaded, record=tmp_path / "embedded").run, tmp_path / "live.html")
    floor = "Error and floor of the sensor"
    parameters = "Parameters that differ from their defaults"
    assert list(expected) == ["Figures", "Indices", floor, "Limits", "Set-up", parameters]
    assert any("svg" in text for text in expected.values())
    hosts.run(loaded, host="composed", record=tmp_path / "composed", keep=False)
    for host in ("embedded", "composed"):
        assert sections(rths_nodes.read(tmp_path / host), tmp_path / f"{host}.html") == expected, host
