# SPDX-License-Identifier: Apache-2.0
"""Tests of the assembly: components are built once, twins share no state, signals have names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import declared
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import walk_declared
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import command_warm_up
from rths_nodes.loop.stages.numerical import step_warm_up
from rths_nodes.recording.run import Collector

Built = Counter[str]
DAMPED = "phillips_spencer_2012"  # coupled rig with a damper and its controller


def check_counts(built: Built, scenario: Scenario) -> None:
    """Each declared component is built once, but the setup twice, because two stages call it.

    The monitor also builds the specimens of axes for their stiffness, and the check of limits builds a prescribed
    displacement.
    """
    parts = walk_declared(scenario.axes)
    specimens = [part for _, part, specs in parts if specs and specs[-1].family == "specimen"]
    again = [f"specimen {type_of(part)}" for part in specimens]
    if displacement := getattr(scenario.integrator, "displacement", None):
        again.append(f"ground_motion {type_of(displacement)}")
    expected = declared(scenario)
    again += [name for name in expected if name.startswith("setup ")]
    assert Counter({name: built[name] for name in expected}) == expected + Counter(again)


@pytest.mark.parametrize("name", files.shipped())
def test_loop_builds_each_component_once(name: str, built: Built) -> None:
    scenario = files.load(name)
    Loop(Assembly(scenario))
    check_counts(built, scenario)


@pytest.mark.parametrize("name", ["chen_ricles_2010", DAMPED])
def test_run_builds_each_component_once(name: str, built: Built, tmp_path: Path) -> None:
    scenario = files.load(name, ["duration=0.1"])
    hosts.run(scenario, record=tmp_path / "run")
    check_counts(built, scenario)


def test_loading_and_checking_build_no_component(built: Built) -> None:
    scenario = files.load(DAMPED)
    judgement.refuse(scenario)
    scenario.context()
    scenario.shared_hash()
    assert not built


def test_assembly_passes_its_components_to_stages() -> None:
    assembly = Assembly(files.load(DAMPED))
    for part in ("structure", "integrator", "ramp", "setup", "compensator", "controller", "port", "names"):
        assert getattr(assembly, part) is getattr(assembly, part)
    loop = Loop(assembly)
    assert loop.substructure.integrator is assembly.integrator
    assert loop.rig.port is assembly.port
    assert loop.substructure.setup is not loop.commands.setup


def test_twin_shares_components_without_state(built: Built) -> None:
    assembly = Assembly(files.load(DAMPED))
    Loop(assembly)
    built.clear()
    step_warm_up(assembly)
    command_warm_up(assembly)
    families = Counter(name.partition(" ")[0] for name in built.elements())
    assert not {"ground_motion", "port", "rig", "specimen"} & set(families)
    assert "structure" not in families  # linear, hence without state
    for family in ("integrator", "semi_active", "ramp", "compensator"):
        assert families[family] == 1, family
    assert families["setup"] == 2
    twin = assembly.twin()
    assert twin.ground_acceleration is assembly.ground_acceleration
    assert twin.names is assembly.names
    yielding = Assembly(files.load("yielding_five_story"))
    assert yielding.twin().structure is not yielding.structure


def test_unloaded_twin_has_no_ground_motion() -> None:
    assembly = Assembly(files.load("chen_ricles_2010"))
    unloaded = assembly.twin(loaded=False)
    assert unloaded.external_force.shape == assembly.external_force.shape
    assert not unloaded.external_force.any()
    assert not unloaded.ground_acceleration.any()
    assert assembly.external_force.any()
    np.testing.assert_array_equal(assembly.fresh("external_force"), assembly.external_force)


def test_fresh_component_has_separate_state() -> None:
    assembly = Assembly(files.load("chen_ricles_2010"))
    fresh = assembly.fresh("integrator")
    for _ in range(100):
        fresh.step(np.zeros(1))
    assert fresh.displacement.any()
    assert not assembly.integrator.displacement.any()
    assert assembly.fresh("setup") is not assembly.fresh("setup")


def test_fresh_external_component_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = files.load("chen_ricles_2010")
    monkeypatch.setattr(registry.class_of("integrator", scenario.integrator), "external", True, raising=False)
    assembly = Assembly(scenario)
    Loop(assembly)
    for build in (lambda: assembly.fresh("integrator"), lambda: step_warm_up(assembly)):
        with pytest.raises(ConfigError, match=naming("integrator.type", "cr")):
            build()
    assert assembly.fresh("structure") is not assembly.structure


def test_names_of_signals() -> None:
    names = Assembly(files.load(DAMPED)).names
    assert names.interface == names.observed == names.model
    assert len(names.model) == len(names.axes) == 3
    assert [name.partition(" [")[0] for name in names.inputs] == ["damper_voltage"]
    assert len(names.auxiliary) == 5
    alone = Assembly(files.load("predefined_sine")).names
    assert (alone.model, alone.auxiliary, alone.inputs) == (("axis_1",), (), ())


def test_controller_with_other_inputs_is_refused() -> None:
    scenario = files.load("chen_ricles_2010", ["semi_active={type: passive}"])
    with pytest.raises(ConfigError, match=naming("semi_active", "inputs")):
        Loop(Assembly(scenario))


def test_file_paths_are_resolved_in_nested_components(tmp_path: Path) -> None:
    inner: Any = {"type": "chain", "first": {"type": "none"}, "second": {"type": "model_based", "model": "m.yaml"}}
    data = files.load("chen_ricles_2010").data() | {
        "compensator": {"type": "chain", "first": {"type": "none"}, "second": inner},
        "ground_motion": {"type": "record", "file": "sub/record.txt", "step": 0.01, "unit": "g"},
    }
    (tmp_path / "own.yaml").write_text(yaml_text.dump(data))
    loaded = files.load(tmp_path / "own.yaml").data()
    assert loaded["ground_motion"]["file"] == str(tmp_path / "sub/record.txt")
    assert loaded["compensator"]["second"]["second"]["model"] == str(tmp_path / "m.yaml")


# Warm-up: a copy at rest runs the code of a step without effect on the test

BRIEF = ("duration=0.25", "soft_start=null")


class WarmedLoop(Loop):
    """Reference loop with a warm-up before every step."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly)
        self._codec = assembly.codec()
        self._warm_ups = step_warm_up(assembly), command_warm_up(assembly)

    def _answer(self, measured: Measurement) -> Command | None:
        if measured.sample % self.scenario.samples_per_step == 0:
            for warm_up in self._warm_ups:
                warm_up(self._codec)
        return super()._answer(measured)


