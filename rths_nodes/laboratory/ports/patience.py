# SPDX-License-Identifier: Apache-2.0
"""Longest wait of a port: a parameter of all ports."""

from __future__ import annotations

from rths_nodes.core.parameters import number

LONGEST_WAIT_S = 3600.0
"""s; a rig must not wait longer under pressure without a sign of the test computer."""


def longest_wait_parameter() -> float:
    found: float = number(
        "time without a command after which the rig trips", "s", 5.0, more_than=0.0, at_most=LONGEST_WAIT_S
    )
    return found
