# SPDX-License-Identifier: Apache-2.0
"""Results of cyclic tests of an axis, as a rig file keeps them: ``rths characterise --out`` writes them.

The stiffness was measured with the sensors that the small move looks at again: it shows that a scale has changed
since, or that another specimen stands in the rig. It verifies no scale.
"""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import flag, matrix, number, params, text

COLUMNS = ("amplitude, m", "frequency, Hz", "storage stiffness, N/m", "loss factor", "gain", "delay, s")
"""Columns of a row of ``tests``."""
CERTAINTY = 3.0
"""So many standard deviations wide the band is, to each side."""
LEAST_KNOWN = 0.02
"""No stiffness counts as known better: load cell, displacement sensor and slow motion are not."""


class Expected(NamedTuple):
    """The stiffness that the small move should find."""

    stiffness: float
    """N/m"""
    known_to: float | None
    """Share by which it may differ; None where nobody says."""
    words: str
    """Who says so."""
    independent: bool
    """It was not found with the sensors of this rig."""


@params
class Characterised:
    """Specimen and actuator of an axis by cyclic tests, transport included; in coordinates of the axis."""

    scenario: str = text("what was driven")
    date: str = text("when")
    simulated: bool = flag("on a simulator: an operator's small move refuses it on a rig that is none", False)
    stiffness: float = number(
        "storage stiffness in the slowest test of the smallest amplitude", "N/m", more_than=0.0
    )
    stiffness_scatter: float = number(
        "standard deviation of it, over the cycles and over the frequencies of that amplitude", "N/m", at_least=0.0
    )
    loss_factor: float = number("loss over storage stiffness, in the same test", "1")
    loss_factor_scatter: float = number("standard deviation of it over the cycles", "1", at_least=0.0)
    equivalent_stiffness: float = number("of the spring beside a dashpot that is nearest to all tests", "N/m")
    equivalent_damping: float = number("of that dashpot", "N s/m")
    tests: tuple[tuple[float, ...], ...] = matrix(f"a row for each test: {'; '.join(COLUMNS)}")

    def validate(self, path: str) -> None:
        """Refuses rows that are no tests, and a stiffness that scatters too much to be expected."""
        place = join(path, "tests")
        for index, row in enumerate(self.tests):
            if len(row) != len(COLUMNS):
                raise ConfigError(
                    f"{place}[{index}]: {len(row)} numbers; must be {len(COLUMNS)}: {'; '.join(COLUMNS)}"
                )
            for column in (0, 1, 4):
                if row[column] <= 0.0:
                    raise ConfigError(f"{place}[{index}]: {COLUMNS[column]} = {row[column]:g}: must be > 0")
        if not self.known_to < 1.0:
            raise ConfigError(
                f"{join(path, 'stiffness_scatter')} = {self.stiffness_scatter:g} N/m: must be < "
                f"{self.stiffness / CERTAINTY:g} N/m, a third of stiffness: nothing can be expected of it"
            )

    @property
    def known_to(self) -> float:
        """Share by which the stiffness may differ from what was found."""
        return max(LEAST_KNOWN, CERTAINTY * self.stiffness_scatter / self.stiffness)

    @property
    def expected(self) -> Expected:
        """Stiffness that the small move should find."""
        words = f"that cyclic tests have shown on {self.date}, to {self.known_to:.0%}"
        return Expected(self.stiffness, self.known_to, words, False)
