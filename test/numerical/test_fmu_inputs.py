# SPDX-License-Identifier: Apache-2.0
"""FMUs of other tools: a longer preferred step, a reset that fails, undefined units, members with ``./``."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fmus import changed, frame, skip_without_fmi
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu.description import described

Shared = Callable[[str], Path]
STEP, PREFERRED = 0.005, 0.02
"""s; of the scenario, and of slow.fmu."""
UNIT = '<ScalarVariable name="{}" valueReference="29" causality="local"><Real unit="V"/></ScalarVariable>'


@pytest.fixture(autouse=True)
def _fmi() -> None:
    skip_without_fmi()


def given(shared_data: Shared, scenario: str, key: str, fmu: str) -> tuple[str, list[str]]:
    """Return a scenario of the inputs, and the override that names its FMU."""
    return str(shared_data(f"../inputs/turn4/{scenario}")), [f"{key}={shared_data(f'../inputs/turn4/{fmu}')}"]


def test_a_preferred_step_that_is_longer_is_a_caution(
    shared_data: Shared, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    scenario, (override,) = given(shared_data, "frame.yaml", "integrator.file", "slow.fmu")
    assert described(str(shared_data("../inputs/turn4/slow.fmu"))).preferred_step == PREFERRED
    assert main(["check", scenario, "--set", override]) == 0
    assert mentions(capsys.readouterr().out, "caution", "integrator", "slow.fmu", "0.005 s", "stepSize", "0.02 s")
    assert main(["check", scenario, "--set", override, "--set", "substeps=20"]) == 0
    assert not mentions(capsys.readouterr().out, "stepSize")


def test_outputs_that_stand_still_are_counted_and_reported(
    shared_data: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    scenario, overrides = given(shared_data, "frame.yaml", "integrator.file", "slow.fmu")
    result = hosts.run(scenario, overrides)
    assert (result.integrator["fmu_steps"], result.integrator["fmu_steps_unchanged"]) == (520, 390)
    assert mentions(caplog.messages, "slow.fmu", "390", "520")


def test_a_model_that_moves_in_every_step_is_not_reported(
    shared_data: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = str(shared_data("../inputs/turn4/frame.yaml"))
    result = hosts.run(scenario, [f"integrator.file={frame()}", "duration=2"])
    assert result.outcome == "finished"
    assert result.integrator["fmu_steps_unchanged"] <= 1, "the first step starts at rest"
    assert caplog.messages == []


def test_a_model_that_has_not_moved_needs_no_reset(shared_data: Shared) -> None:
    scenario, overrides = given(shared_data, "rehearsal.yaml", "rig.file", "brace_noreset.fmu")
    result = hosts.run(scenario, [*overrides, "duration=2"])
    assert result.outcome == "finished"
    assert np.abs(result.read().displacement).max() > 1e-3


def test_a_reset_that_fails_after_steps_is_refused(shared_data: Shared) -> None:
    from rths_nodes.loop.scenario import files
    from rths_nodes.loop.scenario.assembly import Assembly

    scenario, overrides = given(shared_data, "rehearsal.yaml", "rig.file", "brace_noreset.fmu")
    rig = Assembly(files.load(scenario, overrides)).port._rig  # type: ignore[attr-defined]
    rig.open()
    try:
        for k in range(3):
            rig.step(np.array([1e-3 * k]), np.zeros(0))
        with pytest.raises(ConfigError) as refusal:
            rig.reset()
    finally:
        rig.close()
    assert mentions(str(refusal.value), "rig.file", "brace_noreset.fmu", "fmi2Reset", "status 3")


def test_members_may_begin_with_the_folder_itself(tmp_path: Path) -> None:
    """As ``zip -r model.fmu .`` of some tools writes them."""
    dotted = tmp_path / "dotted.fmu"
    with zipfile.ZipFile(frame()) as old, zipfile.ZipFile(dotted, "w") as new:
        for member in old.infolist():
            new.writestr(f"./{member.filename}", old.read(member))
    assert described(str(dotted)) == described(str(frame()))


@pytest.mark.parametrize("fmu", ["dot.fmu", "undefined_local.fmu", "undefined_many.fmu"])
def test_a_usable_fmu_runs(fmu: str, shared_data: Shared) -> None:
    scenario, overrides = given(shared_data, "frame.yaml", "integrator.file", fmu)
    plain = hosts.run(scenario, [f"integrator.file={frame()}", "duration=2"]).read()
    found = hosts.run(scenario, [*overrides, "duration=2"]).read()
    np.testing.assert_array_equal(found.target, plain.target)


def test_an_undefined_unit_of_an_unused_variable_is_no_fault(tmp_path: Path) -> None:
    end = "</ModelVariables>"
    fmu = changed(frame(), tmp_path / "local.fmu", (end, UNIT.format("C1.v") + end))
    assert described(str(fmu)).variables["C1.v"].causality == "local"


def test_messages_on_a_description_are_short(tmp_path: Path) -> None:
    end = "</ModelVariables>"
    twice = "".join(UNIT.format("n" * 500) for _ in range(300))
    fmu = changed(frame(), tmp_path / "twice.fmu", (end, twice + end))
    with pytest.raises(ConfigError) as refusal:
        described(str(fmu))
    assert mentions(str(refusal.value), "modelDescription.xml", "more")
    assert len(str(refusal.value)) < 1500
