# SPDX-License-Identifier: Apache-2.0
"""Histories of the axes that are controlled by force, beside those of the others, in units of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.samples import MODE_FORCE, Array


@dataclass(eq=False)
class Loads:
    """The force axes of a Run, ``names``; arrays ``(n, n_force)``, of samples 0 ... n-1.

    ``target`` and ``command`` in N, nan where the axis was held; ``held`` is the displacement command (m) there,
    nan where its mode was force. ``force``, ``true_force`` in N; ``displacement``, ``true_displacement`` in m.
    """

    names: tuple[str, ...]
    target: Array
    command: Array
    held: Array
    displacement: Array
    force: Array
    true_displacement: Array
    true_force: Array

    @property
    def error(self) -> Array:
        """Target minus measured force, N; nan where the axis was held."""
        return self.target - self.force


Rows = dict[str, dict[str, Array]]


def split(rows: Mapping[str, Mapping[str, Array]], names: tuple[str, ...]) -> tuple[Rows, Loads | None]:
    """The ``rows`` of a Run (stream, field) of the axes that follow displacements; the loads on ``names``."""
    found = {stream: dict(fields) for stream, fields in rows.items()}
    if not names:
        return found, None
    behind: Rows = {}
    for stream in ("measurement", "command", "true_state"):
        for name, values in found[stream].items():
            if values.shape[1] > 1:
                n = values.shape[1] - len(names)
                behind.setdefault(stream, {})[name] = values[:, n:]
                found[stream][name] = values[:, :n]
    measured, commanded, true = behind["measurement"], behind["command"], behind["true_state"]
    by_force = _of_force(commanded["control_mode"]) & _of_force(measured["control_mode"])
    applied = np.where(_of_force(measured["control_mode"]), np.nan, measured["command"])
    return found, Loads(
        names,
        np.where(by_force, commanded["target"], np.nan),
        np.where(by_force, commanded["command"], np.nan),
        applied,
        measured["displacement"],
        measured["force"],
        true["displacement"],
        true["force"],
    )


def _of_force(modes: Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = modes == MODE_FORCE
    return found
