"""Many runs at a time, in arrays: what the benchmarks' programs compute once more is what the loop does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from array_coupler import ArrayCoupler

from rths_nodes.app.studies import design, runs
from rths_nodes.core.samples import Motion
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LEFT_OUT = 8
"""Indices of the upper stories, of which nothing is measured: the table has them once, the package for both."""


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0].endswith("at_once")]:
        sys.modules.pop(name)


def rows_of(study: str, folder: Path, *changes: tuple[str, str]) -> list[design.Row]:
    text = (BENCHMARKS / "studies" / f"{study}.yaml").read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    return list(design.load(folder / "study.yaml").rows())


def of_the_package(row: design.Row) -> dict[str, float]:
    values = runs.guarded(row.scenario, False, False, lambda _: None)
    assert values["outcome"] == "finished"
    published: dict[str, float] = values["published"]
    return published


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("rths_benchmark_2020", ("lead=1e-3",)),
        ("marths_2023", ("lead=0",)),
        ("marths_2023", ("lead=2e-3", "order=1")),
    ],
)
def test_the_law_of_many_runs_is_that_of_each(name: str, changes: tuple[str, ...]) -> None:
    """By targets of all sizes and with an offset: errors are cut off, coefficients come to their bounds."""
    program = import_module("at_once.learned_inverse")
    scenario = files.load(name, [f"compensator.{change}" for change in changes])
    laws = [Assembly(scenario).compensator for _ in range(3)]
    n, dt = len(scenario.axes), scenario.dt
    many = program.LearnedInverse(scenario.compensator, dt, np.full(3, scenario.compensator.lead))
    random, sizes = np.random.default_rng(4), np.array([1e-5, 1e-3, 1e-2])
    for k in range(400):
        x, v, a = (
            sizes * np.sin(20.0 * k * dt + order + np.arange(n)[:, None]) * 20.0**order for order in range(3)
        )
        measured = 1.2 * x + 1e-4 + 1e-5 * random.standard_normal((n, 3))
        found = many.step(x, v, a, measured)
        for i, law in enumerate(laws):
            command = law.step(Motion(x[:, i], v[:, i], a[:, i]), measured[:, i])
            np.testing.assert_allclose(found[:, i], command, rtol=1e-9, atol=1e-12 * sizes[i])
    distance = np.array([law.state()[-n:] for law in laws]).T
    np.testing.assert_allclose(many.distance, distance, rtol=1e-6)
    assert distance[:, 0].max() < 1.0
    assert distance[0, 2] == pytest.approx(3.0)


def test_the_coupler_of_many_runs_is_that_of_each() -> None:
    program = import_module("at_once.coupler")
    geometry = files.load("marths_2023").setup
    one, many = ArrayCoupler(geometry, 2, 2, "coupler"), program.LongCoupler(geometry)
    random = np.random.default_rng(5)
    x, v, a, forces = random.uniform(-1.0, 1.0, (4, 2, 6)) * [[[0.02], [0.15]]]
    axes = many.axes(x, v, a)
    pose, beyond = many.pose(axes[0])
    assert not beyond.any()
    np.testing.assert_allclose(pose, x, atol=1e-12)
    np.testing.assert_allclose(many.motion(x, *axes[1:]), (v, a), atol=1e-12)
    for i in range(x.shape[1]):
        single = one.axes(Motion(x[:, i], v[:, i], a[:, i]))
        alone = single.displacement, single.velocity, single.acceleration
        np.testing.assert_allclose([values[:, i] for values in axes], alone, atol=1e-14)
        np.testing.assert_allclose(many.forces(forces, x)[:, i], one.forces(forces[:, i], x[:, i]), atol=1e-14)
        balanced = one.axis_forces(forces[:, i], x[:, i])
        np.testing.assert_allclose(many.axis_forces(forces, x)[:, i], balanced, atol=1e-12)
    x[1, 2] = 1.01 * geometry.largest_rotation
    assert many.pose(many.axes(x, v, a)[0])[1].tolist() == [False, False, True, False, False, False]


def test_what_the_program_cannot_is_refused(tmp_path: Path) -> None:
    program = import_module("marths_at_once")
    one = ("plants: 1000", "plants: 1")
    factor = "factors:\n  compensator.learning: {list: [true, false]}"
    with pytest.raises(SystemExit, match="run 1: compensator differs from that of run 0: only rths study can"):
        program.run(rows_of("marths_thousand", tmp_path, one, ("factors:", factor)))
    rows = rows_of("marths_thousand", tmp_path, one, ("plants:", "set: {force_lead: 1.0e-3}\nplants:"))
    with pytest.raises(SystemExit, match="run 0: force_lead differs from marths_2023: only rths study can"):
        program.run(rows)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(7.0, marks=pytest.mark.soak)])
def test_many_rigs_are_the_runs_of_the_loop(seconds: float, tmp_path: Path) -> None:
    """To rounding: before the earthquake, by the noise of the sensors alone, and into its strong part."""
    program = import_module("marths_at_once")
    rows = rows_of("marths_thousand", tmp_path, ("plants: 1000", f"plants: 2\nset: {{duration: {seconds}}}"))
    found = program.run(rows)
    assert not found["limit_broken"].any()
    for index, row in enumerate(rows):
        values = of_the_package(row)
        shared = values.keys() & found.keys()
        assert len(shared) == len(values) - LEFT_OUT
        for name in shared:
            assert found[name][index] == pytest.approx(values[name], rel=1e-6, abs=1e-9, nan_ok=True), name


@pytest.mark.parametrize(
    ("limit", "breach"), [("velocity: 0.2", "limits.velocity"), ("force: 450.0", "limits.force")]
)
def test_a_run_that_a_limit_stops_is_marked(limit: str, breach: str, tmp_path: Path) -> None:
    """The noise of the force alone breaks it, of every rig."""
    program = import_module("marths_at_once")
    name, value = limit.split(": ")
    changes = f"set: {{duration: 0.5, axes.actuator_2.limits.{name}: {value}}}"
    rows = rows_of("marths_thousand", tmp_path, ("plants: 1000", f"plants: 1\n{changes}"))
    assert program.run(rows)["limit_broken"].all()
    values = runs.guarded(rows[0].scenario, False, False, lambda _: None)
    assert values["outcome"] == "tripped"
    assert breach in values["reason"]


@pytest.mark.long
def test_many_plants_are_the_runs_of_the_loop(tmp_path: Path) -> None:
    """With force_lead and with a lead, the first plant and one beside it."""
    program = import_module("plants_at_once")
    rows = rows_of(
        "identified_inverse_bounds",
        tmp_path,
        ("list: [1, 2, 3]", "list: [5]"),
        ("[case_1, case_2, case_3, case_4]", "[case_2]"),
        ("nominal: true", "nominal: false"),
        ("plants: 20", "plants: 2\nset: {duration: 6.0}"),
    )
    assert len(rows) == 4
    found = program.run(rows)
    assert not found["limit_broken"].any()
    assert not found["beyond"].any()
    for index, row in enumerate(rows):
        values = of_the_package(row)
        shared = {name for name in values.keys() & found.keys() if "percent" in name}
        assert len(shared) == 11
        for name in shared:
            assert found[name][index] == pytest.approx(values[name], rel=1e-9, abs=1e-9), name
