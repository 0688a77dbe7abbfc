# SPDX-License-Identifier: Apache-2.0
"""Models of a loading system, defined by an inverse model, and their files.

The command is the sum of the matrices G_p times the p-th derivatives of the motion. The inverse, G_FF(s), is thus
a matrix of polynomials of low degree (Phillips & Spencer 2012, Eqs. 2.7, 2.8). The loading system itself, which
feedback control needs (Eq. 2.9), has many poles and zeros. The inverse is stored, and a minimal state space from
commands to displacements is derived from it.

``rths identify`` writes model files, and compensators read them. A model file is YAML in SI units. It contains the
inverse model (one matrix per derivative) and, for feedback, the state space.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core import inputs
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, show, within
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import integer, matrix, number, params, section, text
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import write
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump, parse, source_of

Rows = tuple[tuple[float, ...], ...]

DERIVATIVES = ("displacement", "velocity", "acceleration", "jerk")
"""Names of the derivatives of the motion, by power of s."""
UNITS = ("1", "s", "s^2", "s^3")
ORDER = len(DERIVATIVES) - 1
SINGULAR = 1e-9
"""Ratio of the smallest to the largest singular value below which a matrix counts as singular."""
VERSION = 1
UNREACHED = 1e-9
"""Relative singular value below which a state counts as uncontrollable or unobservable."""


class StateSpace(NamedTuple):
    """State space z' = A z + B u, x = C z, from commands u (m) to displacements x (m)."""

    system: Array
    inputs: Array
    outputs: Array

    def poles(self) -> Complex:
        """Return the eigenvalues of A, rad/s, slowest first."""
        values = np.linalg.eigvals(self.system).astype(np.complex128)
        return values[np.argsort(np.abs(values), kind="stable")]

    def response(self, s: Frequencies) -> Complex:
        """Return the response ``(m, n_axes, n_axes)`` at complex frequencies ``s`` ``(m,)``, rad/s."""
        resolvent = np.asarray(s)[:, None, None] * np.eye(len(self.system)) - self.system
        return np.asarray(self.outputs @ np.linalg.solve(resolvent, self.inputs.astype(np.complex128)[None]))


def inverse_response(coefficients: Array, s: Frequencies) -> Complex:
    """Return G_FF ``(m, n, n)`` of ``coefficients`` ``(powers, n, n)`` at complex ``s`` ``(m,)``, rad/s."""
    powers = np.asarray(s, np.complex128)[:, None] ** np.arange(len(coefficients))
    return np.tensordot(powers, coefficients, 1)


def ahead(coefficients: Array, lead: float) -> Array:
    """Return ``coefficients`` that extrapolate the motion by ``lead`` (s), with a Taylor series up to the jerk."""
    shifted = np.zeros_like(coefficients)
    for power, rows in enumerate(coefficients):
        for shift in range(len(coefficients) - power):
            shifted[power + shift] += lead**shift / math.factorial(shift) * rows
    return shifted


def diagonal(coefficients: Array) -> Array:
    return coefficients * np.eye(coefficients.shape[1])


def degrees(coefficients: Array) -> NDArray[np.intp]:
    """Return the order of the highest derivative in each command, ``(n,)``."""
    used = np.abs(coefficients).max(axis=2) > 0.0
    return np.where(used.any(axis=0), len(used) - 1 - np.argmax(used[::-1], axis=0), 0)


def leading(coefficients: Array) -> Array:
    """Return the coefficients ``(n, n)`` of the highest derivative in each command."""
    rows = degrees(coefficients)
    return coefficients[rows, np.arange(len(rows))]


def check(coefficients: Array, path: str) -> None:
    """Raise ConfigError, naming ``path``, for an unstable model or singular leading or static coefficients."""
    rows = degrees(coefficients)
    name = DERIVATIVES[int(rows.max())]
    if is_singular(leading(coefficients)):
        raise ConfigError(
            f"{path}.{name}: is singular (with the rows of lower degree), so the axes are not separable at "
            "high frequencies and the model has no state space"
        )
    check_static(coefficients, path)
    if rows.min() > 0:
        check_stable(state_space(coefficients), path)


def check_static(coefficients: Array, path: str) -> None:
    """Raise ConfigError, naming ``path``, if the static part of an inverse is singular.

    This check suffices for an inverse used directly, which need not be physical beyond the fitted frequencies.
    """
    if is_singular(coefficients[0]):
        raise ConfigError(f"{path}.{DERIVATIVES[0]}: is singular, so the axes are not separable at rest")


def check_stable(model: StateSpace, path: str) -> None:
    worst = max(model.poles(), key=lambda pole: float(pole.real))
    if not worst.real < 0.0:
        raise ConfigError(
            f"{path}: the model is not stable, because the pole {worst:.4g} 1/s does not have a negative real part"
        )


def is_singular(matrix: Array) -> bool:
    """Return whether ``matrix`` is singular, independently of the units of its rows."""
    sizes = np.abs(matrix).max(axis=1, keepdims=True)
    if not sizes.all():
        return True
    singular = np.linalg.svd(matrix / sizes, compute_uv=False)
    return bool(singular[-1] < SINGULAR * singular[0])


