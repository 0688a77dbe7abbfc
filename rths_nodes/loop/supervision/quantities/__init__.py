# SPDX-License-Identifier: Apache-2.0
"""Quantities with a memory, for expressions of levels, made sample by sample from other expressions.

Their protocol is ``Quantity`` of ``core/protocols.py``.
"""

TABLE = {
    "integral": ".integral:Integral",
    "low_pass": ".low_pass:LowPass",
    "moving_rms": ".moving_rms:MovingRms",
}
