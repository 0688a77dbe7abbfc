# SPDX-License-Identifier: Apache-2.0
"""Parts of a simulator that a loop over kernels computes by itself, in place of the port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rths_nodes.core.protocols import Rig
from rths_nodes.laboratory.sensing import AuxiliarySensors, SensorPair


class Parts(NamedTuple):
    """Rig, sensors of the axes, those beside them, converters of commands, and samples until a command acts.

    ``converters``: resolution and range by axis; empty where none converts.
    """

    rig: Rig
    sensors: Sequence[SensorPair]
    auxiliary: AuxiliarySensors
    converters: Sequence[tuple[float, float]]
    transport: int
