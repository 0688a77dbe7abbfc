# SPDX-License-Identifier: Apache-2.0
"""Kernels with inputs of their families, in Python and compiled, and the rules of their text."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
from in_c import compiled
from minimal_components import frame

from rths_nodes.analysis.response_errors import measured_names
from rths_nodes.control.compensators.per_axis import CoupledKernel
from rths_nodes.core import arithmetic, registry
from rths_nodes.core.kernels import Kernel, copied, no_state
from rths_nodes.core.simulators import RigKernel
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.actuators.unloaded import path_of
from rths_nodes.loop.compiled.running import in_arrays

DT = 1.0 / 1024.0
SAMPLES = 400
EXTREMES = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0)
RARELY = 0.02


def numbers(rng: np.random.Generator, scale: float, extreme: bool) -> Iterator[float]:
    """Yield random numbers of a scale, and rarely an extreme one."""
    while True:
        wild = extreme and rng.random() < RARELY
        yield float(rng.choice(EXTREMES)) if wild else float(scale * rng.standard_normal())


def of_compensator(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any]:
    """Kernel, constants, and inputs of each sample: target, measured displacement, force, flags."""
    metres, newtons = numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme)
    rows = [
        (next(metres), next(metres), next(metres), next(metres), next(newtons), rng.random() < 0.1, False)
        for _ in range(SAMPLES)
    ]
    kernel = cls.kernel_of(params)
    if kernel is None:  # a chain, whose kernel belongs to the object
        bound = cls(params, DT, 1).bound()
        kernel = Kernel(lambda *_: bound.constants, lambda k: bound.states[0], bound.step)
    if isinstance(kernel, CoupledKernel):  # two axes, of which the second moves the other way
        rows = [(*((value, -0.5 * value) for value in row[:5]), *row[5:]) for row in rows]
    return kernel, kernel.constants(params, DT), rows  # type: ignore[return-value]


def of_restoring_force(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """Kernel, constants, and the displacement of each sample."""
    metres, x = numbers(rng, 0.01, extreme), 0.0
    rows = []
    for _ in range(SAMPLES):
        x = next(metres) if not math.isfinite(x) else x + next(metres)
        rows.append((x,))
    kernel = cls.kernel_of(params)
    return kernel, kernel.constants(params), rows


LAW = {"type": "bouc_wen", "yield_displacement": 0.005, "exponent": 1.5, "post_yield_ratio": 0.1}
BY_MATRICES = ("exact", "newmark", "runge_kutta")
"""Integrators with a kernel for linear structures; Runge-Kutta has a second kernel."""


def of_integrator(
    cls: Any, params: Any, rng: np.random.Generator, extreme: bool, structure: Any = None
) -> tuple[Kernel, Any, Any]:
    """Kernel for a mass or a ``structure``, constants, and for each sample: force, external force, number."""
    name = cls.Params.type_name
    if structure is None:
        law = {} if name in BY_MATRICES else {"restoring_force": LAW}
        sdof = registry.load("structure", "sdof")
        structure = sdof(from_data(sdof.Params, {"mass": 1e3, "frequency": 3.0, **law}, "structure"))
    n, newtons = len(structure.influence), numbers(rng, 1e3, extreme)
    external = np.array([[next(newtons) for _ in range(n)] for _ in range(SAMPLES + 1)])
    if name in ("prescribed", "predefined"):
        history = np.array([[next(newtons) for _ in range(3)] for _ in range(SAMPLES + 1)])
        history = np.repeat(history[:, :, None], n, axis=2)
        forces = [np.zeros(n) for _ in range(SAMPLES)]
        kernel = cls.kernel_of(params)
        return kernel, np.zeros(n), [(force, history, index) for index, force in enumerate(forces)]
    kernel = cls.kernel_of(params, structure)
    constants = kernel.constants(params, structure, np.nan_to_num(external), 1e-3)
    forces = [np.array([next(newtons) for _ in range(n)]) for _ in range(SAMPLES)]
    if n > 1:
        return kernel, constants, [(force, external, index) for index, force in enumerate(forces)]
    return kernel, constants, [(float(force[0]), external[:, 0], index) for index, force in enumerate(forces)]


def motion(rng: np.random.Generator, extreme: bool) -> list[tuple[float, float]]:
    """Displacements (m) of a random walk at some tenths of m/s, and velocities."""
    x = np.cumsum(2e-4 * rng.standard_normal(SAMPLES))
    wild = numbers(rng, 0.0, True)
    rows = zip(x.tolist(), np.diff(x / DT, prepend=0.0).tolist(), strict=True)
    return [(next(wild), next(wild)) if extreme and rng.random() < 0.01 else row for row in rows]


def of_specimen(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """Kernel of the path; displacement and velocity of each sample."""
    path = path_of(cls(params))
    return path, path.constants(DT), motion(rng, extreme)


SOFT = {"type": "softening_elastomeric"}
STIFF = {"type": "kelvin_voigt", "stiffness": 1e6, "damping": 1e4}
BESIDE = {"type": "parallel", "first": SOFT, "second": {"type": "maxwell_damper"}}


def of_actuator(
    cls: Any, params: Any, rng: np.random.Generator, extreme: bool, held: Any = SOFT
) -> tuple[Kernel, Any, Any]:
    """Kernel with a specimen, which has a mass if the actuator takes one; commands."""
    if params.type_name != "servo_hydraulic":
        held = {"type": "with_mass", "mass": 29.0, "specimen": held}
    specimen = component("specimen", held)
    kernel = cls.kernel_of(params, specimen)
    return kernel, kernel.constants(params, DT), [(x,) for x, _ in motion(rng, extreme)]


def of_rig(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[RigKernel, Any, Any]:
    """Kernel; commands of two axes, and a variable voltage."""
    kernel = cls.kernel_of(params, 2)
    commands = zip(motion(rng, extreme), motion(rng, extreme), rng.uniform(-1.0, 4.0, SAMPLES), strict=True)
    rows = [(np.array([a, b]), np.array([voltage])) for (a, _), (b, _), voltage in commands]
    return kernel, kernel.constants(params, DT), rows


def component(family: str, data: dict[str, Any]) -> Any:
    """Build a component of ``data``, which contains its type."""
    parameters = {key: value for key, value in data.items() if key != "type"}
    cls = registry.load(family, data["type"])
    return cls(from_data(cls.Params, parameters, family))


def of_ramp(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """Each sample on the curve, its prediction, and a Target at the first sample of a step."""
    constants, start, follow, step, predict = cls.kernel_of(params)
    metres, substeps = numbers(rng, 0.01, extreme), 4

    def driven(k: Any, s: Any, x: float, v: float, a: float, substep: int) -> Any:
        before = predict(k, s, substep)
        if substep == 1:
            s = follow(k, s, x, v, a)
        return s, (before, step(k, s, substep))

    rows = [(next(metres), next(metres), next(metres), sample % substeps + 1) for sample in range(SAMPLES)]
    kernel = Kernel(constants, lambda k: start(k, 0.01, -0.2, 3.0), driven)
    return kernel, constants(params, DT, substeps), rows


def of_setup(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """Motion and forces of two axes, and a load if the setup takes one."""
    n_dof = len(params.matrix[0]) if params.type_name == "matrix" else 2
    axes, forces, constants, _ = cls(params, n_dof, 2).bound()
    metres, newtons = numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme)

    def driven(k: Any, s: Any, x: Any, v: Any, a: Any, f: Any) -> Any:
        return s, (axes(k, x, v, a), forces(k, f, x))

    def some(source: Iterator[float], count: int) -> Any:
        values = tuple(next(source) for _ in range(count))
        return values if n_dof == 2 else np.array(values)

    n_forces = 3 if cls.takes_loads else 2
    rows = [(*(some(metres, n_dof) for _ in range(3)), some(newtons, n_forces)) for _ in range(SAMPLES)]
    return Kernel(lambda *_: constants, no_state, driven), constants, rows


def of_semi_active(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """All auxiliary channels, the ground motion and a random choice."""
    names, kernel = measured_names(1), cls.kernel_of(params)
    values = numbers(rng, 1.0, extreme)
    rows = [
        (np.array([next(values) for _ in names]), next(values), float(rng.random() < 0.5)) for _ in range(SAMPLES)
    ]
    return kernel, kernel.constants(params, frame(), DT, names), rows


def of_force_controller(cls: Any, params: Any, rng: np.random.Generator, extreme: bool) -> tuple[Kernel, Any, Any]:
    """Target, measured force, drift; sometimes the controller begins again."""
    constants, rest, begin, step = cls.kernel_of(params)
    metres, newtons = numbers(rng, 0.01, extreme), numbers(rng, 1e5, extreme)

    def driven(k: Any, s: Any, target: float, measured: float, drift: float, begins: bool) -> Any:
        if begins:
            s = begin(k, s, 0.001, target, drift, drift)
        return step(k, s, target, measured, drift)

    rows = [(next(newtons), next(newtons), next(metres), rng.random() < 0.05) for _ in range(SAMPLES)]
    return Kernel(constants, rest, driven), constants(params, DT), rows


FAMILIES: dict[str, Callable[..., Any]] = {
    "compensator": of_compensator,
    "restoring_force": of_restoring_force,
    "integrator": of_integrator,
    "specimen": of_specimen,
    "actuator": of_actuator,
    "rig": of_rig,
    "ramp": of_ramp,
    "setup": of_setup,
    "semi_active": of_semi_active,
    "force_controller": of_force_controller,
}


def flat(value: Any) -> list[Any]:
    """Return all numbers in a value, in order."""
    if isinstance(value, (tuple, list)):
        return [number for part in value for number in flat(part)]
    return np.ravel(value).tolist() if isinstance(value, np.ndarray) else [value]


def same(one: Any, other: Any) -> bool:
    """True if all numbers have the same bits, or are both NaN."""
    pairs = list(zip(flat(one), flat(other), strict=True))
    return all((a != a and b != b) or np.float64(a).tobytes() == np.float64(b).tobytes() for a, b in pairs)


def in_c(function: Any, constants: Any, *arguments: Any) -> Any:
    """Compile a function to C; the integers of its ``constants`` are part of its text."""
    return compiled(function, (constants, *arguments), (True, *[False] * len(arguments)))


def agree(kernel: Any, constants: Any, rows: Any) -> None:
    """Check that state and output are equal in Python and in C over all ``rows`` of inputs."""
    with np.errstate(all="ignore"):
        state, compiled_state = copied(kernel.rest(constants)), in_arrays(copied(kernel.rest(constants)))
        step = in_c(kernel.step, constants, compiled_state, *rows[0])
        for sample, inputs in enumerate(rows):
            state, output = kernel.step(constants, state, *inputs)
            compiled_state, compiled_output = step(constants, compiled_state, *inputs)
            assert same(output, compiled_output), (sample, inputs, output, compiled_output)
            assert same(state, compiled_state), (sample, inputs, state, compiled_state)


# Rules of the text of a kernel

ALLOWED = {"abs", "len", "range", "float", "bool", "True", "False", "max", "min"}
NUMPY = {"empty", "zeros", "full", "array", "nan", "minimum", "maximum"}
BARRED = (ast.Raise, ast.Try, ast.With, ast.JoinedStr, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)


def functions_of(function: Any, seen: dict[Any, Any]) -> dict[Any, Any]:
    """Return ``function`` and all functions of this package that it calls, except arithmetic, by their ids."""
    if not isinstance(function, FunctionType) or id(function) in seen:
        return seen
    if not function.__module__.startswith(("rths_nodes.", __name__)) or function.__module__ == arithmetic.__name__:
        return seen
    seen[id(function)] = function
    reached = [function.__globals__.get(name) for name in function.__code__.co_names]
    reached += [cell.cell_contents for cell in function.__closure__ or ()]
    for item in reached:
        functions_of(item, seen)
    return seen


def wrong_in(function: Any) -> list[str]:
    """Return the parts of a function that have no defined bits, or are no arithmetic."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body  # type: ignore[arg-type,attr-defined]
    faults = []
    for node in (part for statement in body for part in ast.walk(statement)):
        if isinstance(node, BARRED) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            faults.append(f"{type(node).__name__} in line {node.lineno}")
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.MatMult, ast.Mod, ast.FloorDiv)):
            faults.append(f"{type(node.op).__name__} in line {node.lineno}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "math" or (node.value.id == "np" and node.attr not in NUMPY):
                faults.append(f"{node.value.id}.{node.attr}")
            if node.value.id == "self":
                faults.append("self")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            defined = name in function.__globals__ or name in function.__code__.co_freevars
            if not defined and name not in ALLOWED:
                faults.append(f"{name}()")
    return faults


def without_purpose(function: Any) -> str:
    """Return file and line of a function of this package with more than two lines and no docstring, or nothing."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    lines = (tree.end_lineno or 0) - tree.body[0].lineno + 1
    foreign = not function.__module__.startswith("rths_nodes.")
    code = function.__code__
    return "" if ast.get_docstring(tree) or foreign or lines < 3 else f"{code.co_filename}:{code.co_firstlineno}"
