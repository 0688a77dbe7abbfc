# SPDX-License-Identifier: Apache-2.0
"""Model files of a rig's identified loading system; ``rths identify`` writes them, compensators read them.

A file is YAML in SI units. It has the inverse model (Phillips & Spencer 2012, Eq. 2.8), one matrix per derivative,
and, for feedback, the state space (Eq. 2.9) from commands to displacements.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.core import inputs
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, show, within
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.parameters import integer, matrix, number, params, section, text
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import dump, parse, source_of
from rths_nodes.mechanics.models import inverse as inverse_model
from rths_nodes.mechanics.models.inverse import DERIVATIVES, UNITS, StateSpace

Rows = tuple[tuple[float, ...], ...]

VERSION = 1
UNREACHED = 1e-9
"""Relative singular value below which a state counts as uncontrollable or unobservable."""


@params
class Feedforward:
    """Coefficients of the commands, with a row for each command and a column for the motion of each axis."""

    displacement: Rows = matrix("coefficients of the displacement", UNITS[0])
    velocity: Rows = matrix("coefficients of the velocity", UNITS[1])
    acceleration: Rows = matrix("coefficients of the acceleration", UNITS[2])
    jerk: Rows = matrix("coefficients of the jerk", UNITS[3])

    def coefficients(self, path: str, n_axes: int = 0) -> Array:
        """Return the array ``(4, n_axes, n_axes)``, ordered by derivative.

        ``n_axes`` = 0 means the number of rows of ``displacement``. Raises ConfigError, with ``path``, if a matrix
        has another size.
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
    """A model of the loading system; ``feedforward`` ``(4, n_axes, n_axes)`` has the coefficients of its inverse.

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
        """Return the minimal state space from commands to displacements. Raises ConfigError for a static axis."""
        if self.state_space is not None:
            return inverse_model.balanced(self.state_space)
        if not self.dynamic:
            raise ConfigError(f"{self.origin}: an axis without dynamics has no state space; remove feedback")
        return inverse_model.state_space(self.feedforward)

    @property
    def dynamic(self) -> bool:
        return self.state_space is not None or bool(inverse_model.degrees(self.feedforward).min() > 0)

    def poles(self) -> Complex:
        """Return the poles of the loading system, rad/s, slowest first; empty if an axis is static."""
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
    """Read and check a model file; ``axes`` are the required names, in order.

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
    return _checked(names, content, origin, inverse_only)


def save(model: LoadingModel, path: str | os.PathLike[str]) -> None:
    """Write ``model`` with all digits, so that :func:`load` returns the same bits.

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
    Path(path).write_text(dump(data), encoding="utf-8")


def _has_plant(model: LoadingModel) -> bool:
    try:
        inverse_model.check(model.feedforward, model.origin)
    except ConfigError:
        return model.state_space is not None
    return model.dynamic


def _names(names: Any, origin: str) -> tuple[str, ...]:
    fine = isinstance(names, list) and names and all(isinstance(n, str) and n.isidentifier() for n in names)
    if not fine or len(set(names)) < len(names):
        raise ConfigError(f"{origin}: axes = {show(names)}: must be a list of unique axis names")
    return tuple(names)


def _checked(axes: tuple[str, ...], content: Content, origin: str, inverse_only: bool) -> LoadingModel:
    n = len(axes)
    feedforward = content.feedforward.coefficients(f"{origin}: feedforward", n)
    check = inverse_model.check_static if inverse_only else inverse_model.check
    check(feedforward, f"{origin}: feedforward")
    plant = None if content.plant is None else _plant(content.plant, n, f"{origin}: plant")
    spread = None if content.deviation is None else content.deviation.coefficients(f"{origin}: deviation", n)
    return LoadingModel(
        axes, feedforward, plant, content.servo_rate, content.provenance, content.lead, origin, spread
    )


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
    inverse_model.check_stable(model, path)
    check_minimal(model, path)
    return model


def check_minimal(model: StateSpace, path: str) -> None:
    """Raise ConfigError for uncontrollable or unobservable states (Hautus' test)."""
    system, inputs, outputs = inverse_model.balanced(model)
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
