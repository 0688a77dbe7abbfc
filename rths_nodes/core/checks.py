# SPDX-License-Identifier: Apache-2.0
"""Checks of a component's parameters against a test.

A ``Params`` class checks its own fields in ``validate``. Checks against the rest of the scenario belong to the
other methods of :class:`ChecksScenario`, which receive a :class:`TestContext` and never the scenario itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array


def unchanged(displacement: Array, velocity: Array) -> tuple[Array, Array]:
    return displacement, velocity


def check_one_of(path: str, fields: object, first: str, second: str, hint: str = "") -> None:
    """Raise ConfigError unless exactly one of the keys ``first`` and ``second`` is set."""
    unset = [name for name in (first, second) if getattr(fields, name) is None]
    if len(unset) != 1:
        state = "neither is given" if unset else "both are given"
        raise ConfigError(
            f"{path}: exactly one of {path}.{first} and {path}.{second} is required, but {state}{hint}"
        )


@dataclass(frozen=True)
class TestContext:
    """Holds the data of a test for checks of parameters. Values by axis are in the order of ``axes``."""

    __test__: ClassVar[bool] = False  # not a test case of pytest

    axes: tuple[str, ...]
    velocity_limits: tuple[float, ...]
    """Velocity limits, m/s."""
    displacement_noise_rms: tuple[float, ...]
    """RMS noise of the displacement sensors, m."""
    servo_rate: float
    """Sampling rate of the rig, Hz."""
    dt: float
    """Servo period, s."""
    step: float
    """Integration step in the time of the structure, s."""
    substeps: int
    """Samples per integration step, as stated in the scenario."""
    samples_per_step: int
    """Samples per integration step on the rig: ``substeps`` times the time ratio."""
    duration: float
    """Duration of the test in the time of the structure, s."""
    ramp: str
    has_structure: bool
    """False for a prescribed motion, which has no closed loop."""
    has_soft_start: bool
    has_ground_motion: bool = False
    has_gravity: bool = False
    """True if the structure has gravity loads."""
    gravity_of_rig: tuple[float, ...] | None = None
    """Gravity loads that the rig applies, as declared by the structure, N; None if not declared."""
    observed: tuple[str, ...] = ()
    """Names of the degrees of freedom that follow the interface degrees of freedom in a Target."""
    transport: float = 0.0
    """Time until a command takes effect, as declared by the port, s."""
    behind: bool = False
    """True for a compensator whose target is the output of another compensator, not of the ramp."""
    force_axes: tuple[str, ...] = ()
    """Names of force-controlled axes, the last entries of ``axes``."""
    strokes: tuple[float, ...] = ()
    """Strokes of the axes, m."""
    force_lead: float | None = None
    """Extrapolation time of measured forces, s; None if forces are not extrapolated."""
    to_axes: Callable[[Array, Array], tuple[Array, Array]] = field(default=unchanged, compare=False)
    """Function that converts displacements (m) and velocities (m/s) from degrees of freedom ``(n, n_dof)`` to axes
    ``(n, n_axes)``."""
    axis: str = ""
    """Name of the component's axis; empty if the component has no axis or serves all axes."""

    def check_order(self, key: str, names: Iterable[str]) -> None:
        """Raise ConfigError unless ``names``, the value of parameter ``key``, equals ``axes``."""
        if (listed := tuple(names)) != self.axes:
            shown, axes = ", ".join(listed) or "none", ", ".join(self.axes)
            raise ConfigError(
                f"{key}: is for the axes {shown}, but must be for the axes of the test in their order, {axes}"
            )

    def of_first(self, n: int) -> TestContext:
        if n == len(self.axes):
            return self
        rows = ("axes", "velocity_limits", "displacement_noise_rms", "strokes")
        return replace(self, **{name: getattr(self, name)[:n] for name in rows})

    @property
    def velocity_limit(self) -> float | None:
        """Velocity limit of the component's axis, m/s; None if the component has no axis."""
        return self.velocity_limits[self.axes.index(self.axis)] if self.axis else None


class ChecksScenario:
    """Provides default implementations of the optional methods of a ``Params`` class."""

    def validate(self, path: str) -> None:
        """Raise ConfigError for contradictory fields; ``path`` is the path of the component in the scenario."""

    def spans(self) -> Mapping[str, float]:
        """Return, by parameter, the length of history (s) that the component needs. A shorter test is refused."""
        return {}

    def reads(self) -> Sequence[Path]:
        """Return the installed files that the component reads. Raises ConfigError if a file is missing."""
        return ()

    def fits(self, test: TestContext) -> None:
        """Raise ConfigError for a test in which the component cannot work.

        The message begins with the parameter, e.g. ``watchdog = 0.001 s: must be ...``; the caller adds a path.
        """

    def cautions(self, test: TestContext) -> list[str]:
        """Return warnings about permitted but dangerous or doubtful settings in this test."""
        return []

    def contents(self) -> list[str]:
        """Return lines for ``rths check`` about the contents of files that the parameters name."""
        return []

    def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
        """Return a group number for each axis of a setup; axes with the same number must stop together.

        The setup moves the first ``n_moved`` axes; the other axes are controlled by force.
        """
        return (0,) * n_axes

    def remarks(self, state: Mapping[str, float]) -> list[str]:
        """Return remarks on ``state``, the final internal quantities of a compensator by name."""
        return []


def complete(cls: type, declared: type = ChecksScenario) -> None:
    """Add to ``cls`` the public members of ``declared``, and of its bases, that ``cls`` lacks."""
    for base in declared.__mro__[:-1]:
        for name, value in vars(base).items():
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, value)
