# SPDX-License-Identifier: Apache-2.0
"""Random legal scenarios that run over kernels: shipped cases with other components, options, rates and noise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from minimal_components import data_of
from shipped_cases import WITHOUT_KERNELS, cases, loaded

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import Spec, declared, type_of
from rths_nodes.core.validation import walk
from rths_nodes.loop.compiled.parts import parts_of
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

CHANGES = 24
"""Attempted changes of a shipped case; illegal ones are dropped."""
STEPS = 700
"""Longest test, in integration steps."""
SAMPLES = 8000
SHORTEST = 30
"""Shortest compared test, in integration steps."""
LIMITS = {"stroke": 99.0, "force": 1e9, "deceleration": 5e3}
"""Wide limits, which rarely stop an unstable loop."""
FASTER = 5.0
"""Factor of the velocity limits; specimens take shorter increments the higher these are."""
SOFT_START = {"rise_time": 0.2, "duration": 0.6}
"""Times of a soft start, s."""
FIXED = ("version", "name", "description", "duration", "limits", "bridge", "heartbeat", "monitor", "levels")
FIXED_SECTIONS = ("cases", "scatter", "recording", "rig_file", "updating", "port")
LONGEST_VECTOR = 40


@cache
def bases() -> dict[str, list[str]]:
    """Return the shipped cases with a loop over kernels, by scenario."""
    bases_by_scenario: dict[str, list[str]] = {}
    for case in sorted(case for case in cases() if case not in WITHOUT_KERNELS):
        bases_by_scenario.setdefault(case.partition(" ")[0], []).append(case)
    return bases_by_scenario


def drawn(seed: int) -> tuple[Scenario, hosts.RunResult]:
    """Draw a scenario that ends without a trip, and run it stage by stage."""
    for attempt in range(100):
        rng = np.random.default_rng((seed, attempt))
        base = str(rng.choice(bases()[str(rng.choice(list(bases())))]))
        data = _changed(rng, _widened(loaded(base).data(), rng))
        for _ in range(3):
            scenario = files.from_data(data, "random")
            result = hosts.run(scenario, engine="python")
            if result.outcome == "finished":
                return scenario, result
            steps = result.samples // scenario.samples_per_step - 1 - scenario.soft_start_steps
            if steps < SHORTEST:
                break
            data["duration"] = steps * scenario.step
    raise AssertionError(f"seed {seed}: no scenario ends without a trip")


def _widened(data: Data, rng: np.random.Generator) -> Data:
    """Return a short scenario without published numbers, whose limits stop nothing that is finite."""
    data |= {name: {} for name in ("cases", "scatter", "recording", "monitor", "levels")}
    data["duration"] = float(rng.integers(100, STEPS)) * data["substeps"] / data["servo_rate"]
    for axis in data["axes"].values():
        axis["limits"] = LIMITS | {"velocity": FASTER * axis["limits"]["velocity"]}
    if data["soft_start"]:
        data["soft_start"] |= SOFT_START
    return data


def _changed(rng: np.random.Generator, data: Data) -> Data:
    for _ in range(CHANGES):
        changed = copy.deepcopy(data)
        scenario = files.from_data(data, "random")
        fields = list(_fields(scenario))
        path, spec, value = fields[int(rng.integers(len(fields)))]
        *sections, name = path.split(".")
        section: Any = changed
        for key in sections:
            section = section[key]
        section[name] = _other(rng, spec, value)
        data = _legal(changed) or data
    return data


def _legal(data: Data) -> Data | None:
    """Return the complete data of a scenario; None if it is refused, or has no loop over kernels."""
    try:
        scenario = files.from_data(data, "random")
        assembly = checked_loop(scenario).assembly
    except ConfigError:
        return None
    return None if scenario.samples > SAMPLES or isinstance(parts_of(assembly), str) else scenario.data()


def _fields(scenario: Scenario) -> Iterator[tuple[str, Spec, object]]:
    """Yield the fields that may change: components twice, so that more than numbers differ."""
    for prefix, part in walk(scenario):
        if prefix.split(".")[0] in FIXED_SECTIONS or any(word in FIXED for word in prefix.split(".")):
            continue
        for name, spec in declared(type(part)).items():
            path = f"{prefix}.{name}".lstrip(".")
            if name in FIXED or path in FIXED_SECTIONS:
                continue
            if spec.kind == "component":
                yield from [(path, spec, getattr(part, name))] * 4
            elif spec.kind in ("number", "integer", "flag", "vector") or spec.choices:
                yield path, spec, getattr(part, name)


def _other(rng: np.random.Generator, spec: Spec, value: Any) -> object:
    """Return another value of a field, which may be illegal."""
    if spec.kind == "component":
        name = str(rng.choice(registry.names(spec.family)))
        if name == type_of(value) or (not spec.required and spec.default is None and rng.random() < 0.2):
            return None
        return {"type": name, **data_of(spec.family, name)}
    if spec.kind == "flag":
        return not value
    if spec.choices:
        return str(rng.choice(spec.choices))
    if spec.kind == "integer":
        return max(0, int(value or 0) + int(rng.integers(-2, 4)))
    if spec.kind == "vector":
        return [_number(rng, entry) for entry in value or (0.0,)][:LONGEST_VECTOR]
    return _number(rng, value)


def _number(rng: np.random.Generator, value: float | None) -> float:
    scale = value if value else 10.0 ** rng.uniform(-6, 0)
    return float(scale * np.exp(0.4 * rng.standard_normal()))
