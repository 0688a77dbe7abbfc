# SPDX-License-Identifier: Apache-2.0
"""Curves of a recorded test in the columns in which it was seen while it ran (``loop/supervision/live.py``)."""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.samples import Array
from rths_nodes.loop.supervision.live import columns_of, per_column


def live_columns(of: Evaluation) -> Array:
    """First, lowest, highest and last value of each column and curve, ``(columns, curves, 4)``.

    The axes are those that follow displacements; the tracking indicator is nan where no sample counts.
    """
    run, per = of.run, per_column(of.scenario.servo_rate)
    indicator = np.full(run.target.shape, np.nan)
    indicator[of.counted] = of.running.tracking_indicator
    error = run.target - run.displacement
    return columns_of(np.hstack([run.target, run.command, run.displacement, run.force, error, indicator]), per)
