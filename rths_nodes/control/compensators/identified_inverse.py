"""Inverse of third order, identified before the test and learned on during it, with the target as instrument.

    u = C_0 d + C_1 d' + C_2 d'' + C_3 d'''                                    d: target, read ahead by ``lead``
    C from ``rths identify --for identified_inverse``: least squares of G(f) sum C_i (j w)^i = I up to 10 Hz

and, every ``decimation``-th sample, as :mod:`rths_nodes.control.compensators.instrument` has it: least squares of
command on measured displacement, with the target as instrument, held by the covariance of what was identified.

The third derivative is the slope of a straight line fitted to the accelerations of the last ``jerk_window``, and
so late by half of it, in a term of half a per cent: the difference of two samples would bring the noise of the
force into the command, times the servo rate.

The coefficients contain all delay between command and measured displacement, that of the transport as well:
nothing is added to ``lead``, which is for what lies behind the measurement. doc/identified_inverse.md has
derivation, bounds, comparison and failures.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import lead_parameter
from rths_nodes.control.compensators.instrument import Learning, Settings
from rths_nodes.control.compensators.ramp_cautions import acceleration_cautions, ramp_seen
from rths_nodes.core.checks import TestContext
from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.models import file, inverse
from rths_nodes.core.parameters import flag, integer, number, params, path, section, vector
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array, Motion

ORDER = 3
"""Highest derivative."""


class IdentifiedInverse(Compensator):
    """The identified inverse of the rig, one axis or coupled ones; the coefficients are learned on in the test."""

    @params
    class Params:
        """Parameters; exactly one of ``model`` and ``inverse``."""

        model: str | None = path(
            "model file of rths identify --for identified_inverse; relative to the working directory", None
        )
        inverse: file.Feedforward | None = section(
            file.Feedforward, "the coefficients instead of a model file, a row and a column for each axis", None
        )
        order: int = integer("highest derivative that is used and learned", default=3, at_least=0, at_most=ORDER)
        learning: bool = flag("false: the coefficients stay as identified", True)
        relative_deviation: tuple[float, ...] = vector(
            "standard deviations of C_0, C_1, C_2, C_3 about what was identified, in parts of them: how far the "
            "rig of the test may be from the one of the identification",
            "1",
            (0.02, 0.10, 0.15, 0.30),
            more_than=0.0,
        )
        deviations: float = number("standard deviations that a coefficient may go", "1", 3.0, more_than=0.0)
        memory: float = number("time in which learned knowledge is forgotten", "s", 10.0, more_than=0.0)
        decimation: int = integer("every which sample is learned from", "samples", 16, at_least=1, at_most=1000)
        cutoff_frequency: float = number("of the low-pass filter on all signals", "Hz", 20.0, more_than=0.0)
        displacement_noise_rms: float = number(
            "least noise of the displacement sensors that learning reckons with; more than that it sees itself",
            "m",
            1.6e-5,
            more_than=0.0,
        )
        jerk_window: float = number(
            "the third derivative is the slope of the acceleration over this time: longer is quieter and later",
            "s",
            2e-3,
            more_than=0.0,
            at_most=0.1,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            """Refuses both or none of model and inverse, and deviations that do not belong to the coefficients."""
            if (self.model is None) == (self.inverse is None):
                given = "both are given" if self.model else "none is given"
                raise ConfigError(f"{path}: exactly one of {path}.model and {path}.inverse is needed, {given}")
            if len(self.relative_deviation) <= self.order:
                raise ConfigError(
                    f"{path}.relative_deviation = {show(list(self.relative_deviation))}: must be {self.order + 1} "
                    "numbers, one for each derivative from 0 to order"
                )
            if self.inverse is not None:
                inverse.check_static(self.inverse.coefficients(f"{path}.inverse"), f"{path}.inverse")

        def spans(self) -> dict[str, float]:
            """Parameter -> seconds of history that it needs."""
            return {"lead": self.lead}

        def fits(self, test: TestContext) -> None:
            """Refuses a model that leaves the transport of commands to somebody else."""
            if self.model is None:
                return
            left_out = file.load(self.model, inverse_only=True).lead + test.transport
            if abs(left_out) > 0.5 * test.dt:
                raise ConfigError(
                    f"model = {show(self.model)}: leaves {left_out:.4g} s of the transport out, which this law "
                    "does not add: identify the rig with rths identify --for identified_inverse"
                )

        def cautions(self, test: TestContext) -> list[str]:
            """Warnings about the ramp in front, the rig of the model and the noise."""
            found = acceleration_cautions(test)
            if ramp_seen(test) not in ("linear", "hermite", ""):
                found.append("the third derivative of the target jumps with this ramp; take ramp.type = hermite")
            if self.model is not None:
                found += file.load(self.model, inverse_only=True).cautions(test.axes, test.servo_rate)
            return found

        def remarks(self, state: Mapping[str, float]) -> list[str]:
            """Warns, after a test, of axes that were not the ones that had been identified."""
            found = [
                name.removesuffix(".prior_distance")
                for name, value in state.items()
                if name.endswith("prior_distance") and value >= self.deviations * (1.0 - ROUNDING)
            ]
            return [
                f"{name}: a coefficient has come to the end of its range, {self.deviations:g} standard "
                "deviations from what was identified: the rig is another one, or the motion does not tell the "
                "coefficients apart; identify it again, or look for what has changed"
                for name in found
            ]

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        """Raises ConfigError for a model of another number of axes."""
        identified = _identified(params)
        if identified.shape[1] != n_axes:
            origin = params.model or "compensator.inverse"
            raise ConfigError(f"{origin}: {identified.shape[1]} axes; the test has {n_axes}")
        self._params = params
        self._n, self._dt, self._lead = n_axes, dt, params.lead
        self._count = params.order + 1
        self._identified = identified[: self._count]
        self._learning = Learning(_settings(params), self._identified, dt) if params.learning else None
        self._every = params.decimation
        ages = dt * np.arange(max(1, round(params.jerk_window / dt)), -1, -1.0)
        middle = ages.mean() - ages
        self._slope = middle / (middle @ middle)  # of a straight line through the accelerations, oldest first
        names = [_name("c", power, i, j, n_axes) for power, i, j in np.ndindex(self._count, n_axes, n_axes)]
        self.state_units: Mapping[str, str] = {
            _bare(name): inverse.UNITS[index // n_axes**2] for index, name in enumerate(names)
        }
        if self._learning:
            self.state_units |= {f"sigma_{name}": unit for name, unit in self.state_units.items()}
            names += [f"sigma_{name}" for name in names] + [f"prior_distance[{axis}]" for axis in range(n_axes)]
        self.state_names = tuple(names)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, with the coefficients as identified."""
        self._use(self._identified)
        self._past = np.zeros((len(self._slope), self._n))
        self._pair: tuple[list[float], list[float]] = ([0.0] * self._n, [0.0] * self._n)
        self._rows: list[list[float]] = []
        if self._learning:
            self._learning.reset()
        self._state = self._told()

    def _use(self, coefficients: Array) -> None:
        self._coefficients = coefficients
        # one axis in plain floats, several by one product
        self._plain: list[float] = coefficients[:, 0, 0].tolist() + [0.0] * (ORDER + 1 - self._count)
        self._matrix = np.hstack(list(coefficients))

    def step(self, target: Motion, measured: Array) -> Array:
        if self._learning:
            self._watch(measured, target.flagged)
        x, v, a = target.displacement.tolist(), target.velocity.tolist(), target.acceleration.tolist()
        tau, past = self._lead, self._past
        past[:-1] = past[1:]
        past[-1] = target.acceleration
        jerk = self._slope.dot(past).tolist()
        if tau:
            half, third = 0.5 * tau, tau / 3.0
            motion = list(zip(x, v, a, jerk, strict=True))
            x = [d + tau * (e + half * (f + third * g)) for d, e, f, g in motion]
            v = [e + tau * (f + half * g) for _, e, f, g in motion]
            a = [f + tau * g for _, _, f, g in motion]
        if self._n == 1:
            c0, c1, c2, c3 = self._plain
            u = [c0 * x[0] + c1 * v[0] + c2 * a[0] + c3 * jerk[0]]
            command = np.array(u)
        else:
            command = self._matrix @ np.array([*x, *v, *a, *jerk][: self._count * self._n])
            u = command.tolist()
        self._pair = u, x
        return command

    def _watch(self, measured: Array, flagged: bool) -> None:
        """The measurement of the last sample with its command and target; after some of them, learn."""
        u, x = self._pair
        rows = self._rows
        rows.append([*u, *measured.tolist(), *x])
        learning = self._learning
        assert learning is not None
        if flagged:
            learning.rest()
        if len(rows) == self._every:
            learning.learn(np.array(rows))
            rows.clear()
            self._use(learning.coefficients)
            self._state = self._told()

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s) with the identified coefficients, for exact derivatives.

        ``(n,)`` for one axis, ``(n, n_axes, n_axes)`` for several.
        """
        rest = np.zeros((ORDER + 1 - self._count, self._n, self._n))  # what the lead makes of the lower ones
        ahead = inverse.ahead(np.concatenate([self._identified, rest]), self._lead)
        found = inverse.inverse_response(ahead, 1j * np.asarray(omega))
        return found[:, 0, 0] if self._n == 1 else found

    def state(self) -> list[float]:
        return self._state

    def _told(self) -> list[float]:
        told: list[float] = self._coefficients.ravel().tolist()
        if self._learning:
            told += [*self._learning.deviation.ravel().tolist(), *self._learning.distance.tolist()]
        return told


def _settings(params: IdentifiedInverse.Params) -> Settings:
    return Settings(*(getattr(params, name) for name in Settings._fields))


def _identified(params: IdentifiedInverse.Params) -> Array:
    if params.inverse is not None:
        return params.inverse.coefficients("compensator.inverse")
    assert params.model is not None
    return file.load(params.model, inverse_only=True).feedforward


def _name(letter: str, power: int, i: int, j: int, n: int) -> str:
    """``c1[0]`` of one axis; ``c1_of_2[0]`` of several: what the motion of the second adds to axis 0."""
    return f"{letter}{power}[{i}]" if n == 1 else f"{letter}{power}_of_{j + 1}[{i}]"


def _bare(name: str) -> str:
    return name.partition("[")[0]
