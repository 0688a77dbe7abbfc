"""Whether a specimen's relaxation is slow enough for the steps in which its states are integrated."""

from __future__ import annotations

from rths_nodes.core.checks import TestContext

SHORTEST = 0.5
"""Relaxation time in samples: there are 4 Runge-Kutta steps in a sample, each then half the relaxation time long,
which is exact to 0.03 %. At a fifth of it they are unstable."""


def relaxation_cautions(time: float, words: str, test: TestContext) -> list[str]:
    """A warning where the relaxation time (s), which is ``words``, is short beside a servo period."""
    if time >= SHORTEST * test.dt:
        return []
    return [
        f"{words} = {time:.3g} s: shorter than {SHORTEST:g} samples, the specimen gets inexact or unstable; "
        "leave the stiff spring out or raise servo_rate"
    ]