def state_space(coefficients: Array) -> StateSpace:
    """Return the minimal state space of the loading system, balanced for Riccati solvers.

    With the matrix L of :func:`leading`, a chain of integrators leads from each command to a row of L x. The chain
    is as long as the degree of the row. The lower coefficients feed back into the integrators (observer form;
    Kailath, Linear Systems, 1980, section 6.4). ``coefficients`` must pass :func:`check`, with degrees >= 1.
    """
    rows = degrees(coefficients)
    n, count = len(rows), int(rows.sum())
    last = np.cumsum(rows) - 1  # indices of the states L x
    from_leading = np.linalg.inv(leading(coefficients))
    system, inputs, outputs = np.zeros((count, count)), np.zeros((count, n)), np.zeros((n, count))
    for axis, (degree, end) in enumerate(zip(rows, last, strict=True)):
        first = end - degree + 1
        inputs[first, axis] = 1.0
        for link in range(degree):
            system[first + link, last] -= coefficients[link, axis] @ from_leading
            if link:
                system[first + link, first + link - 1] += 1.0
    outputs[:, last] = from_leading
    return balanced(StateSpace(system, inputs, outputs))


def balanced(model: StateSpace) -> StateSpace:
    """Return ``model`` with its states scaled to comparable size by powers of two, which causes no rounding."""
    from scipy.linalg import matrix_balance  # the import takes a tenth of a second

    speed = max(1.0, float(np.abs(model.poles()).max()))
    unit = 2.0 ** round(math.log2(speed))
    _, (scale, _) = matrix_balance(model.system / unit, permute=False, separate=True)
    system = model.system / scale[:, None] * scale
    inputs, outputs = model.inputs / scale[:, None], model.outputs * scale
    # the common factor of all states is free: give commands and displacements equal weight
    even = 2.0 ** round(0.5 * math.log2(np.linalg.norm(outputs) / np.linalg.norm(inputs / unit)))
    return StateSpace(system, inputs * even, outputs / even)


@params
class Feedforward:
    """Coefficients of the commands: one row per command, one column per axis whose motion contributes."""

    displacement: Rows = matrix("coefficients of the displacement", UNITS[0])
    velocity: Rows = matrix("coefficients of the velocity", UNITS[1])
    acceleration: Rows = matrix("coefficients of the acceleration", UNITS[2])
    jerk: Rows = matrix("coefficients of the jerk", UNITS[3])

    def coefficients(self, path: str, n_axes: int = 0) -> Array:
        """Return the array ``(4, n_axes, n_axes)``, ordered by derivative.

        If ``n_axes`` is 0, the number of rows of ``displacement`` is used. Raises ConfigError, with ``path``, if a
        matrix has a different size.
        """
        n = n_axes or len(self.displacement)
        return np.array([_sized(getattr(self, name), n, n, f"{path}.{name}") for name in DERIVATIVES])


@params
class Plant:
    system: Rows = matrix("matrix A, one row per state", "1/s")
    inputs: Rows = matrix("matrix B, one row per state, one column per axis")
    outputs: Rows = matrix("matrix C, one row per axis, one column per state")


@params
class Content:
    version: int = integer("version of this file format", at_least=VERSION, at_most=VERSION)
    servo_rate: float = number("servo rate of the identification", "Hz", more_than=0.0)
    provenance: str = text("source of the model, as text", "")
    lead: float = number(
        "delay of commands in addition to the declared delay of the port; added to the compensator's lead",
        "s",
        0.0,
    )
    feedforward: Feedforward = section(Feedforward, "the inverse model")
    deviation: Feedforward | None = section(
        Feedforward, "standard deviations of the coefficients of the inverse model; default: unknown", None
    )
    plant: Plant | None = section(Plant, "minimal state space; default: computed from the inverse model", None)


@dataclass(frozen=True)
class LoadingModel:
    """Model of a loading system. ``feedforward`` ``(4, n_axes, n_axes)`` are the coefficients of its inverse.

    ``axes`` is empty if the axes have no names. ``lead`` (s) is the delay of commands beyond the declared delay of
    the port. ``origin`` is the file or section of the model.
    """

    axes: tuple[str, ...]
    feedforward: Array
    state_space: StateSpace | None = None
    servo_rate: float = 0.0
    provenance: str = ""
    lead: float = 0.0
    origin: str = "model"
    deviation: Array | None = None
    """Standard deviations of ``feedforward``, of the same shape."""

    @property
    def n_axes(self) -> int:
        return int(self.feedforward.shape[1])

    def plant(self) -> StateSpace:
        """Return the minimal state space (command to displacement). Raises ConfigError for axes without poles."""
        if self.state_space is not None:
            return balanced(self.state_space)
        if not self.dynamic:
            raise ConfigError(f"{self.origin}: an axis without dynamics has no state space. Remove the feedback")
        return state_space(self.feedforward)

    @property
    def dynamic(self) -> bool:
        return self.state_space is not None or bool(degrees(self.feedforward).min() > 0)

    def poles(self) -> Complex:
        """Return the poles of the loading system, rad/s, slowest first; empty if an axis has no poles."""
        return self.plant().poles() if self.dynamic else np.zeros(0, np.complex128)

    def cautions(self, axes: Sequence[str], servo_rate: float) -> list[str]:
        cautions = []
        if self.axes and self.axes != tuple(axes):
            cautions.append(f"model: has the axes {', '.join(self.axes)}, but the test has {', '.join(axes)}")
        if self.servo_rate and self.servo_rate != servo_rate:
            cautions.append(
                f"model: was identified at {self.servo_rate:g} Hz, but the test runs at {servo_rate:g} Hz"
            )
        return cautions


