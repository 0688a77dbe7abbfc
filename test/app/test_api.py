# SPDX-License-Identifier: Apache-2.0
"""``import rths_nodes``: functions with typed, documented arguments, overrides and components of one's own."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions, naming

import rths_nodes
from rths_nodes.app import api, keywords
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.compensators.polynomial import Polynomial
from rths_nodes.core import Kernel, no_state, number, params, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared
from rths_nodes.loop.options import PYTHON, options
from rths_nodes.loop.scenario.schema import Scenario

CHEN = "chen_ricles_2010"
FUNCTIONS = [name for name in rths_nodes.__all__ if inspect.isfunction(getattr(rths_nodes, name))]
NOT_CHANGED = {"version", "rig_file", "rig", "cases"}
"""Keys of a scenario that no keyword changes: ``rig`` is that of a run."""


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})


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


# What the functions take


def test_a_run_takes_the_declared_options_and_sections() -> None:
    shown = {name: one.default for name, one in inspect.signature(rths_nodes.run).parameters.items()}
    assert (
        shown.items() >= {name: one.default for name, one in options(PYTHON).items() if not one.required}.items()
    )
    assert set(keywords.Sections.__annotations__) == set(declared(Scenario)) - NOT_CHANGED
    assert set(shown) - {"progress"} == {*options(PYTHON), "overrides", *keywords.Sections.__annotations__}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_shows_its_parameters(name: str) -> None:
    function = getattr(rths_nodes, name)
    kinds = {one.kind for one in inspect.signature(function).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    for section in ("Parameters\n---", "Returns\n---", "Raises\n---", "Examples\n---", ">>> "):
        assert section in inspect.getdoc(function), section
    assert name in dir(rths_nodes)


@pytest.mark.parametrize("module", ["rths_nodes", "rths_nodes.app.api", "rths_nodes.app.results"])
def test_the_examples_of_the_functions_come_out(module: str) -> None:
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
def test_overrides_are_texts_values_or_keywords(changes: Mapping[str, Any]) -> None:
    found = rths_nodes.load(CHEN, **({"duration": 3} | changes))
    expected = rths_nodes.load(CHEN, ["compensator.alpha_es=20", "duration=3"])
    assert found.data() == expected.data()


def test_a_scenario_comes_from_a_dict() -> None:
    data = rths_nodes.load(CHEN).data()
    assert rths_nodes.load(data).data() == data
    with pytest.raises(ConfigError) as refused:
        rths_nodes.load(data | {"durations": 3, "seed": -1})
    assert each_mentions(refused.value.problems, ("durations", "duration"), ("seed", -1, ">= 0"))


def test_an_unknown_keyword_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as refused:
        rths_nodes.run(CHEN, hosts="embedded")  # type: ignore[call-arg]
    assert mentions(str(refused.value), "hosts", "host", "engine")


# A component of one's own


@pytest.mark.parametrize(
    "component",
    [lead, Mine, {"type": Mine, "delay": 0.0273}, Kernel(lambda params, dt: (0.0273,), no_state, scaled)],
)
@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_component_stands_in_place_of_a_type(component: Any, engine: str) -> None:
    run = rths_nodes.run(CHEN, duration=1.0, compensator=component, engine=engine)
    assert run.information["engine"] == engine
    assert error(run) == pytest.approx(1.692087e-6, rel=1e-3)


def test_what_cannot_be_compiled_is_refused_with_its_line_and_runs_plain() -> None:
    changes: Any = {"duration": 0.2, "compensator": uncompiled}
    line = uncompiled.__code__.co_firstlineno + 3
    with pytest.raises(ConfigError) as refused:
        rths_nodes.run(CHEN, **changes, engine="compiled")
    assert mentions(str(refused.value), f"{__file__}:{line}", "kernels")
    assert rths_nodes.run(CHEN, **changes, engine="kernels").outcome == "finished"


def test_a_component_that_was_defined_again_replaces_the_earlier_one() -> None:
    def of(delay: float) -> type:
        class Again(Mine):
            @params
            class Params:
                delay: float = number("delay", "s", 0.0)

            KERNEL = Kernel(lambda params, dt: (delay,), no_state, scaled)

        return Again

    earlier = rths_nodes.load(CHEN, duration=1.0, compensator=of(0.0))
    assert error(rths_nodes.run(CHEN, duration=1.0, compensator=of(0.0273))) < 1e-5
    with pytest.raises(ConfigError, match=naming("compensator", "Again")):
        rths_nodes.run(earlier)


def test_inherited_parameters_get_a_type_of_their_own() -> None:
    class Derived(Polynomial):
        """A polynomial."""

    derived = rths_nodes.load(CHEN, compensator={"type": Derived, "delay": 0.02})
    shipped = rths_nodes.load(CHEN, compensator={"type": "polynomial", "delay": 0.02})
    kinds = derived.data()["compensator"]["type"], shipped.data()["compensator"]["type"]
    assert kinds == ("Derived", "polynomial")


class NoParams:
    pass


def inverse(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    return s, x


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"compensator": NoParams}, ("compensator.type", "NoParams", __file__, "Params")),
        ({"compensator": inverse}, ("compensator.type", "inverse", __file__, "rename")),
        ({"ramp": lead}, ("ramp.type", "lead", __file__, "class")),
    ],
)
def test_a_component_that_cannot_stand_there_is_named_with_its_line(changes: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        rths_nodes.load(CHEN, **changes)
    assert mentions(str(refused.value), *parts)


# What a run is


@pytest.fixture(scope="module")
def two_axes() -> rths_nodes.Run:
    return rths_nodes.run("two_actuator_coupler", duration=1.0)


def test_a_run_is_short_at_the_prompt_and_has_a_figure_in_a_notebook(two_axes: rths_nodes.Run) -> None:
    assert mentions(
        repr(two_axes), "two_actuator_coupler", "finished", "1024 samples", "north", "south", "mm", "%"
    )
    assert len(repr(two_axes)) < 200
    page = two_axes._repr_html_()
    assert mentions(page, "finished", "1024 samples", "<table>", "north", "max error", "data:image/png;base64,")


def test_a_run_becomes_a_table(two_axes: rths_nodes.Run, tmp_path: Path) -> None:
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


def test_a_run_becomes_a_file_of_matlab(two_axes: rths_nodes.Run, tmp_path: Path) -> None:
    from scipy.io import loadmat

    two_axes.to_mat(tmp_path / "run.mat")
    stored = loadmat(tmp_path / "run.mat", squeeze_me=True)
    assert np.array_equal(stored["target"], two_axes.target)
    assert stored["axes"].tolist() == ["north", "south"]


@pytest.mark.parametrize(
    ("what", "titles", "curves"),
    [
        ("tracking", ("time (s)", "displacement (mm)"), 4),
        ("error", ("time (s)", "control error (mm)"), 2),
        ("hysteresis", ("displacement (mm)", "force (kN)"), 2),
        ("dof_acceleration", ("time (s)", "acceleration (m/s²)"), 2),
    ],
)
def test_a_quantity_is_drawn_on_axes_of_the_caller(
    what: str, titles: tuple[str, str], curves: int, two_axes: rths_nodes.Run
) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert two_axes.plot(what, ax=axes) is axes
    assert (axes.get_xlabel(), axes.get_ylabel(), len(axes.lines)) == (*titles, curves)
    legend = axes.get_legend()
    assert legend.get_bbox_to_anchor().y0 >= axes.bbox.y1, "above the axes"
    assert len({text.get_text() for text in legend.get_texts()}) == len(legend.get_texts())


def test_an_unknown_quantity_is_refused(two_axes: rths_nodes.Run) -> None:
    with pytest.raises(ConfigError) as refused:
        two_axes.plot("forces")
    assert mentions(str(refused.value), "forces", "force", "tracking")


def test_functions_are_those_of_one_module() -> None:
    assert all(getattr(api, name) is getattr(rths_nodes, name) for name in FUNCTIONS)
