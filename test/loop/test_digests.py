# SPDX-License-Identifier: Apache-2.0
"""Tests of the histories of shipped scenarios: identical bits on every Python, BLAS and processor.

Each scenario (embedded, 2 s) has two digests: of its constants, some of which depend on LAPACK and the processor,
and of its histories, which are compared if the constants equal the stored ones. Three scenarios also run from
stored constants, and their histories are compared everywhere. After a change of the arithmetic, store them again:

    python test/loop/test_digests.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from object_numbers import numbers_in, put_back

from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

SECONDS = 2.0
DIGESTS = Path(__file__).with_name("digests.json")
CONSTANTS = Path(__file__).with_name("constants.npz")
EVERYWHERE = ("chen_ricles_2010", "rths_benchmark_2020", "phillips_spencer_2012")
HISTORIES = (
    *("target", "command", "displacement", "force", "true_displacement", "true_force", "compensator"),
    *("dof_displacement", "dof_velocity", "dof_acceleration", "exact_acceleration", "restoring_force", "energies"),
)


def loop_of(name: str) -> Loop:
    scenario = files.load(name, [f"duration={SECONDS}"])
    if scenario.soft_start_steps:  # the test begins after it
        scenario = files.load(name, [f"duration={SECONDS + scenario.soft_start_steps * scenario.step}"])
    return Loop(Assembly(scenario))


def parts(loop: Loop) -> list[Any]:
    """Parts of the loop that compute, and the excitation."""
    assembly = loop.assembly
    excitation = [] if assembly.structure is None else [assembly.ground_acceleration]
    return [loop.substructure, loop.commands, loop.rig, *excitation]


def digest_of(numbers: Iterator[Any]) -> str:
    digest = hashlib.sha256()
    for value in numbers:
        digest.update(np.ascontiguousarray(value, "<f8").tobytes())
    return digest.hexdigest()[:16]


def histories_of(loop: Loop) -> str:
    collector = Collector(loop.assembly.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    assert outcome.state.name == "FINISHED", outcome.reason
    run = collector.run({}, {}, {})
    return digest_of(getattr(run, name) for name in HISTORIES)


def computed(name: str) -> dict[str, str]:
    """Return both digests of a scenario on this machine."""
    loop = loop_of(name)
    return {"constants": digest_of(numbers_in(parts(loop))), "histories": histories_of(loop)}


def stored_digests(name: str) -> dict[str, str]:
    return json.loads(DIGESTS.read_text(encoding="utf-8"))[name]


def stored_constants(name: str) -> Iterator[Any]:
    with np.load(CONSTANTS) as file:
        numbers, shapes = file[name], json.loads(str(file[f"{name} shapes"]))
    for shape in shapes:
        size = int(np.prod(shape)) if shape is not None else 1
        values, numbers = numbers[:size], numbers[size:]
        yield float(values[0]) if shape is None else values.reshape(shape)


@pytest.mark.parametrize("name", files.shipped())
def test_histories_have_stored_bits(name: str) -> None:
    stored, result = stored_digests(name), computed(name)
    if result["constants"] != stored["constants"]:
        pytest.skip("LAPACK computes other constants here than where the digests were stored")
    assert result["histories"] == stored["histories"]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_stored_constants_give_stored_histories(name: str) -> None:
    stored, loop = stored_digests(name), loop_of(name)
    put_back(parts(loop), stored_constants(name))
    assert digest_of(numbers_in(parts(loop))) == stored["constants"]
    assert histories_of(loop) == stored["histories"]


def test_changed_constants_change_histories() -> None:
    """A change in the last bit of the constants changes both digests."""
    stored, loop = stored_digests(EVERYWHERE[0]), loop_of(EVERYWHERE[0])
    numbers = [np.where(value, np.nextafter(value, np.inf), value) for value in numbers_in(parts(loop))]
    put_back(parts(loop), iter(numbers))
    assert digest_of(numbers_in(parts(loop))) != stored["constants"]
    assert histories_of(loop) != stored["histories"]


if __name__ == "__main__":
    digests = {name: computed(name) for name in files.shipped()}
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    arrays = {}
    for name in EVERYWHERE:
        numbers = list(numbers_in(parts(loop_of(name))))
        arrays[name] = np.concatenate([np.ravel(value) for value in numbers])
        shapes = [list(value.shape) if isinstance(value, np.ndarray) else None for value in numbers]
        arrays[f"{name} shapes"] = np.array(json.dumps(shapes))
    np.savez_compressed(CONSTANTS, **arrays)
