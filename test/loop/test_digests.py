# SPDX-License-Identifier: Apache-2.0
"""The bits of every shipped scenario: the same on every Python, with every BLAS, on every processor.

Two digests of each (embedded, 2 s): of all numbers that its arithmetic starts from, which LAPACK makes in part,
and which processors may change; and of its histories, compared where the first digest is the stored one. Three run
from constants that are stored themselves, and have their histories everywhere. Another arithmetic changes these:

    python test/loop/test_digests.py       stores them anew
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
    if scenario.soft_start_steps:  # the test begins behind it
        scenario = files.load(name, [f"duration={SECONDS + scenario.soft_start_steps * scenario.step}"])
    return Loop(Assembly(scenario))


def parts(loop: Loop) -> list[Any]:
    """All that computes, with the excitation."""
    assembly = loop.assembly
    excitation = [] if assembly.structure is None else [assembly.ground_acceleration]
    return [loop.substructure, loop.commands, loop.rig, *excitation]


def of_numbers(numbers: Iterator[Any]) -> str:
    digest = hashlib.sha256()
    for value in numbers:
        digest.update(np.ascontiguousarray(value, "<f8").tobytes())
    return digest.hexdigest()[:16]


def histories_of(loop: Loop) -> str:
    collector = Collector(loop.assembly.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    assert outcome.state.name == "FINISHED", outcome.reason
    run = collector.run({}, {}, {})
    return of_numbers(getattr(run, name) for name in HISTORIES)


def made(name: str) -> dict[str, str]:
    """The two digests of a scenario here."""
    loop = loop_of(name)
    return {"constants": of_numbers(numbers_in(parts(loop))), "histories": histories_of(loop)}


def stored_constants(name: str) -> Iterator[Any]:
    with np.load(CONSTANTS) as file:
        numbers, shapes = file[name], json.loads(str(file[f"{name} shapes"]))
    at = 0
    for shape in shapes:
        size = int(np.prod(shape)) if shape is not None else 1
        values = numbers[at : at + size]
        at += size
        yield float(values[0]) if shape is None else values.reshape(shape)


@pytest.mark.parametrize("name", files.shipped())
def test_the_histories_have_the_stored_bits(name: str) -> None:
    stored, here = json.loads(DIGESTS.read_text(encoding="utf-8"))[name], made(name)
    if here["constants"] != stored["constants"]:
        pytest.skip("LAPACK makes other constants here than where the digests were stored")
    assert here["histories"] == stored["histories"]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_from_stored_constants_they_have_them_everywhere(name: str) -> None:
    stored, loop = json.loads(DIGESTS.read_text(encoding="utf-8"))[name], loop_of(name)
    put_back(parts(loop), stored_constants(name))
    assert of_numbers(numbers_in(parts(loop))) == stored["constants"]
    assert histories_of(loop) == stored["histories"]


def test_another_constant_gives_other_histories() -> None:
    """Both digests see it, in the last bit of the first number that a step uses."""
    name = EVERYWHERE[0]
    loop = loop_of(name)
    numbers = [np.where(value, np.nextafter(value, np.inf), value) for value in numbers_in(parts(loop))]
    put_back(parts(loop), iter(numbers))
    stored = json.loads(DIGESTS.read_text(encoding="utf-8"))[name]
    assert of_numbers(numbers_in(parts(loop))) != stored["constants"]
    assert histories_of(loop) != stored["histories"]


def store() -> None:
    """Both files, from what is here."""
    DIGESTS.write_text(
        json.dumps({name: made(name) for name in files.shipped()}, indent=1) + "\n", encoding="utf-8"
    )
    arrays = {}
    for name in EVERYWHERE:
        numbers = list(numbers_in(parts(loop_of(name))))
        arrays[name] = np.concatenate([np.ravel(value) for value in numbers])
        arrays[f"{name} shapes"] = np.array(
            json.dumps([list(value.shape) if isinstance(value, np.ndarray) else None for value in numbers])
        )
    np.savez_compressed(CONSTANTS, **arrays)


if __name__ == "__main__":
    store()
