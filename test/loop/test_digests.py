# SPDX-License-Identifier: Apache-2.0
"""Tests of the histories of shipped scenarios: identical bits on every Python, BLAS and processor.

Each scenario (embedded, 2 s) has two digests: of its constants, some of which depend on LAPACK and the processor,
and of its histories, which are compared if the constants equal the stored ones. Three scenarios also run from
stored constants, and their histories are compared everywhere. After a change of the arithmetic, store them again:

    python test/loop/test_digests.py
"""

from __future__ import annotations

import enum
import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pytest

from rths_nodes.control.compensators.identified_inverse import IdentifiedInverse
from rths_nodes.control.compensators.linear import Linear
from rths_nodes.control.compensators.model_based import ModelBased
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.control.compensators.predefined import Predefined
from rths_nodes.control.semi_active import ClippedOptimal
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import HIGH, LOW, PER_AXIS, START, STEP, SafeStop
from rths_nodes.numerical.integrators.dynamics import ExplicitNewmark
from rths_nodes.recording.run import Collector

# All numbers in an object, to be digested, stored and restored.
# Floats and arrays of floats in attributes, slots, tuples, lists, deques, mappings by sorted keys and closures,
# each object once, in an order that depends on names only. Random generators, code, modules and classes are left
# out.

NONE = (bool, str, bytes, bytearray, type(None), type, ModuleType, CodeType, BuiltinFunctionType, enum.Enum)
Number = float | np.ndarray
WITH_ONE_STATE = IdentifiedInverse, Linear, ModelBased, Predefined


def numbers_in(thing: Any) -> Iterator[Number]:
    """Yield each float and array in ``thing``."""
    numbers: list[Number] = []

    def take(value: Number) -> Number:
        numbers.append(value)
        return value

    _walk(thing, take, set())
    yield from numbers


def put_back(thing: Any, numbers: Iterator[Number]) -> Any:
    """Replace the numbers of ``thing``, in the order of :func:`numbers_in`; objects are changed in place."""

    def replace(value: Number) -> Number:
        stored = next(numbers)
        if isinstance(value, np.ndarray):
            assert np.shape(stored) == value.shape
            if value.flags.writeable:
                value[...] = stored
                return value
            return np.asarray(stored)
        return type(value)(stored)

    return _walk(thing, replace, set())


def _walk(value: Any, of_number: Callable[[Any], Any], seen: set[int]) -> Any:
    if isinstance(value, NONE):
        return value
    if isinstance(value, float):
        return of_number(value)
    if isinstance(value, int | np.random.Generator):
        return value
    if isinstance(value, np.ndarray):
        if id(value) in seen or value.dtype != np.float64:
            return value
        seen.add(id(value))
        return of_number(value)
    if isinstance(value, tuple):
        parts = [_walk(item, of_number, seen) for item in value]
        same = all(part is item for part, item in zip(parts, value, strict=True))
        return value if same else type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, list | deque):
        for index, item in enumerate(value):
            value[index] = _walk(item, of_number, seen)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            value[key] = _walk(value[key], of_number, seen)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _walk(value[key], of_number, seen)
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            _in_cell(cell, of_number, seen)
    elif isinstance(value, MethodType):
        _walk(value.__self__, of_number, seen)
    elif isinstance(value, SafeStop):
        _walk(_of_stop(value), of_number, seen)
    elif isinstance(value, LimitCheck) and value.loads:
        _walk(_of_check(value), of_number, seen)
    elif isinstance(value, ExplicitNewmark):  # the stored order begins with half of the step
        attributes = _walk(vars(value) | {"constants": (0.5 * value.dt, *value.constants)}, of_number, seen)
        _, *constants = attributes.pop("constants")
        vars(value).update(attributes, constants=value.constants._make(constants))
    elif isinstance(value, ClippedOptimal):  # the stored order repeats the gain
        attributes = _walk(vars(value) | {"gain": np.array(value._constants.gain[0])}, of_number, seen)
        vars(value).update((name, attributes[name]) for name in vars(value))
    elif isinstance(value, WITH_ONE_STATE):
        attributes = _walk(_of_law(value), of_number, seen)
        vars(value).update((name, attributes[name]) for name in vars(value).keys() & attributes.keys())
    elif type(value).__module__.startswith("rths_nodes."):
        _in_object(value, of_number, seen)
    return value


def _of_law(law: PerAxis) -> dict[str, Any]:
    """Attributes of a compensator in the stored order, which is older than the list ``states``."""
    older = {"states": "current", "_shown": "shown"}
    later = {"_dt"} if isinstance(law, IdentifiedInverse) else {"_dt", "_p"}
    return {older.get(name, name): held for name, held in vars(law).items() if name not in later}


def _of_stop(stop: SafeStop) -> list[Any]:
    """Numbers of a safe stop in the stored order, which is older than the present layout."""
    rows = sorted(row for group in stop.groups for row in group)
    _, zeros, strokes, fastest, changes = zip(*rows, strict=True)
    start, steps, low, high = (stop.state[offset::PER_AXIS] for offset in (START, STEP, LOW, HIGH))
    return [*changes, *zip(low, high, strict=True), *fastest, *start, *steps, *strokes, *zeros]


def _of_check(check: LimitCheck) -> dict[str, Any]:
    """Numbers of the limits of loads in the stored order, which is older than the present layout."""
    bounds: list[float] = []
    for _, lim, *_ in check.loads:
        for most in (
            sys.float_info.max,
            sys.float_info.max,
            0.0,
            lim.force,
            lim.force_rate,
            lim.stroke,
            lim.velocity,
        ):
            bounds += [-most, most]
    loads = [[zero, force_zero, dt] for _, _, zero, force_zero, dt in check.loads]
    return vars(check) | {"commands": bounds, "of_command": bounds.copy(), "loads": loads}


def _in_cell(cell: Any, of_number: Callable[[Any], Any], seen: set[int]) -> None:
    try:
        held = cell.cell_contents
    except ValueError:  # the cell is empty
        return
    replaced = _walk(held, of_number, seen)
    if replaced is not held:
        cell.cell_contents = replaced


def _in_object(thing: Any, of_number: Callable[[Any], Any], seen: set[int]) -> None:
    names = set(getattr(thing, "__dict__", ()))
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    for name in sorted(names):
        try:
            held = object.__getattribute__(thing, name)
        except AttributeError:  # a slot that was never filled
            continue
        replaced = _walk(held, of_number, seen)
        if replaced is not held:
            object.__setattr__(thing, name, replaced)


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
    run = collector.run()
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
