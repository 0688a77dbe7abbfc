# SPDX-License-Identifier: Apache-2.0
"""Copies of a specimen: models of the restoring force whose open parameters are estimated.

Open parameters are relative to their initial values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.errors import ConfigError, join, unknown
from rths_nodes.core.parameters import declared
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.updating.unscented import Point


class Kind(NamedTuple):
    """Model of copies: family, parameters open by default, and size of the memory as a function of the parameters.

    A model without a memory is linear in its parameters.
    """

    family: str
    parameters: tuple[str, ...]
    memory: Callable[[AnyParams], float] | None


KINDS = {
    "bouc_wen": Kind("restoring_force", ("stiffness", "yield_displacement", "post_yield_ratio"), lambda p: 1.0),
    "bilinear": Kind(
        "restoring_force",
        ("stiffness", "yield_force", "post_yield_ratio"),
        lambda p: (1.0 - p.post_yield_ratio) * p.yield_force,
    ),
    "kelvin_voigt": Kind("specimen", ("stiffness", "damping"), None),
}


class Open(NamedTuple):
    """Open parameter to estimate. ``bounds`` are in SI units; None means half and twice the initial value."""

    name: str
    bounds: tuple[float, float] | None = None


class Copy:
    """A model with ``values`` (SI), whose parameters ``names`` are estimated between ``lower`` and ``upper``.

    A *point* is a list: these parameters divided by their ``initial`` values, then the memory divided by its size,
    if the model has a memory.
    """

    def __init__(
        self, model: str, values: Mapping[str, object], opened: Sequence[Open] = (), path: str = "model"
    ) -> None:
        if model not in KINDS:
            raise unknown("", "model", model, KINDS)
        kind = KINDS[model]
        self._path = path
        cls = registry.load(kind.family, model)
        built = from_data(cls.Params, dict(values), path)
        self.model, self.kernel = model, cls.KERNEL
        self.values = {name: getattr(built, name) for name in declared(cls.Params)}
        if missing := [name for name, value in self.values.items() if value is None]:
            raise ConfigError(f"{path}.{missing[0]}: missing, but required by {model}")
        opened = opened or [Open(name) for name in kind.parameters]
        self.names = tuple(parameter.name for parameter in opened)
        self._check_names()
        units = [declared(cls.Params)[name].unit for name in self.names]
        self.units = tuple("" if unit == "1" else unit for unit in units)
        self.initial = np.array([self.values[name] for name in self.names])
        bounds = np.array([_bounds(parameter, self.values[parameter.name], path) for parameter in opened])
        self.lower, self.upper = (np.asarray(column) for column in (bounds / self.initial[:, None]).T)
        for corner in itertools.product(*bounds.tolist()):  # parameters must be valid at all bounds
            from_data(cls.Params, self.values | dict(zip(self.names, corner, strict=True)), path)
        self.memory = kind.memory(built) if kind.memory else 0.0
        """Size of the memory; 0 without a memory."""
        self._limits = list(
            zip(self.names, self.initial.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        )

    def _check_names(self) -> None:
        for name in self.names:
            if name not in self.values:
                raise unknown(self._path, "parameter", name, self.values)
            if not isinstance(self.values[name], float) or not self.values[name] > 0.0:
                value = self.values[name]
                path = join(self._path, name)
                raise ConfigError(f"{path} = {value}: must be > 0, because updates are relative to this value")
        if len(set(self.names)) < len(self.names):
            raise ConfigError(
                f"{self._path}: each parameter must be listed once, but the list is {', '.join(self.names)}"
            )

    @property
    def linear(self) -> bool:
        return not self.memory and set(self.names) <= set(KINDS[self.model].parameters)

    def parameters(self, point: Point) -> AnyParams:
        parameters = dict(self.values)
        for (name, initial, lower, upper), share in zip(self._limits, point, strict=False):
            parameters[name] = initial * min(max(share, lower), upper)
        return SimpleNamespace(**parameters)

    def moved(self, point: Point, before: float, x: float) -> Point:
        """Return ``point`` with its memory after the move from displacement ``before`` to ``x`` (m)."""
        if not self.memory:
            return point
        constants = self.kernel.constants(self.parameters(point))
        (_, memory), _ = self.kernel.step(constants, (before, self.memory * point[-1]), x)
        return [*point[:-1], memory / self.memory]

    def force(self, point: Point, x: float, v: float) -> float:
        constants = self.kernel.constants(self.parameters(point))
        if not self.memory:
            return float(self.kernel.force(constants, (), x, v))
        return float(self.kernel.step(constants, (x, self.memory * point[-1]), x)[1])

    def row(self, x: float, v: float) -> tuple[Array, float]:
        """Return the forces (N) of open parameters at initial values, ``(m,)``, and of all fixed parameters."""
        rest = dict.fromkeys(self.names, 0.0)
        forces = []
        for name in (None, *self.names):
            values = self.values | rest | ({name: self.values[name]} if name else {})
            forces.append(float(self.kernel.force(self.kernel.constants(SimpleNamespace(**values)), (), x, v)))
        return np.array(forces[1:]) - forces[0], forces[0]


class Follower:
    """Changes parameters of a ``model`` in the numerical structure, relative to initial ``values`` (SI)."""

    def __init__(self, model: str, values: Mapping[str, object], names: Sequence[str]) -> None:
        kind = KINDS[model]
        self._kernel, self._size = registry.load(kind.family, model).KERNEL, kind.memory
        self._values, self._names = dict(values), names
        self._now = SimpleNamespace(**self._values)

    def change(self, shares: Point) -> Callable[[object, object], tuple[object, object]]:
        """Set the parameters to ``shares`` of their initial values.

        Return a function that converts constants and memory. The memory changes in proportion to its size, e.g.
        the force of a yielding spring in proportion to the limit of this force.
        """
        before, after = self._now, SimpleNamespace(**self._values)
        for name, share in zip(self._names, shares, strict=True):
            setattr(after, name, share * getattr(after, name))
        self._now, constants = after, self._kernel.constants(after)
        factor = self._size(after) / self._size(before) if self._size else 1.0

        def changed(_: object, memory: object) -> tuple[object, object]:
            x, inner = cast(tuple[float, float], memory)
            return constants, (x, factor * inner)

        return changed


def _bounds(opened: Open, value: float, path: str) -> tuple[float, float]:
    low, high = opened.bounds or (0.5 * value, 2.0 * value)
    if not 0.0 < low <= value <= high:
        raise ConfigError(
            f"{path}.{opened.name}: the bounds {low:g} to {high:g} must be > 0 and enclose the value {value:g}"
        )
    return low, high
