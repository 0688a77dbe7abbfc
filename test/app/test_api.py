# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python interface: functions, overrides, user-defined components, results."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import runpy
import types
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions, naming

import rths_nodes
from rths_nodes.app import api, keywords
from rths_nodes.app.studies import engine
from rths_nodes.app.studies.scoreboard import Scoreboard
from rths_nodes.app.studies.study import Study
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.compensators.polynomial import Polynomial
from rths_nodes.core import Kernel, no_state, number, params, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.options import PYTHON, options
from rths_nodes.loop.scenario.schema import Scenario

pytestmark = pytest.mark.usefixtures("empty_registry")

CHEN = "chen_ricles_2010"
BENCHMARK = "rths_benchmark_2020"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_compensator.py"
FUNCTIONS = [name for name in rths_nodes.__all__ if inspect.isfunction(getattr(rths_nodes, name))]
NOT_CHANGED = {"version", "rig_file", "rig", "cases", "engine"}
"""Keys of a scenario without a keyword; ``rig`` and ``engine`` are options of a run."""


def lead(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    return s, x + 0.0273 * v


def scaled(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    (delay,) = k
    return s, x + delay * v


def uncompiled(
    k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> Any:
    return s, x + 0.0273 * float(f"{v!r}")


class Mine(PerAxis):
    """Adds the delay times the velocity."""

    @params
    class Params:
        delay: float = number("delay", "s", 0.0273, at_least=0.0)

    KERNEL = Kernel(lambda params, dt: (params.delay,), no_state, scaled)


def error(run: rths_nodes.Run) -> float:
    return float(run.metrics["axes"]["story_1"]["max_error_m"])


def test_run_takes_declared_options_and_sections() -> None:
    parameters = inspect.signature(rths_nodes.run).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    declared_options = {name: option.default for name, option in options(PYTHON).items() if not option.required}
    assert defaults.items() >= declared_options.items()
    assert set(keywords.Sections.__annotations__) == set(declared(Scenario)) - NOT_CHANGED
    assert set(defaults) - {"progress"} == {*options(PYTHON), "overrides", *keywords.Sections.__annotations__}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_typed_and_documented(name: str) -> None:
    function = getattr(rths_nodes, name)
    assert getattr(api, name) is function
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    for section in ("Parameters\n---", "Returns\n---", "Raises\n---", "Examples\n---", ">>> "):
        assert section in inspect.getdoc(function), section
    assert name in dir(rths_nodes)


@pytest.mark.parametrize("cls", [rths_nodes.Run, Study, Scoreboard])
def test_result_methods_have_examples(cls: type) -> None:
    functions = {name: value for name, value in vars(cls).items() if inspect.isfunction(value)}
    public = [name for name in functions if not name.startswith("_")]
    assert public
    assert [name for name in public if ">>> " not in (functions[name].__doc__ or "")] == []


@pytest.mark.parametrize(
    "module",
    [
        "rths_nodes",
        "rths_nodes.analysis.stability.judgement",
        "rths_nodes.app.api",
        "rths_nodes.app.results",
        "rths_nodes.app.studies.scoreboard",
        "rths_nodes.app.studies.study",
        "rths_nodes.core.kernels",
        "rths_nodes.core.parameters",
    ],
)
def test_docstring_examples_pass(module: str) -> None:
    failed, attempted = doctest.testmod(import_module(module), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert not failed
    assert attempted


@pytest.mark.parametrize(
    "changes",
    [
        {"overrides": "compensator.alpha_es=20"},
        {"overrides": ["duration=3", "compensator.alpha_es=20"]},
        {"overrides": {"compensator.alpha_es": np.float64(20), "duration": np.int64(3)}},
        {"overrides": ["compensator.alpha_es=20", {"seed": 1}], "duration": 3},
    ],
)
def test_overrides_accept_strings_mappings_and_keywords(changes: Mapping[str, Any]) -> None:
    scenario = rths_nodes.load(CHEN, **({"duration": 3} | changes))
    assert scenario.data() == rths_nodes.load(CHEN, ["compensator.alpha_es=20", "duration=3"]).data()


def test_scenario_loads_from_dict() -> None:
    data = rths_nodes.load(CHEN).data()
    assert rths_nodes.load(data).data() == data
    with pytest.raises(ConfigError) as excinfo:
        rths_nodes.load(data | {"durations": 3, "seed": -1})
    assert each_mentions(excinfo.value.problems, ("durations", "duration"), ("seed", -1, ">= 0"))
    with pytest.raises(ConfigError, match=naming("scenario", None, "name", "path", "mapping")):
        rths_nodes.load(None)


def test_unknown_keyword_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("hosts", "host", "engine")):
        rths_nodes.run(CHEN, hosts="embedded")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "component",
    [lead, Mine, {"type": Mine, "delay": 0.0273}, Kernel(lambda params, dt: (0.0273,), no_state, scaled)],
)
@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_component_replaces_type_name(component: Any, engine: str) -> None:
    run = rths_nodes.run(CHEN, duration=1.0, compensator=component, engine=engine)
    assert run.information["engine"] == engine
    assert error(run) == pytest.approx(1.692087e-6, rel=1e-3)


def test_uncompilable_kernel_is_refused_with_its_line() -> None:
    changes: Any = {"duration": 0.2, "compensator": uncompiled}
    line = uncompiled.__code__.co_firstlineno + 3
    with pytest.raises(ConfigError, match=naming(f"{__file__}:{line}", "kernels")):
        rths_nodes.run(CHEN, **changes, engine="compiled")
    assert rths_nodes.run(CHEN, **changes, engine="kernels").outcome == "finished"


def test_redefined_component_replaces_earlier_one() -> None:
    def component(delay: float) -> type:
        class Again(Mine):
            @params
            class Params:
                delay: float = number("delay", "s", 0.0)

            KERNEL = Kernel(lambda params, dt: (delay,), no_state, scaled)

        return Again

    earlier = rths_nodes.load(CHEN, duration=1.0, compensator=component(0.0))
    assert error(rths_nodes.run(CHEN, duration=1.0, compensator=component(0.0273))) < 1e-5
    with pytest.raises(ConfigError, match=naming("compensator", "Again")):
        rths_nodes.run(earlier)


def test_derived_component_has_its_own_type_name() -> None:
    class Derived(Polynomial):
        """A polynomial."""

    derived = rths_nodes.load(CHEN, compensator={"type": Derived, "delay": 0.02})
    shipped = rths_nodes.load(CHEN, compensator={"type": "polynomial", "delay": 0.02})
    assert derived.data()["compensator"]["type"] == "Derived"
    assert shipped.data()["compensator"]["type"] == "polynomial"


class NoParams:
    pass


def inverse(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    return s, x


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"compensator": NoParams}, ("compensator.type", "NoParams", __file__, "Params")),
        ({"compensator": inverse}, ("compensator.type", "inverse", __file__, "Choose")),
        ({"ramp": lead}, ("ramp.type", "lead", __file__, "class")),
    ],
)
def test_invalid_component_is_refused_with_its_file(changes: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        rths_nodes.load(CHEN, **changes)


@pytest.fixture(scope="module")
def two_axes() -> rths_nodes.Run:
    return rths_nodes.run("two_actuator_coupler", duration=1.0)


def test_run_has_short_repr_and_html_figure(two_axes: rths_nodes.Run) -> None:
    parts = ("two_actuator_coupler", "finished", "1024 samples", "north", "south", "mm", "%")
    assert mentions(repr(two_axes), *parts)
    assert len(repr(two_axes)) < 200
    page = two_axes._repr_html_()
    assert mentions(page, "finished", "1024 samples", "<table>", "north", "max error", "data:image/png;base64,")


def test_run_exports_dataframe_and_csv(two_axes: rths_nodes.Run, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed here")
    table = two_axes.to_dataframe()
    assert np.array_equal(table["south.displacement (m)"], two_axes.displacement[:, 1])
    assert table.index.name == "time (s)"
    steps = two_axes.to_dataframe("steps")
    assert len(steps) == len(two_axes.step_time)
    assert np.isnan(steps["x_1.restoring_force (N)"].iloc[-1])
    two_axes.to_csv(tmp_path / "run.csv")
    assert np.allclose(pandas.read_csv(tmp_path / "run.csv")["north.force (N)"], two_axes.force[:, 0])
    with pytest.raises(ConfigError, match=r"'sample'.*samples"):
        two_axes.to_dataframe("sample")


def test_run_exports_mat_file(two_axes: rths_nodes.Run, tmp_path: Path) -> None:
    from scipy.io import loadmat

    two_axes.to_mat(tmp_path / "run.mat")
    stored = loadmat(tmp_path / "run.mat", squeeze_me=True)
    assert np.array_equal(stored["target"], two_axes.target)
    assert stored["axes"].tolist() == ["north", "south"]
    rths_nodes.run("column_under_axial_load", duration=0.1).to_mat(tmp_path / "load.mat")
    stored = loadmat(tmp_path / "load.mat", squeeze_me=True)
    assert (stored["axes"], stored["load_axes"]) == ("drift", "load")


@pytest.mark.parametrize(
    ("quantity", "labels", "curves"),
    [
        ("tracking", ("time (s)", "displacement (mm)"), 4),
        ("error", ("time (s)", "control error (mm)"), 2),
        ("hysteresis", ("displacement (mm)", "force (kN)"), 2),
        ("dof_acceleration", ("time (s)", "acceleration (m/s²)"), 2),
    ],
)
def test_quantity_is_plotted_on_given_axes(
    quantity: str, labels: tuple[str, str], curves: int, two_axes: rths_nodes.Run
) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert two_axes.plot(quantity, ax=axes) is axes
    assert (axes.get_xlabel(), axes.get_ylabel(), len(axes.lines)) == (*labels, curves)
    legend = axes.get_legend()
    assert legend.get_bbox_to_anchor().y0 >= axes.bbox.y1, "the legend is not above the axes"
    assert len({text.get_text() for text in legend.get_texts()}) == len(legend.get_texts())


def test_overlay_has_rates_in_time_of_structure() -> None:
    from matplotlib.figure import Figure

    slow = rths_nodes.run(CHEN, duration=0.5, time_ratio=2, compensator={"type": "none"})
    for quantity, power in (("dof_velocity", 1), ("dof_acceleration", 2), ("dof_displacement", 0)):
        factor = 2.0**power * (1.0 if power else 1e3)
        panel = rths_nodes.overlay({"slow": slow, "again": slow}, quantity, Figure().subplots())
        drawn = panel.lines[0].get_ydata()
        assert np.asarray(drawn) == pytest.approx(factor * getattr(slow, quantity)[:, 0])


def test_unknown_quantity_is_refused(two_axes: rths_nodes.Run) -> None:
    lost = dataclasses.replace(two_axes, displacement=np.full_like(two_axes.displacement, np.nan))
    with pytest.raises(ConfigError, match=naming("tracking", "target")):
        lost.plot("tracking")
    with pytest.raises(ConfigError, match=naming("forces", "force", "tracking")):
        two_axes.plot("forces")


def test_study_by_keywords_equals_study_file(tmp_path: Path) -> None:
    contents: Any = {"scenario": "predefined_sine", "set": {"duration": 0.5}, "indices": ["max_error_mm"]}
    contents |= {"factors": {"compensator.alpha_es": {"list": [15, 29]}}}
    (tmp_path / "study.yaml").write_text(dump({"version": 1, "name": "by_file"} | contents))
    by_file = rths_nodes.study(tmp_path / "study.yaml", out=tmp_path / "out", jobs=1)
    by_keyword = rths_nodes.study(**contents, jobs=1)
    assert np.array_equal(by_file.values("max_error_mm"), by_keyword.values("max_error_mm"))
    assert (tmp_path / "out" / "study.html").is_file()
    assert mentions(by_keyword._repr_html_(), "max error", "2 of 2")
    with pytest.raises(ConfigError, match=naming("factors")):
        rths_nodes.study(tmp_path / "study.yaml", **contents)
    with pytest.raises(ConfigError, match=naming("jobs", 0, ">= 1")):
        rths_nodes.study(**contents, jobs=0)


def test_scoreboard_accepts_function_as_compensator() -> None:
    short: Any = {"duration": 0.5, "servo_rate": 512.0}
    board = rths_nodes.scoreboard(CHEN, short, laws=[lead, "none"], noise_seeds=1, jobs=1, engine="compiled")
    assert [(score.law, score.runs, score.failures) for score in board.scores] == [("lead", 1, 0), ("none", 1, 0)]
    assert mentions(repr(board), CHEN, "2 runs", "lead")
    assert mentions(board._repr_html_(), "lead", "none", "stable")


def test_functions_reach_processes_with_source_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The translation to C reads the source there."""
    function = types.FunctionType(lead.__code__, {"__name__": "__main__"}, "lead")
    registry.add("compensator", function)
    task = engine.with_components(len)
    monkeypatch.setattr(registry, "_added", {})
    assert task([1, 2]) == 2
    ((_, received),) = registry.added()
    assert received is not function
    assert received.__code__.co_filename == __file__  # type: ignore[attr-defined]


def test_study_repeats_runs_of_changed_component(tmp_path: Path) -> None:
    def max_error_mm(component: Any) -> float:
        factors = {"law": {"settings": {"own": {"compensator": {"type": component}}}}}
        contents: Any = {"scenario": CHEN, "set": {"duration": 0.5}, "factors": factors}
        return float(rths_nodes.study(**contents, jobs=1, out=tmp_path).values("max_error_mm")[0])

    late = types.FunctionType(inverse.__code__, globals(), "lead")
    assert max_error_mm(late) > 2.0 * max_error_mm(lead)


def test_invalid_arguments_are_refused_before_any_run() -> None:
    test = rths_nodes.run(CHEN, duration=0.1)
    with pytest.raises(ConfigError, match=naming("engine", "fast", "compiled")):
        rths_nodes.estimate(test, set="duration=1", engine="fast")
    with pytest.raises(ConfigError, match=naming("transport", "meassured", "measured")):
        rths_nodes.identify(CHEN, noise={"rms": 1e-3, "duration": 10.0}, transport="meassured")
    with pytest.raises(ConfigError, match=naming("seed", "-1", ">= 0")):
        rths_nodes.tune(CHEN, seed=-1)
    with pytest.raises(ConfigError, match=naming("noise_seeds", 0, ">= 1")):
        rths_nodes.scoreboard(CHEN, {"duration": 0.5}, noise_seeds=0)


def test_compensator_example_is_short_compiles_and_learns() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 40
    assert "examples/own_compensator.py" in (EXAMPLE.parents[1] / "README.md").read_text(encoding="utf-8")
    cls = runpy.run_path(str(EXAMPLE), run_name="example")["Correlated"]
    learning, fixed = (
        rths_nodes.run(BENCHMARK, duration=10.0, compensator={"type": cls, "gain": gain}, engine="compiled")
        for gain in (1.0, 0.0)
    )
    errors = [run.metrics["axes"]["floor_1"]["error_norm_percent"] for run in (learning, fixed)]
    assert learning.outcome == "finished"
    assert errors[0] < 0.9 * errors[1]


def test_stability_returns_frequency_responses() -> None:
    loop = rths_nodes.stability(CHEN, compensator={"type": "none"})
    frequency = np.linspace(0.5, 10.0, 50)
    rig = loop.bode(frequency)
    assert rig.shape == (50, 1, 1)
    assert loop.nyquist(frequency).shape[0] == 50
    assert loop.bode(0.5)[0] == pytest.approx(rig[0])
    assert len(loop.nyquist(0.5)) == 1
    delay = -np.angle(rig[0, 0, 0]) / (2.0 * np.pi * frequency[0])
    assert delay == pytest.approx(loop.delay, rel=0.02)
    assert loop.critical_delay is not None
    assert loop.stable == (loop.critical_delay > loop.delay)


def test_estimate_of_run_equals_estimate_of_recording(tmp_path: Path) -> None:
    run = rths_nodes.run("predefined_sine", duration=5.0, record=tmp_path / "run")
    (estimate,) = rths_nodes.estimate(run).values()
    assert list(rths_nodes.estimate(tmp_path / "run").values()) == [estimate]
    assert estimate.loading.delay == pytest.approx(28.0 / 1024.0, rel=0.05)


def test_identified_model_is_accepted_by_compensator(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    assert rths_nodes.identify(BENCHMARK, noise={"duration": 5.0}, out=model).fit.error.max() < 0.25
    scenario = rths_nodes.load(BENCHMARK, compensator={"type": "model_based", "model": model})
    assert scenario.data()["compensator"]["model"].endswith("model.yaml")