def load(
    path: str | os.PathLike[str], axes: Sequence[str] | None = None, inverse_only: bool = False
) -> LoadingModel:
    """Read and check a model file. ``axes`` are the required axis names, in order; None accepts any names.

    With ``inverse_only`` the inverse need not define a model of the rig. Raises ConfigError with file, key and
    reason if the file is unreadable, the axes differ, or the model is singular, unstable or not minimal.
    """
    origin = f"model {str(path)!r}"
    data = parse(source_of(Path(path).expanduser(), origin), origin)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{origin}: must be a nonempty mapping of sections")
    names = _names(data.get("axes"), origin)
    with within(origin):
        if named := inputs.named_files(Content, dict(data)):
            raise ConfigError(
                f"{named[0].place} = {show(named[0].path)}: must be rows of numbers, not another file"
            )
        content = from_data(Content, {key: value for key, value in data.items() if key != "axes"})
    if axes is not None and names != tuple(axes):
        raise ConfigError(f"{origin}: axes = {', '.join(names)}: must be the axes of the rig, {', '.join(axes)}")
    n, check_inverse = len(names), check_static if inverse_only else check
    feedforward = content.feedforward.coefficients(f"{origin}: feedforward", n)
    check_inverse(feedforward, f"{origin}: feedforward")
    plant = None if content.plant is None else _plant(content.plant, n, f"{origin}: plant")
    spread = None if content.deviation is None else content.deviation.coefficients(f"{origin}: deviation", n)
    return LoadingModel(
        names, feedforward, plant, content.servo_rate, content.provenance, content.lead, origin, spread
    )


def save(model: LoadingModel, path: str | os.PathLike[str]) -> None:
    """Write ``model`` with all digits, so that :func:`load` returns identical numbers.

    Raises OSError if the file cannot be written.
    """
    inverse = {name: rows.tolist() for name, rows in zip(DERIVATIVES, model.feedforward, strict=True)}
    plant = {name: rows.tolist() for name, rows in model.plant()._asdict().items()} if _has_plant(model) else None
    data: Data = {
        "version": VERSION,
        "provenance": model.provenance,
        "servo_rate": model.servo_rate,
        "lead": model.lead,
        "axes": list(model.axes),
        "feedforward": inverse,
        "plant": plant,
    }
    if model.deviation is not None:
        data["deviation"] = {name: rows.tolist() for name, rows in zip(DERIVATIVES, model.deviation, strict=True)}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write(Path(path), dump(data).encode())


def _has_plant(model: LoadingModel) -> bool:
    try:
        check(model.feedforward, model.origin)
    except ConfigError:
        return model.state_space is not None
    return model.dynamic


def _names(names: Any, origin: str) -> tuple[str, ...]:
    fine = isinstance(names, list) and names and all(isinstance(n, str) and n.isidentifier() for n in names)
    if not fine or len(set(names)) < len(names):
        raise ConfigError(f"{origin}: axes = {show(names)}: must be a list of unique axis names")
    return tuple(names)


def _sized(rows: Rows, height: int, width: int, path: str) -> Array:
    array = np.array(rows)
    if array.shape != (height, width):
        raise ConfigError(
            f"{path}: the matrix is {array.shape[0]} x {array.shape[1]}, but must be {height} x {width}"
        )
    return array


def _plant(plant: Plant, n: int, path: str) -> StateSpace:
    states = len(plant.system)
    model = StateSpace(
        _sized(plant.system, states, states, f"{path}.system"),
        _sized(plant.inputs, states, n, f"{path}.inputs"),
        _sized(plant.outputs, n, states, f"{path}.outputs"),
    )
    check_stable(model, path)
    check_minimal(model, path)
    return model


def check_minimal(model: StateSpace, path: str) -> None:
    """Raise ConfigError for uncontrollable or unobservable states (Hautus' test)."""
    system, inputs, outputs = balanced(model)
    # commands and displacements differ in scale
    size = float(np.linalg.norm(system))
    reached = inputs * (size / np.linalg.norm(inputs))
    seen = outputs * (size / np.linalg.norm(outputs))
    for pole in np.linalg.eigvals(system):
        shifted = system - pole * np.eye(len(system))
        for rows, phrase in (
            (np.hstack([shifted, reached]), "no command excites"),
            (np.vstack([shifted, seen]).T, "no displacement shows"),
        ):
            if np.linalg.svd(rows, compute_uv=False)[-1] < UNREACHED * size:
                raise ConfigError(f"{path}: is not minimal, because {phrase} the pole {pole:.4g} 1/s")
