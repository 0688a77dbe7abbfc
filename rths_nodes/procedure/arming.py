# SPDX-License-Identifier: Apache-2.0
"""Arming: one rung of one scenario, with one set of offsets, on one rig."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, show
from rths_nodes.core.inputs import FOLDER, named_files, replace_files
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import RUNGS
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rehearsal import elastic_limits, hash_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.procedure.offsets import Offsets

FULL = "g"
"""Rung of the whole test."""
BELOW_ELASTIC = ("d", "e", "f")
"""Rungs that must not damage the specimen."""


@dataclass(frozen=True)
class Armed:
    """An armed rung: its scenario, and the reach of each axis from the zero of the test, ``(n_axes,)`` m.

    ``code`` computes it; ``inputs`` are the hashes of the files that the scenario names, by path.
    """

    rung: str
    scenario: Scenario
    scenario_hash: str
    reach: Array
    code: Code
    inputs: dict[str, str]
    persons: tuple[str, ...] = ()
    """Names of the operator and, with ``two_persons``, of the second person."""

    def changed(self, build: str) -> list[str]:
        """Return texts on changes since arming; ``build`` is reported by the receiver now."""
        changes = [f"what computes the test has changed: {change}" for change in self.code.changed(build)]
        if hash_of(self.scenario) != self.scenario_hash:
            changes.append("a file that the scenario names has changed")
        return [f"{change}, since rung {self.rung} was armed" for change in changes]


def arm(
    base: Scenario,
    offsets: Offsets,
    rung: str,
    scenario: Scenario,
    scenario_hash: str,
    offsets_hash: str,
    code: Code,
    build: str,
) -> Armed:
    """Arm a rung of ``scenario`` on the rig of ``base``, whose ``offsets`` are confirmed.

    ``code`` is the code at the start of the test, ``build`` the receiver's now. Raises ConfigError if scenario,
    offsets, rig or code differ, and names them.
    """
    if rung not in RUNGS or not RUNGS[rung].on_rig:
        rung_names = ", ".join(name for name, row in RUNGS.items() if row.on_rig)
        raise ConfigError(f"rung {show(rung)}: is none that needs the rig; known: {rung_names}")
    problems = Problems()
    if (now := hash_of(scenario)) != scenario_hash:
        problems.append(
            f"the scenario has changed: the hash to be armed is {scenario_hash or 'empty'}, that of rung "
            f"{rung} is {now}"
        )
    if offsets.hash != offsets_hash:
        problems.append(
            f"the offsets have changed: the hash to be armed is {offsets_hash or 'empty'}, that of the confirmed "
            f"ones is {offsets.hash}"
        )
    if changed := _differing(base, scenario):
        problems.append(f"the rig has changed since it was connected: {', '.join(changed)}")
    problems += [f"what computes the test has changed: {change}, since it began" for change in code.changed(build)]
    problems.refuse()
    armed_code = Code.of(scenario, build)
    return Armed(rung, scenario, scenario_hash, _reach(rung, scenario), armed_code, file_hashes(scenario))


def persons_arming(rung: str, scenario: Scenario, operator: str, second: str) -> tuple[str, ...]:
    """Return the names of the persons who arm a ``rung``: the operator, and the second person if the rig has two.

    Raises ConfigError if rung g needs a second person and ``second`` is empty or the operator's name.
    """
    if not two_persons(rung, scenario):
        return (operator,)
    check_second(operator, second)
    return operator, second.strip()


def two_persons(rung: str, scenario: Scenario) -> bool:
    """Return whether the rig file requires a second person to arm a ``rung`` of ``scenario``."""
    return rung == FULL and scenario.rig_file is not None and bool(scenario.rig_file.two_persons)


def check_second(operator: str, second: str) -> None:
    """Raise ConfigError unless ``second`` names another person than ``operator``, ignoring case and spaces."""
    if not second.strip():
        raise ConfigError(f"second: empty: rung {FULL} needs the name of a second person (two_persons: true)")
    if _name(second) == _name(operator):
        raise ConfigError(
            f"second = {show(second)}: must be another person than the operator {show(operator)} "
            "(two_persons: true)"
        )


def _name(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).split()).casefold()


def _differing(base: Scenario, scenario: Scenario) -> list[str]:
    first, second = _of_rig(base), _of_rig(scenario)
    return [path for path in first | second if _hash(first.get(path)) != _hash(second.get(path))]


def _of_rig(scenario: Scenario) -> Data:
    data = scenario.data()
    values = {key: data[key] for key in ("port", "rig_file", "rig", "servo_rate")}
    for name, axis in data["axes"].items():
        values |= {f"axes.{name}.{key}": axis[key] for key in ("limits", "rig_axis", "sensors", "output")}
    return values | {"axes": list(data["axes"])}


def _hash(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _reach(rung: str, scenario: Scenario) -> Array:
    if rung not in BELOW_ELASTIC:
        return np.full(len(scenario.axes), np.inf)
    limits = elastic_limits(scenario)
    if missing := [name for name in scenario.axes if name not in limits]:
        raise ConfigError(
            f"rung {rung}: axes.{missing[0]}: the rig file has no elastic_limit, below which rungs "
            f"{', '.join(BELOW_ELASTIC)} stay"
        )
    return np.array([limits[name] for name in scenario.axes])


def start_of(scenario: Scenario, port: Port) -> Array:
    """Return the axes' start, ``(n_axes,)`` m from the zero of ``port``'s rig; zero for external integrators."""
    external = registry.class_of("integrator", scenario.integrator).external
    if external or scenario.soft_start is not None:
        return np.zeros(len(scenario.axes))
    assembly = Assembly(scenario, port)
    stage = NumericalStage.of(assembly)
    first = stage.first().displacement[: assembly.observation.n_interface]
    rest = np.zeros_like(first)
    return np.array(assembly.setup.axes(Motion(first, rest, rest)).displacement, float)


def file_hashes(scenario: Scenario) -> dict[str, str]:
    return {file.place: file.hash() for file in named_files(Scenario, scenario.data())}


def with_copied_files(scenario: Scenario, folder: Path) -> Scenario:
    """The same with copies of its files in place of them: ``inputs/<hash>`` below the ``folder`` of a test.

    What is a copy already is looked at again. Raises ConfigError where a file cannot be read or copied, and where
    a copy has changed.
    """
    data, destination = scenario.data(), folder.absolute() / FOLDER
    replace_files(Scenario, data, lambda named: named.copy(destination))
    return from_data(Scenario, data)
