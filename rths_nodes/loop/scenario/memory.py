# SPDX-License-Identifier: Apache-2.0
"""Memory of a test, estimated before it begins: excessive tests are refused."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import size_of
from rths_nodes.core.validation import walk
from rths_nodes.loop.scenario.schema import Scenario

MOST = 4 << 30
"""Bytes. A day at 1024 Hz in steps of ten samples takes 3 GiB."""
PER_SAMPLE = 3
"""Numbers stored per sample: timed durations, and their evaluation."""
PER_STEP = 8
"""Numbers stored per step: time, ground motion, and intermediate results."""
PER_DEGREE = 2
"""Numbers stored per step and degree of freedom: external force, and a copy."""
PER_REMEMBERED = 8
"""Bytes per remembered sample of a component, in numbers: Python objects are large."""
NUMBER = 8
"""Bytes."""


def check(scenario: Scenario, n_dof: int) -> None:
    """Raise ConfigError for a test that needs more than ``MOST`` before it begins."""
    remembered = scenario.servo_rate * sum(span for _, part in walk(scenario) for span in part.spans().values())
    per_step = PER_STEP + PER_DEGREE * n_dof
    numbers = PER_SAMPLE * scenario.samples + per_step * scenario.steps + PER_REMEMBERED * round(remembered)
    _refuse_beyond(scenario, NUMBER * numbers, "excitation, timing and what components remember")


def check_histories(scenario: Scenario, per_sample: int, per_step: int) -> None:
    """Raise ConfigError for a test whose histories need more than ``MOST``."""
    _refuse_beyond(scenario, NUMBER * (per_sample * scenario.samples + per_step * scenario.steps), "histories")


def _refuse_beyond(scenario: Scenario, needed: int, what: str) -> None:
    if needed > MOST:
        raise ConfigError(
            f"duration * servo_rate = {scenario.samples} samples, {scenario.steps} steps: {what} take "
            f"{size_of(needed)} of memory, must be <= {size_of(MOST)}"
        )
