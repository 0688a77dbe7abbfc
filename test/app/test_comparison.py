# SPDX-License-Identifier: Apache-2.0
"""Tests of comparisons: names and refusals of variants, results and figures."""

from __future__ import annotations

import dataclasses
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import RunCommand
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.figures.drawing import save
from rths_nodes.analysis.figures.histories import compared
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.app.cli import main
from rths_nodes.app.commands import arguments
from rths_nodes.app.commands.studies import compare, variants
from rths_nodes.app.studies import engine, runs
from rths_nodes.app.studies.runs import Findings
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.files import load, shipped
from rths_nodes.loop.scenario.schema import Scenario

PAPER = "chen_ricles_2010"
SHORT = ["duration=1.0"]
INVERSE = "compensator.type=inverse compensator.alpha=25"


def with_cases(**cases: Any) -> Scenario:
    return from_data(Scenario, load(PAPER, SHORT).data() | {"cases": cases})


@pytest.mark.parametrize(
    ("text", "changes", "name"),
    [
        (INVERSE, ("compensator.type=inverse", "compensator.alpha=25"), "inverse, alpha=25"),
        ("compensator.type=inverse,compensator.alpha=25", INVERSE.split(), "inverse, alpha=25"),
        (" compensator.type=inverse ,  compensator.alpha=25 ", INVERSE.split(), "inverse, alpha=25"),
        ("compensator.type=none", ("compensator.type=none",), "none"),
        ("structure.mass=5e5", ("structure.mass=5e5",), "structure.mass=5e5"),
        ("", (), "as it is"),
        (
            "setup={type: matrix, matrix: [[1.0]]}, compensator.type=none",
            ("setup={type: matrix, matrix: [[1.0]]}", "compensator.type=none"),
            "setup={type: matrix, matrix: [[1.0]]}, none",
        ),
    ],
)
def test_variant_has_changes_and_name_of_its_text(text: str, changes: Any, name: str) -> None:
    """Spaces or commas separate assignments, and occur within a value."""
    (variant,) = variants(load(PAPER, SHORT), [text])
    assert variant.changes == tuple(changes)
    assert variant.name == name


def test_common_overrides_change_all_variants() -> None:
    scenario = with_cases(quick={"set": {"compensator.k_p_per_mm2": 0.2}, "published": {"J2": 0.54}})
    quick, inverse = variants(scenario, [INVERSE], ["quick"], ["duration=0.5"])
    assert (quick.name, inverse.name) == ("quick", "inverse, alpha=25")
    assert quick.scenario.duration == inverse.scenario.duration == 0.5
    assert quick.scenario.compensator.k_p_per_mm2 == 0.2
    assert (quick.published, quick.changes) == ({"J2": 0.54}, ("compensator.k_p_per_mm2=0.2",))


def test_all_cases_are_compared_by_default() -> None:
    scenario = with_cases(a={}, b={"set": {"compensator.type": "none"}})
    assert [variant.name for variant in variants(scenario)] == ["a", "b"]
    assert [variant.name for variant in variants(scenario, cases=["b"])] == ["b"]


@pytest.mark.parametrize("name", shipped())
def test_shipped_cases_are_variants(name: str) -> None:
    """Each case builds, and each published index is known."""
    scenario = load(name)
    assert [variant.name for variant in (variants(scenario) if scenario.cases else [])] == list(scenario.cases)


def test_ambiguous_names_are_lengthened() -> None:
    texts = ["compensator.type=none", "compensator.type=none structure.mass=5e5", "compensator.type=none"]
    names = [variant.name for variant in variants(load(PAPER, SHORT), texts)]
    assert names == ["compensator.type=none", "none, structure.mass=5e5", "compensator.type=none"]


@pytest.mark.parametrize(
    ("settings", "cases", "message"),
    [
        (["compensator.tpe=none"], [], ("compensator.tpe", "tpe", "unknown")),
        (["compensator.type=nonee"], [], ("unknown", "nonee", "none")),
        (["compensator.alpha_es=15 nonsense"], [], ("nonsense",)),
        ([], ["quik"], ("case", "unknown", "quik", "quick", "wrong")),
        ([], ["wrong"], ("cases.wrong", "compensator.k_p", "unknown")),
        ([], ["misprint"], ("unknown", "case", "misprint")),
    ],
)
def test_typos_are_refused(settings: list[str], cases: list[str], message: tuple[str, ...]) -> None:
    scenario = with_cases(quick={}, wrong={"set": {"compensator.k_p": 1.0}})
    with pytest.raises(ConfigError, match=naming(*message)):
        variants(scenario, settings, cases)


def test_unknown_published_index_is_refused() -> None:
    scenario = with_cases(quick={"published": {"alpha_range": 14.0, "max_error_mm": 0.5, "J4": 3.0}})
    with pytest.raises(ConfigError, match=r"cases.quick.published.J4: unknown index 'J4'.*known: .*J1"):
        variants(scenario)


def test_incompatible_settings_are_refused_with_variant_name() -> None:
    with pytest.raises(ConfigError, match=r"substeps=1000: .*stability limit"):
        variants(load(PAPER), ["integrator.type=central_difference substeps=1000"])


def test_scenario_without_cases_requires_variants() -> None:
    with pytest.raises(ConfigError, match=naming("compare", "--variant")):
        variants(load("predefined_sine"))


