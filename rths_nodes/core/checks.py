# SPDX-License-Identifier: Apache-2.0
"""Statements of the parameters of a component about the test in which they stand.

A ``Params`` class checks its own fields in ``validate``. What depends on the rest of the scenario it says in the
methods of :class:`ChecksScenario`, which get a :class:`TestContext` and never the scenario itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from rths_nodes.core.errors import ConfigError, join


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


class ChecksScenario(Protocol):
    """Methods that a ``Params`` class may have beside its fields. Each may be left out."""

    def spans(self) -> Mapping[str, float]:
        """Parameter -> seconds of history that it needs; a shorter test is refused."""
        ...

    def reads(self) -> Sequence[Path]:
        """Installed files that the component reads, beside those that its parameters name. Raises ConfigError."""
        ...

    def fits(self, test: TestContext) -> None:
        """Raise ConfigError for a test in which the component cannot work.

        The message begins with the parameter: ``watchdog = 0.001 s: must be ...``. The place of the component is
        put in front of it.
        """
        ...

    def cautions(self, test: TestContext) -> list[str]:
        """Say what is allowed but dangerous or doubtful in this test, in words."""
        ...

    def contents(self) -> list[str]:
        """Say what stands in the files that the component names, a line each; ``rths check`` tells it."""
        ...

    def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
        """Return a number for each axis of a setup, the same for axes that move one specimen and must stop as one.

        The first ``n_moved`` axes are those of the setup, those behind them are controlled by force.
        """
        ...

    def remarks(self, state: Mapping[str, float]) -> list[str]:
        """After a test: what the last inner numbers of a compensator, by their names, say of it, in words."""
        ...


def stop_groups_of(setup: Any, n_moved: int, n_axes: int) -> tuple[int, ...]:
    """Group of each of ``n_axes`` axes, as the parameters of a ``setup`` say; one for all where they do not say.

    The first ``n_moved`` axes are those of the setup, those behind them are controlled by force.
    """
    told: tuple[int, ...] = setup.stop_groups(n_moved, n_axes) if hasattr(setup, "stop_groups") else (0,) * n_axes
    return told


def spans_of(params: Any) -> Mapping[str, float]:
    """Seconds of history that ``params`` need, by parameter."""
    found: Mapping[str, float] = params.spans() if hasattr(params, "spans") else {}
    return found


def reads_of(params: Any) -> Sequence[Path]:
    """Installed files that ``params`` read. Raises ConfigError where one is not there."""
    found: Sequence[Path] = params.reads() if hasattr(params, "reads") else ()
    return found


def check_fit(params: Any, test: TestContext, place: str) -> None:
    """Raises ConfigError where ``params``, which stand at ``place``, refuse the test."""
    if hasattr(params, "fits"):
        try:
            params.fits(test)
        except ConfigError as error:
            raise ConfigError(*(join(place, problem) for problem in error.problems)) from None


def cautions_of(params: Any, test: TestContext) -> list[str]:
    """The cautions of ``params`` in the test."""
    found: list[str] = params.cautions(test) if hasattr(params, "cautions") else []
    return found


def contents_of(params: Any) -> list[str]:
    """Lines about what stands in the files of ``params``."""
    found: list[str] = params.contents() if hasattr(params, "contents") else []
    return found


def remarks_of(params: Any, state: Mapping[str, float]) -> list[str]:
    """The remarks of ``params`` on the last inner numbers of a test."""
    found: list[str] = params.remarks(state) if hasattr(params, "remarks") else []
    return found
