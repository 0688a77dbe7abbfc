# SPDX-License-Identifier: Apache-2.0
"""Tests of the corridor: predicted runs stay inside, other specimens leave it identically on every host."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.figures import histories as figure
from rths_nodes.analysis.figures.drawing import Drawing, Recordings
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.monitor import Corridor, CorridorWatch, corridor_quantities, load_corridor

NAME, AXIS = "chen_ricles_2010", "story_1"
STIFFNESS = f"axes.{AXIS}.specimen.stiffness"
SHORT = ["duration=2.5", f"scatter={{{STIFFNESS}: {{uniform: [7.2e6, 8.0e6]}}}}"]
SETS = [argument for override in SHORT for argument in ("--set", override)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corridor of a short test."""
    path = tmp_path_factory.mktemp("corridor") / "corridor.npz"
    options = ["--plants", "3", "--margin", "0.01", "--out", str(path), "--jobs", "1"]
    assert main(["corridor", NAME, *SETS, *options]) == 0
    return path


def wide(n: int, n_axes: int = 1) -> Corridor:
    """Corridor of displacement and force within +- 1, any energy."""
    upper = np.ones((3, n, n_axes))
    upper[2] = np.inf
    return Corridor(tuple("ab"[:n_axes]), 100.0, "by hand", -upper, upper, np.zeros_like(upper))


def test_absorbed_energy_of_dashpot_is_exact() -> None:
    """Dashpot: pi c omega X^2 per cycle."""
    time = np.linspace(0.0, 1.0, 4001)[:, None]
    omega = 2.0 * math.pi
    values = corridor_quantities(0.1 * np.sin(omega * time), 3.0 * 0.1 * omega * np.cos(omega * time))
    assert values[2, -1, 0] == pytest.approx(math.pi * 3.0 * omega * 0.1**2, rel=1e-5)
    assert values.shape == (3, 4000, 1)


def test_watched_energies_equal_predicted_ones() -> None:
    """``quantities`` evaluates complete histories, the watch single samples."""
    x, f = np.random.default_rng(7).normal(0.0, 1.0, (2, 300, 2))
    watch, energies = CorridorWatch(wide(300, 2), 1), []
    for sample in range(300):
        watch.step(sample, x[sample].tolist(), f[sample].tolist())
        energies.append(watch.energies)
    np.testing.assert_array_equal(corridor_quantities(x, f)[2], energies[1:])


def test_samples_outside_are_counted() -> None:
    rng = np.random.default_rng(3)
    x = np.cumsum(rng.normal(0.0, 0.2, (500, 2)), axis=0)
    f = rng.normal(0.0, 0.4, (500, 2))
    watch = CorridorWatch(wide(500, 2), 5)
    for sample in range(500):
        watch.step(sample, x[sample].tolist(), f[sample].tolist())
    outside = np.abs(x) > 1.0
    ends = [k for k in range(4, 500) if outside[k - 4 : k + 1].all(axis=0).any()]
    assert watch.left is not None
    assert watch.left[0] == ends[0]
    assert watch.metrics()["displacement_outside_percent"] == pytest.approx(100.0 * outside.mean(axis=0).max())
    assert watch.metrics()["force_outside_percent"] == pytest.approx(100.0 * (np.abs(f) > 1.0).mean(axis=0).max())


def test_plant_within_scatter_stays_inside(file: Path) -> None:
    metrics = rths_nodes.run(NAME, [*SHORT, f"monitor.corridor={file}"]).metrics["corridor"]
    assert math.isnan(metrics.pop("left_at_sample"))
    assert all(value == 0.0 for value in metrics.values() if not math.isnan(value))


@pytest.mark.nodes
def test_other_specimen_trips_at_same_sample_on_hosts(file: Path, tmp_path: Path) -> None:
    overrides = [*SHORT, f"monitor.corridor={file}", "monitor.corridor_action=trip", f"{STIFFNESS}=6.0e6"]
    embedded, composed = (
        hosts.run(NAME, overrides, host=host, record=tmp_path / host) for host in ("embedded", "composed")
    )
    assert (embedded.outcome, composed.outcome) == ("tripped", "tripped")
    assert embedded.reason == composed.reason.replace("monitor: ", "", 1)  # nodes add the node that tripped
    assert f"monitor.corridor: axes.{AXIS}: " in embedded.reason
    samples = [result.metrics["corridor"]["left_at_sample"] for result in (embedded, composed)]
    assert samples[0] == samples[1] > 0


def test_default_action_is_a_note(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    sets = [*SETS, "--set", f"monitor.corridor={file}", "--set", f"{STIFFNESS}=6.0e6"]
    assert main(["run", NAME, *sets, "--record", str(run)]) == 0
    assert mentions(capsys.readouterr().out, "note", "corridor")
    caption = figure.corridor(Drawing(), Recordings.one(Evaluation(rths_nodes.read(run))))
    assert caption is not None
    assert mentions(caption[0], "Corridor", "exceeded")
    file.rename(tmp_path / "elsewhere.npz")  # a report notes that the corridor is missing
    try:
        assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    finally:
        (tmp_path / "elsewhere.npz").rename(file)
    assert mentions((tmp_path / "page.html").read_text(encoding="utf-8"), "cannot be read")


@pytest.mark.parametrize(
    ("axes", "rate", "samples", "message"),
    [
        (("b",), 100.0, 10, ("axes", "test")),
        (("a",), 200.0, 10, ("100 Hz", "200 Hz")),
        (("a",), 100.0, 50, ("49", "50")),
    ],
)
def test_corridor_of_another_test_is_refused(
    axes: tuple[str, ...], rate: float, samples: int, message: tuple[str, ...], tmp_path: Path
) -> None:
    wide(50).save(tmp_path / "c.npz")
    with pytest.raises(ConfigError, match=naming(*message)):
        load_corridor(str(tmp_path / "c.npz"), axes, rate, samples)


def test_invalid_corridor_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("text.npz", b"no archive"), ("cut.npz", b"PK\x03\x04 cut")):
        (tmp_path / name).write_bytes(content)
        assert main(["run", NAME, "--set", f"monitor.corridor={tmp_path / name}"]) == 2
        assert mentions(capsys.readouterr().err, "corridor", "rths")
    assert main(["check", NAME, "--set", "monitor.corridor_action=trip"]) == 2
    assert mentions(capsys.readouterr().err, "monitor.corridor", "requires")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--plants", "0"], 2, ("--plants", "0", ">= 1")),
        (["--margin", "inf"], 2, ("--margin", "inf", "finite")),
        (["--set", "scatter={}"], 2, ("scatter", "draw")),
        (["--set", f"axes.{AXIS}.limits.force=1e3", "--jobs", "1"], 3, ("finish", "plant")),
    ],
)
def test_impossible_prediction_is_refused(
    options: list[str], code: int, message: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corridor", NAME, *SETS, "--out", str(tmp_path / "c.npz"), *options]) == code
    assert mentions("".join(capsys.readouterr()), *message)
    assert not (tmp_path / "c.npz").exists()


def test_json_output_contains_widths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--out", str(tmp_path / "c.npz"), "--json", "--jobs", "1", "--plants", "1"]
    assert main(["corridor", NAME, *SETS, *options, "--set", "duration=0.2"]) == 0
    assert set(json.loads(capsys.readouterr().out)["widest"][AXIS]) == {"displacement", "force", "energy"}
