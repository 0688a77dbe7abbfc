# SPDX-License-Identifier: Apache-2.0
"""Memory that a test takes, told before it begins: what is beyond every machine is refused instead of tried."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import size_of
from rths_nodes.core.validation import walk
from rths_nodes.loop.scenario.schema import Scenario

MOST = 4 << 30
"""Bytes. A day at 1024 Hz in steps of ten samples takes 3 GiB."""
PER_SAMPLE = 3
"""Numbers kept of each sample: the durations that are timed, and what is made of them in the end."""
PER_STEP = 8
"""Numbers kept of each step: its time, the ground motion, and what is computed on the way to it."""
PER_DEGREE = 2
"""Numbers kept of each step and degree of freedom: the external force, and a copy."""
PER_REMEMBERED = 8
"""Numbers kept of each sample that a component remembers: Python's own take the room of several bare ones."""
NUMBER = 8
"""Bytes."""


def check(scenario: Scenario, n_dof: int) -> None:
    """Refuses, with ConfigError, a test that takes more than ``MOST`` before it begins."""
    remembered = scenario.servo_rate * sum(span for _, part in walk(scenario) for span in part.spans().values())
    per_step = PER_STEP + PER_DEGREE * n_dof
    numbers = PER_SAMPLE * scenario.samples + per_step * scenario.steps + PER_REMEMBERED * round(remembered)
    _refuse_beyond(scenario, NUMBER * numbers, "excitation, timing and what components remember")


def check_histories(scenario: Scenario, per_sample: int, per_step: int) -> None:
    """Refuses, with ConfigError, a test whose histories, so many numbers each, take more than ``MOST``."""
    _refuse_beyond(scenario, NUMBER * (per_sample * scenario.samples + per_step * scenario.steps), "histories")


def _refuse_beyond(scenario: Scenario, needed: int, what: str) -> None:
    if needed > MOST:
        raise ConfigError(
            f"duration * servo_rate = {scenario.samples} samples, {scenario.steps} steps: {what} take "
            f"{size_of(needed)} of memory, must be <= {size_of(MOST)}"
        )
