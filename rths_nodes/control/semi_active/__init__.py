# SPDX-License-Identifier: Apache-2.0
"""Semi-active controllers: set the auxiliary inputs of the rig, e.g. the voltage of a damper."""

from __future__ import annotations

TABLE = {
    "clipped_optimal": ".clipped_optimal:ClippedOptimal",
    "passive": ".open_loop:Passive",
    "random_switching": ".open_loop:RandomSwitching",
}
