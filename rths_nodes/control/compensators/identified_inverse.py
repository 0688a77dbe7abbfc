"""Inverse of third order, identified before the test and learned on during it, with the target as instrument.

    u = C_0 d + C_1 d' + C_2 d'' + C_3 d'''                                    d: target, read ahead by ``lead``
    C from ``rths identify --for identified_inverse``: least squares of G(f) sum C_i (j w)^i = I up to 10 Hz

and, every ``decimation``-th sample, for each axis, from one sample's command u, measured displacement m and target
d, all three through one low-pass filter, y = u filtered, phi_i and z_i the i-th derivatives of m and d filtered:

    P += delta (P_0 - P),   e = y - c phi,   K = P z / (R + z P z),   c += K e,   P -= K z P

Least squares by an instrument (Soederstroem & Stoica, System Identification, 1989, chapter 8): the measured
displacement carries noise, which biases its own least squares towards small coefficients and never comes to rest;
the target carries none and moves as the measurement does. So the gain K comes from the target alone: without
motion there is none, and no trigger amplitude is needed. Forgetting leads P back to the covariance P_0 of what was
identified instead of letting it grow: a coefficient of which the motion tells nothing stays where it was
identified to be.

R is the variance that the noise of the sensor leaves in e, times the samples of e that are not independent of each
other. The coefficients stay within ``deviations`` standard deviations of what was identified. Behind a bridged
sample learning rests for the time that the filter remembers.

The coefficients contain all delay between command and measured displacement, that of the transport as well:
nothing is added to ``lead``, which is for what lies behind the measurement. doc/identified_inverse.md has
derivation, bounds, comparison and failures.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import lead_parameter
from rths_nodes.control.compensators.derivative_filter import DerivativeFilter
from rths_nodes.control.compensators.ramp_cautions import acceleration_cautions, ramp_seen
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.models import file, inverse
from rths_nodes.core.parameters import flag, integer, number, params, path, section, vector
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array, Motion

ORDER = 3
"""Highest derivative."""

FADED = 8.0
"""Periods of the cut-off frequency after which the filter has forgotten."""

NOISE_DOUBT = 5.0
"""Times the stated noise from which on that of the sensors is told."""


class IdentifiedInverse:
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
            "rig of "
            "the test may be from the one of the identification",
            "1",
            (0.02, 0.10, 0.15, 0.30),
            more_than=0.0,
        )
        deviations: float = number("standard deviations that a coefficient may go", "1", 3.0, more_than=0.0)
        memory: float = number("time in which learned knowledge is forgotten", "s", 10.0, more_than=0.0)
        decimation: int = integer("every which sample is learned from", "samples", 16, at_least=1, at_most=1000)
        cutoff_frequency: float = number("of the low-pass filter on all signals", "Hz", 20.0, more_than=0.0)
        displacement_noise_rms: float = number(
            "of the displacement sensors; ten times too large changes little, ten times too small makes it "
            "restless",
            "m",
            1.6e-5,
            more_than=0.0,
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
                    "does not "
                    "add: identify the rig with rths identify --for identified_inverse"
                )

        def cautions(self, test: TestContext) -> list[str]:
            """Warnings about the ramp in front, the rig of the model and the noise."""
            found = acceleration_cautions(test)
            if ramp_seen(test) not in ("linear", "hermite", ""):
                found.append("the third derivative of the target jumps with this ramp; take ramp.type = hermite")
            if self.model is not None:
                found += file.load(self.model, inverse_only=True).cautions(test.axes, test.servo_rate)
            noise = max(test.displacement_noise_rms, default=0.0)
            if noise > NOISE_DOUBT * self.displacement_noise_rms:
                found.append(
                    f"displacement_noise_rms = {self.displacement_noise_rms:g} m: the sensors have {noise:g} m; "
                    "the "
                    "coefficients will be restless"
                )
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
                "deviations from "
                "what was identified: the rig is another one; identify it again, or look for what has changed"
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
        self._learning = Learning(params, self._identified, dt) if params.learning else None
        self._every = params.decimation
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
        self._acceleration = [0.0] * self._n
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
        rate, tau = 1.0 / self._dt, self._lead
        jerk = [(now - before) * rate for now, before in zip(a, self._acceleration, strict=True)]
        self._acceleration = a
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


class Learning:
    """Recursive least squares by the instrument, a row of coefficients for each axis.

    ``coefficients`` ``(order + 1, n_axes, n_axes)``, their standard ``deviation`` of the same shape, and the
    ``distance`` ``(n_axes,)`` that a coefficient of an axis has gone from what was identified, in standard
    deviations, the largest so far.
    Inside, derivatives count in powers of the cut-off frequency, so that all are of one size.
    """

    def __init__(self, params: IdentifiedInverse.Params, identified: Array, dt: float) -> None:
        count, n, _ = identified.shape
        self._shape, self._n = (count, n, n), n
        every = params.decimation
        filter_ = DerivativeFilter(params.cutoff_frequency, dt, 1)
        self._block = filter_.block(every)
        self._order = filter_.ORDER
        self._units = filter_.frequency ** np.arange(count)[:, None]
        self._first = self._rows_of(identified)
        sizes = np.abs(identified).max(axis=2, keepdims=True)  # of the axis' own motion, as a rule
        spread = np.array(params.relative_deviation[:count])[:, None, None] * np.broadcast_to(sizes, self._shape)
        self._spread = self._rows_of(spread)
        self._prior = np.array([np.diag(row**2) for row in self._spread])
        self._forget = min(1.0, every * dt / params.memory)
        self._range = params.deviations * self._spread
        self._variance = params.displacement_noise_rms**2 * self._noise_gain(filter_, dt)
        self._variance *= max(1.0, 1.0 / (every * dt) / (2.0 * params.cutoff_frequency))
        self._settling = -(-round(1.0 / (params.cutoff_frequency * dt)) // every)
        self.reset()

    def _rows_of(self, coefficients: Array) -> Array:
        """Coefficients ``(count, n, n)`` as a row for each axis ``(n, count * n)``, in powers of the cut-off."""
        scaled = coefficients * self._units[:, :, None]
        return np.ascontiguousarray(scaled.transpose(1, 0, 2).reshape(self._n, -1))

    def _noise_gain(self, filter_: DerivativeFilter, dt: float) -> Array:
        """Variance of e of each axis ``(n,)`` per variance of white noise in all measured displacements."""
        filter_.reset()
        samples = round(FADED / (filter_.frequency / (2.0 * np.pi) * dt))
        impulse = np.array([filter_.step(np.array([float(k == 0)]))[:, 0].copy() for k in range(samples)])
        seen = impulse[:, : self._shape[0]]
        row = self._first.reshape(self._n, self._shape[0], self._n)
        gain: Array = np.square(np.einsum("kp,rpc->krc", seen, row)).sum(axis=(0, 2))
        return gain

    def reset(self) -> None:
        """As identified, the signals at rest before."""
        self._rows = self._first.copy()
        self._covariance = self._prior.copy()
        self._filtered = np.zeros((self._order, 3 * self._n))
        self._last = np.zeros((1, 3 * self._n))
        self._resting = 0
        self.distance = np.zeros(self._n)
        self._publish()

    def rest(self) -> None:
        """A bridged sample: what it left in the filter teaches nothing."""
        self._resting = self._settling + 1

    def learn(self, rows: Array) -> None:
        """The next block ``(decimation, 3 n_axes)`` of commands, measured displacements and targets, m."""
        signals = np.concatenate([self._filtered, self._last, rows])
        self._filtered, self._last = self._block @ signals, rows[-1:]
        if self._resting:
            self._resting -= 1
            return
        n, count = self._n, self._shape[0]
        y = self._filtered[0, :n]
        seen = self._filtered[:count, n : 2 * n].ravel()
        instrument = self._filtered[:count, 2 * n :].ravel()
        self._covariance += self._forget * (self._prior - self._covariance)
        for axis, (row, p) in enumerate(zip(self._rows, self._covariance, strict=True)):
            pz = p @ instrument
            gain = pz / (self._variance[axis] + instrument @ pz)
            row += gain * (y[axis] - row @ seen)
            p -= np.outer(gain, pz)
        np.clip(self._rows, self._first - self._range, self._first + self._range, out=self._rows)
        self._publish()

    def _publish(self) -> None:
        self.coefficients = self._matrices(self._rows)
        variances = np.diagonal(self._covariance, axis1=1, axis2=2)
        self.deviation = self._matrices(np.sqrt(np.maximum(variances, 0.0)))
        away = np.abs(self._rows - self._first)
        share = np.divide(away, self._spread, out=np.zeros_like(away), where=self._spread > 0.0)
        self.distance = np.maximum(self.distance, share.max(axis=1))

    def _matrices(self, rows: Array) -> Array:
        found: Array = rows.reshape(self._n, self._shape[0], self._n).transpose(1, 0, 2) / self._units[:, :, None]
        return found


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
