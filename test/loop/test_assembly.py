# SPDX-License-Identifier: Apache-2.0
"""The assembly: every component once, second ones that share no memory, names of all that is handed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import type_of
from rths_nodes.core.validation import walk_declared
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.warm_up import command_warm_up, step_warm_up

Built = Counter[str]
Declared = Callable[[Scenario], Built]
DAMPED = "phillips_spencer_2012"
"""A scenario with a coupled rig, a damper and its controller."""


def often(built: Built, declared: Built) -> Built:
    """How often each declared component was built; others are parts of one, which it makes itself."""
    return Counter({name: built[name] for name in declared})


def once(declared: Built, loaded: Scenario | None = None) -> Built:
    """Return each declared component once, but twice the setup, which two stages call.

    Of a ``loaded`` scenario the monitor builds the specimens of axes, whose stiffness it needs, and the check of
    limits builds a prescribed displacement.
    """
    parts = walk_declared(loaded.axes) if loaded is not None else ()
    built_again = [part for _, part, specs in parts if specs and specs[-1].family == "specimen"]
    again = [f"specimen {type_of(part)}" for part in built_again]
    if displacement := getattr(loaded and loaded.integrator, "displacement", None):
        again.append(f"ground_motion {type_of(displacement)}")
    return declared + Counter(name for name in declared if name.startswith("setup ")) + Counter(again)


@pytest.mark.parametrize("name", files.shipped())
def test_a_loop_builds_each_component_once(name: str, built: Built, declared: Declared) -> None:
    loaded = files.load(name)
    Loop(Assembly(loaded))
    assert often(built, declared(loaded)) == once(declared(loaded), loaded)


@pytest.mark.parametrize("name", ["chen_ricles_2010", DAMPED])
def test_a_whole_run_builds_no_more(name: str, built: Built, declared: Declared, tmp_path: Path) -> None:
    loaded = files.load(name, ["duration=0.1"])
    hosts.run(loaded, record=tmp_path / "run")
    assert often(built, declared(loaded)) == once(declared(loaded), loaded)


def test_a_scenario_builds_nothing(built: Built) -> None:
    loaded = files.load(DAMPED)
    judgement.refuse(loaded)
    loaded.context()
    loaded.shared_hash()
    assert not built


def test_what_is_built_is_handed_on() -> None:
    assembly = Assembly(files.load(DAMPED))
    for what in ("structure", "integrator", "ramp", "setup", "compensator", "controller", "port", "names"):
        assert getattr(assembly, what) is getattr(assembly, what)
    loop = Loop(assembly)
    assert loop.substructure.integrator is assembly.integrator
    assert loop.rig.port is assembly.port
    assert loop.substructure.setup is not loop.commands.setup


def test_a_twin_shares_what_nobody_changes(built: Built) -> None:
    assembly = Assembly(files.load(DAMPED))
    Loop(assembly)
    built.clear()
    step_warm_up(assembly)
    command_warm_up(assembly)
    families = Counter(name.partition(" ")[0] for name in built.elements())
    assert not {"ground_motion", "port", "rig", "specimen"} & set(families)
    assert "structure" not in families  # it is linear
    for family in ("integrator", "semi_active", "ramp", "compensator"):
        assert families[family] == 1, family
    assert families["setup"] == 2
    twin = assembly.twin()
    assert twin.ground_acceleration is assembly.ground_acceleration
    assert twin.names is assembly.names
    yields = Assembly(files.load("yielding_five_story"))
    assert yields.twin().structure is not yields.structure


def test_under_a_twin_without_loads_the_ground_stands_still() -> None:
    assembly = Assembly(files.load("chen_ricles_2010"))
    still = assembly.twin(loaded=False)
    assert still.external_force.shape == assembly.external_force.shape
    assert not still.external_force.any()
    assert not still.ground_acceleration.any()
    assert assembly.external_force.any()
    np.testing.assert_array_equal(assembly.fresh("external_force"), assembly.external_force)


def test_a_second_one_has_a_memory_of_its_own() -> None:
    assembly = Assembly(files.load("chen_ricles_2010"))
    other = assembly.fresh("integrator")
    for _ in range(100):
        other.step(np.zeros(1))
    assert other.displacement.any()
    assert not assembly.integrator.displacement.any()
    assert assembly.fresh("setup") is not assembly.fresh("setup")


def test_there_is_no_second_one_of_what_stands_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = files.load("chen_ricles_2010")
    monkeypatch.setattr(registry.class_of("integrator", loaded.integrator), "external", True, raising=False)
    assembly = Assembly(loaded)
    Loop(assembly)
    for ask in (lambda: assembly.fresh("integrator"), lambda: step_warm_up(assembly)):
        with pytest.raises(ConfigError, match=naming("integrator.type", "cr")):
            ask()
    assert assembly.fresh("structure") is not assembly.structure


def test_names_of_what_is_handed_on() -> None:
    names = Assembly(files.load(DAMPED)).names
    assert names.interface == names.observed == names.model
    assert len(names.model) == len(names.axes) == 3
    assert [name.partition(" [")[0] for name in names.inputs] == ["damper_voltage"]
    assert len(names.auxiliary) == 5
    alone = Assembly(files.load("predefined_sine")).names
    assert (alone.model, alone.auxiliary, alone.inputs) == (("axis_1",), (), ())


def test_a_controller_of_other_inputs_is_refused() -> None:
    loaded = files.load("chen_ricles_2010", ["semi_active={type: passive}"])
    with pytest.raises(ConfigError, match=naming("semi_active", "inputs")):
        Loop(Assembly(loaded))


def test_files_are_found_from_the_declarations(tmp_path: Path) -> None:
    inner: Any = {"type": "chain", "first": {"type": "none"}, "second": {"type": "model_based", "model": "m.yaml"}}
    data = files.load("chen_ricles_2010").data() | {
        "compensator": {"type": "chain", "first": {"type": "none"}, "second": inner},
        "ground_motion": {"type": "record", "file": "sub/record.txt", "step": 0.01, "unit": "g"},
    }
    (tmp_path / "own.yaml").write_text(yaml_text.dump(data))
    found = files.load(tmp_path / "own.yaml").data()
    assert found["ground_motion"]["file"] == str(tmp_path / "sub/record.txt")
    assert found["compensator"]["second"]["second"]["model"] == str(tmp_path / "m.yaml")