def test_indices_equal_those_of_a_run() -> None:
    """With perfect sensors the true indices equal the monitor's."""
    (variant,) = variants(load(PAPER, SHORT), [""])
    (result,) = compare([variant])
    run = rths_nodes.run(PAPER, SHORT)
    expected = run.metrics["axes"]["story_1"]
    assert {key: result.axes["story_1"][key] for key in expected} == pytest.approx(expected, rel=1e-9)
    values = result.values
    assert values["J1"] == pytest.approx(1e3 * expected["delay_s"])
    assert values["J2"] == pytest.approx(expected["error_norm_percent"])
    assert values["J3"] == pytest.approx(expected["max_error_percent"])
    assert values["max_error_mm"] == pytest.approx(1e3 * expected["max_error_m"])
    assert values["hsem_percent"] == pytest.approx(run.metrics["hsem_percent"])
    low, high = result.parameters["alpha"]["story_1"]
    alpha = run.compensator[:, run.compensator_names.index("axes.story_1.alpha")]
    assert (low, high) == (alpha.min(), alpha.max())
    assert values["alpha_range"] == high - low
    assert set(result.parameters) == {"alpha"}  # neither the indicator nor what alpha contains


def test_parallel_and_serial_comparisons_are_equal() -> None:
    """Results and histories are equal to the bit and in the requested order."""
    chosen = variants(load(PAPER, ["duration=0.3"]), ["", INVERSE])
    progress: list[tuple[float, float]] = []
    serial = compare(chosen, keep=True, where=engine.Where(1))
    parallel = compare(
        chosen, keep=True, where=engine.Where(2), progress=lambda *numbers: progress.append(numbers)
    )
    assert progress[-1][0] == progress[-1][1] > 0.0
    for a, b in zip(serial, parallel, strict=True):
        assert a.variant is b.variant
        assert (a.outcome, a.axes, a.parameters) == (b.outcome, b.axes, b.parameters)
        assert (a.run.displacement == b.run.displacement).all()
        assert b.run.scenario is b.variant.scenario


def test_true_indices_exclude_sensor_noise() -> None:
    """An exact inverse has no true error, at any noise of the sensor."""
    text = "compensator.type=inverse compensator.alpha=29 axes.story_1.sensors.displacement_noise_rms=1e-4"
    (result,) = compare(variants(load(PAPER, SHORT), [text]))
    assert result.values["J2"] < 1e-6
    assert result.values["max_error_mm"] < 1e-6


def test_table_shows_true_measured_and_published_indices(output: RunCommand) -> None:
    """The paper evaluates the measured displacement: 3.48 % and 6.76 %; the true one has 3.40 % and 5.18 %."""
    table = output("compare", "tadc_sweep", "--cases", "sadc")
    (row,) = (line for line in table.splitlines() if "sadc" in line and "finished" in line)
    assert [float(cell) for cell in row.split()[3:9]] == [3.40, 3.48, 2.61, 5.18, 6.76, 5.91], table


def test_tripped_variant_has_indices() -> None:
    (result,) = compare(variants(load(PAPER, ["duration=4"]), ["axes.story_1.limits.force=1e4"]))
    assert result.outcome == "tripped"
    assert "limits.force" in result.reason
    assert math.isfinite(result.values["J2"])


def test_indices_are_of_the_worst_axis() -> None:
    axes = {
        "a": dict.fromkeys(("delay_s", "error_norm_percent", "max_error_percent", "max_error_m"), 0.001)
        | {"fei_amplitude": 0.9, "fei_delay_s": 0.001},
        "b": dict.fromkeys(("delay_s", "error_norm_percent", "max_error_percent", "max_error_m"), -0.002)
        | {"fei_amplitude": 1.05, "fei_delay_s": math.nan, "max_error_percent": math.nan},
    }
    metrics = {key: 1.0 for key, _ in runs.TEST_INDICES.values()}
    parameters = {"alpha": {"a": (1.0, 4.0), "b": (5.0, 6.0)}}
    findings = Findings("finished", "", axes, metrics, parameters, 0.0)
    values = findings.values
    assert (values["J1"], values["fei_amplitude"], values["fei_delay_ms"]) == (-2.0, 0.9, 1.0)
    assert values["alpha_range"] == 3.0
    assert math.isnan(dataclasses.replace(findings, axes={}, parameters={}).values["J1"])
    late = dataclasses.replace(findings, axes=axes | {"a": axes["a"] | {"delay_s": math.nan}})
    assert math.isnan(late.values["J1"])  # axis a moved, but lags by more than monitor.longest_delay


@pytest.mark.parametrize("name", ["new/compared.svg", "compared.png"])
def test_figure_shows_all_variants(name: str, tmp_path: Path) -> None:
    chosen = variants(load(PAPER, SHORT), ["", INVERSE, "compensator.type=none"])
    results = compare(chosen, keep=True, where=engine.Where(1))
    save(tmp_path / name, None, compared, [(result.variant.name, result.run) for result in results])
    data = (tmp_path / name).read_bytes()
    if name.endswith("svg"):
        names = ("target of as it is", "inverse, alpha=25", "none")
        for text in (*names, "displacement (mm)", "true (mm)", "α (samples)"):
            assert text in data.decode()
    assert len(data) > 10_000


def test_figure_of_run_without_driven_samples_is_drawn(tmp_path: Path) -> None:
    (result,) = compare(variants(load(PAPER, ["duration=0.1"]), [""]), keep=True)
    still = dataclasses.replace(result.run, flags=result.run.flags | 8)
    assert Evaluation(still).indices() == {}
    save(tmp_path / "empty.png", None, compared, [("still", still)])


def test_unknown_figure_format_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("x.jpeg", "svg")):
        arguments.figure(Namespace(figure="x.jpeg", style=None, width=None))


def test_long_comparison_estimates_its_duration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WORTH", 100)
    words = ["compare", PAPER, "--set", "duration=0.5", "--variant", "", "--variant", "compensator.type=none"]
    assert main(words) == 0
    assert mentions(capsys.readouterr().err, "2", "variants", "samples", "about")