def numbers(loop: Loop) -> dict[str, bytes]:
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    return {name: values.tobytes() for name, values in collector.run(metrics=outcome.metrics).arrays().items()}


def cases() -> Iterator[Any]:
    """Every scenario and case; of cases that differ only in numbers, all but the last are marked ``soak``."""
    for name in files.shipped():
        yield pytest.param(name, "")
        labelled = files.load(name).cases
        last = {str(kinds(case.set)): label for label, case in labelled.items()}
        for label, case in labelled.items():
            soak = last[str(kinds(case.set))] != label
            yield pytest.param(name, label, marks=[pytest.mark.soak] if soak else [])


def kinds(value: Any) -> Any:
    """Keys and texts of ``value``, without its numbers."""
    if isinstance(value, Mapping):
        return {key: kinds(inner) for key, inner in sorted(value.items())}
    return value if isinstance(value, str) else None


@pytest.mark.parametrize(("name", "case"), cases())
def test_warm_up_changes_no_bit(name: str, case: str) -> None:
    rig = files.load(name, BRIEF, case)
    assert numbers(WarmedLoop(Assembly(rig))) == numbers(Loop(Assembly(rig)))


@pytest.mark.parametrize("name", files.shipped())
def test_copy_for_warm_up_stays_at_rest(name: str) -> None:
    rig = files.load(name, BRIEF)
    assembly = Assembly(rig)
    codec = assembly.codec()
    step, command = step_warm_up(assembly), command_warm_up(assembly)
    prescribed = rig.structure is None
    for number in range(1, rig.steps + 1):
        target = step(codec)
        assert target.step == number
        for motion in (target.displacement, target.velocity, target.acceleration):
            assert np.isfinite(motion).all() if prescribed else not motion.any()
        command(codec)
    assert step(codec) is None
    command(codec)
