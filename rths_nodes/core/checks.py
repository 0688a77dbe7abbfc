# SPDX-License-Identifier: Apache-2.0
"""Statements of the parameters of a component about the test in which they stand.

A ``Params`` class checks its own fields in ``validate``. What depends on the rest of the scenario it says in the
other methods of :class:`ChecksScenario`, which get a :class:`TestContext` and never the scenario itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class TestContext:
    """Facts that parameters may know of their test. Tuples have one entry for each axis, in order."""

    __test__: ClassVar[bool] = False  # not a test case, whatever pytest thinks of the name

    axes: tuple[str, ...]
    """Names of the axes."""
    velocity_limits: tuple[float, ...]
    """m/s."""
    displacement_noise_rms: tuple[float, ...]
    """RMS noise of the displacement sensors, m."""
    servo_rate: float
    """Samples per second of the rig, Hz."""
    dt: float
    """Servo period, s."""
    step: float
    """Integration step, s, in the time of the structure."""
    substeps: int
    """Samples of an integration step as the scenario states them."""
    samples_per_step: int
    """Samples of an integration step on the time axis of the rig."""
    duration: float
    """Duration of the test, s, in the time of the structure."""
    ramp: str
    """Type of the ramp."""
    has_structure: bool
    """False where the motion is prescribed, so that no loop is closed."""
    has_soft_start: bool
    has_ground_motion: bool = False
    has_gravity: bool = False
    """True where the structure has gravity loads: their P-Delta is computed, but for what the rig applies."""
    gravity_of_rig: tuple[float, ...] | None = None
    """The part of these loads that the rig applies, as the structure says, N; None where it does not say."""
    observed: tuple[str, ...] = ()
    """Names of what a Target carries behind the degrees of freedom of the interface."""
    transport: float = 0.0
    """Time after which a command acts, as the port declares it, s."""
    behind: bool = False
    """True for a compensator whose target is the output of another one, in place of the ramp's."""
    force_axes: tuple[str, ...] = ()
    """Names of the last of the axes: those that are controlled by force."""
    strokes: tuple[float, ...] = ()
    """m."""
    force_lead: float | None = None
    """Time by which the measured forces are read ahead, s; None where they are taken as they come."""
    axis: str = ""
    """The axis to which the component belongs; empty for one that belongs to none or all."""

    def of_first(self, n: int) -> TestContext:
        """The same, of the first ``n`` axes only."""
        if n == len(self.axes):
            return self
        rows = ("axes", "velocity_limits", "displacement_noise_rms", "strokes")
        return replace(self, **{name: getattr(self, name)[:n] for name in rows})

    @property
    def velocity_limit(self) -> float | None:
        """m/s, of the axis to which the component belongs; None for one that belongs to none or all."""
        return self.velocity_limits[self.axes.index(self.axis)] if self.axis else None


class ChecksScenario:
    """Methods that a ``Params`` class may have beside its fields; one that it leaves out is as here."""

    def validate(self, path: str) -> None:
        """Raise ConfigError for fields that do not go together; ``path`` is the place of the component."""

    def spans(self) -> Mapping[str, float]:
        """Parameter -> seconds of history that it needs; a shorter test is refused."""
        return {}

    def reads(self) -> Sequence[Path]:
        """Installed files that the component reads, beside those that its parameters name. Raises ConfigError."""
        return ()

    def fits(self, test: TestContext) -> None:
        """Raise ConfigError for a test in which the component cannot work.

        The message begins with the parameter: ``watchdog = 0.001 s: must be ...``. The place of the component is
        put in front of it.
        """

    def cautions(self, test: TestContext) -> list[str]:
        """Say what is allowed but dangerous or doubtful in this test, in words."""
        return []

    def contents(self) -> list[str]:
        """Say what stands in the files that the component names, a line each; ``rths check`` tells it."""
        return []

    def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
        """Return a number for each axis of a setup, the same for axes that move one specimen and must stop as one.

        The first ``n_moved`` axes are those of the setup, those behind them are controlled by force.
        """
        return (0,) * n_axes

    def remarks(self, state: Mapping[str, float]) -> list[str]:
        """After a test: what the last inner numbers of a compensator, by their names, say of it, in words."""
        return []


def complete(cls: type, declared: type = ChecksScenario) -> None:
    """Give a class the members of ``declared``, and of what that inherits from, that it leaves out."""
    for base in declared.__mro__[:-1]:
        for name, value in vars(base).items():
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, value)
