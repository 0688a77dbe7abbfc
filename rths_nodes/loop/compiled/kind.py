# SPDX-License-Identifier: Apache-2.0
"""Properties of a loop over kernels on which its text depends, and the columns of the numbers that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """Properties on which the text depends; ``dofs`` are the degrees of freedom of a Target."""

    axes: int
    dofs: int
    in_floats: bool
    """True if the integrator takes and returns a float in place of arrays of one."""
    in_tuples: bool
    """True if the integrator takes a tuple in place of an array, and returns tuples in C."""
    soft_start: bool
    lead: int
    """Samples of the force used by its lead; 0 without a lead."""
    in_time: bool
    """True if the integrator's velocity is late, and corrected."""
    ratio: bool
    """True if the rig is slower than the structure."""
    ramp: str
    still: bool
    """The acceleration of a ramp in arrays is one number, zero."""
    setup_on_arrays: bool
    coupled_law: bool
    shown: tuple[int, ...]
    """Numbers of an axis of each function that shows some; of a coupled law those of all axes."""
    renewed: bool
    together: bool
    """Axes that stop together."""
    beside: bool
    """True if more than displacements and forces is limited."""
    converts: bool
    transport: bool
    coupled_rig: bool
    inputs: int
    channels: int
    channel_noise: bool
    sensors: tuple[bool, ...]
    """True for each axis with imperfect sensors."""
    noise: tuple[bool, ...]
    control: bool


def laws(kind: Kind) -> int:
    """Return the number of laws: one for all axes, or one per axis."""
    return 1 if kind.coupled_law else kind.axes


def told(kind: Kind) -> list[tuple[int, int, int]]:
    """Which function shows numbers, of which law, and how many, in the order of the compensator's state."""
    return [(which, law, count) for which, count in enumerate(kind.shown) for law in range(laws(kind))]


def sample_columns(kind: Kind) -> dict[str, slice]:
    """Columns of the numbers of a sample."""
    n, wrong = kind.axes, any(kind.sensors)
    widths = {"target": n, "command": n, "applied": n * kind.converts, "displacement": n, "force": n}
    widths |= {"true_displacement": n * wrong, "true_force": n * wrong, "total": 1, "error": 1}
    return _places(widths | {"channels": kind.channels, "true_channels": kind.channels * kind.channel_noise})


def step_columns(kind: Kind) -> dict[str, slice]:
    """Columns of the numbers of a step."""
    names = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
    return _places(dict.fromkeys(names, kind.dofs) | {"inputs": kind.inputs})


def _places(widths: Mapping[str, int]) -> dict[str, slice]:
    found, first = {}, 0
    for name, width in widths.items():
        found[name] = slice(first, first + width)
        first += width
    return found


def width(columns: Mapping[str, slice]) -> int:
    """Return the number of columns."""
    found: int = max(place.stop for place in columns.values())
    return found
