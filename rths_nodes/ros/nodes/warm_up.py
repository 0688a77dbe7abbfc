# SPDX-License-Identifier: Apache-2.0
"""Warm-up of a node for its next integration step."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.realtime import Starving
from rths_nodes.ros.nodes.context import NodeContext
from rths_nodes.ros.nodes.sequence import MeasurementSequence


class WarmUp:
    """Calls ``twin`` (``loop/warm_up.py``) once before every ``substeps``-th Measurement; None: never.

    It helps in real time only, if some samples do not begin a step. The codec of the node is warmed up as well.
    """

    def __init__(
        self,
        context: NodeContext,
        measurements: MeasurementSequence,
        twin: Callable[[Codec], object] | None = None,
        substeps: int = 1,
    ) -> None:
        self._context, self._measurements = context, measurements
        self.twin, self._substeps = twin, substeps
        self._done = 0
        """Last Measurement that was prepared for."""

    @property
    def due(self) -> bool:
        """True if the next sample begins an integration step without a warm-up yet."""
        if self.twin is None or self._measurements.expected % self._substeps:
            return False
        return self._measurements.expected > self._done

    def __call__(self) -> None:
        assert self.twin is not None
        self._done = self._measurements.expected
        try:
            self.twin(self._context.topics.codec)
        except Starving:
            raise
        except Exception as error:  # it serves speed only: no reason to stop a rig
            self.twin = None
            peer = self._context.location.peer
            self._context.phase.remark(f"{peer}: no warm-up: {type(error).__name__}: {error}")
