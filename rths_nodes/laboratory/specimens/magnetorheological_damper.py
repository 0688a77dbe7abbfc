"""Magnetorheological damper: the phenomenological model of Spencer, Dyke, Sain & Carlson (1997)."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.bouc_wen import SHARPEST, bouc_wen_slope, check_shape
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.laboratory.runge_kutta import Place, by_rates


class MagnetorheologicalDamper:
    """F = c_1 y' + k_1 (x - x_0), y' = (alpha z + c_0 x' + k_0 (x - y)) / (c_0 + c_1), z Bouc-Wen in x - y.

    z' = A (x' - y') - (gamma sgn((x' - y') z) + beta) |z|^n (x' - y'). Viscosity and yield level grow with the
    magnetic field: alpha, c_0, c_1 = passive value + value per volt times u, and u' = -eta (u - v) follows the
    ``voltage`` v of the current driver, which a controller sets while the test runs (V, limited to 0 ...
    ``max_voltage``). The defaults are the damper of Dyke, Spencer, Sain & Carlson (1996).
    """

    @params
    class Params:
        """Parameters of the damper."""

        voltage: float = number(
            "voltage at the current driver, as long as no controller sets it", "V", 0.0, at_least=0.0
        )
        max_voltage: float = number(
            "voltage at which the driver, and the fluid, saturates", "V", 2.25, more_than=0.0
        )
        filter_rate: float = number("rate eta of driver and fluid", "1/s", 190.0, more_than=0.0)
        hysteretic_stiffness: float = number("alpha_a, force per z without field", "N/m", 14.0e3, at_least=0.0)
        hysteretic_stiffness_per_volt: float = number("alpha_b", "N/(m V)", 69.5e3, at_least=0.0)
        damping: float = number("c_0a, at large velocities without field", "N s/m", 2100.0, at_least=0.0)
        damping_per_volt: float = number("c_0b", "N s/(m V)", 350.0, at_least=0.0)
        series_damping: float = number(
            "c_1a, in series: rounds the force at small velocities", "N s/m", 28.3e3, more_than=0.0
        )
        series_damping_per_volt: float = number("c_1b", "N s/(m V)", 295.0, at_least=0.0)
        stiffness: float = number("k_0, at large velocities", "N/m", 4690.0, at_least=0.0)
        accumulator_stiffness: float = number("k_1", "N/m", 500.0, at_least=0.0)
        accumulator_displacement: float = number(
            "x_0, gives the pre-load of the accumulator (0.143 m in the paper); 0 where the load cell is tared",
            "m",
            0.0,
        )
        slope: float = number("A, slope of z before it yields", "1", 301.0, more_than=0.0)
        beta: float = number("Bouc-Wen beta", "1/m^2", 363.0e4, at_least=0.0)
        gamma: float = number("Bouc-Wen gamma", "1/m^2", 363.0e4, at_least=0.0)
        exponent: float = number(
            "Bouc-Wen n; beta and gamma are in 1/m^n", default=2.0, at_least=1.0, at_most=SHARPEST
        )

        def validate(self, path: str) -> None:
            """Refuses a damper that never yields, and a voltage that its driver cannot give."""
            check_shape(self.beta, self.gamma, path, "1/m^2")
            if self.voltage > self.max_voltage:
                raise ConfigError(
                    f"{path}.voltage = {self.voltage:g} V: must be <= max_voltage = {self.max_voltage:g} V"
                )

        def decay(self) -> Decay:
            """Of z, n A v / z_max while it is loaded, and of what its force does to the velocity behind it."""
            shape = self.beta + self.gamma
            largest = (self.slope / shape) ** (1.0 / self.exponent)
            voltages = (0.0, self.max_voltage)  # between them the ratios below change in one direction
            dampings = [
                self.damping + self.series_damping + u * (self.damping_per_volt + self.series_damping_per_volt)
                for u in voltages
            ]
            alphas = [self.hysteretic_stiffness + u * self.hysteretic_stiffness_per_volt for u in voltages]
            pull = self.slope * max(alpha / damping for alpha, damping in zip(alphas, dampings, strict=True))
            # after a reversal z still pulls the other way: the slip is faster than the damper, and z unloads
            unloading = max(1.0, 2.0 * self.gamma / shape) + self.exponent * abs(self.beta - self.gamma) / shape
            behind = self.stiffness / min(dampings) + pull * unloading
            return Decay(max(self.filter_rate, behind), self.exponent * self.slope / largest)

        def fits(self, test: TestContext) -> None:
            """Refuses a damper that moves too fast for the servo rate."""
            check_increments(self.decay(), f"slope = {self.slope:g}", test)

    def __init__(self, params: Params) -> None:
        self._p = params
        self.decay = params.decay()
        self._beta, self._gamma = params.beta / params.slope, params.gamma / params.slope
        self._voltage = params.voltage
        self._square = params.exponent == 2.0
        self._constants = (
            params.damping,
            params.damping_per_volt,
            params.series_damping,
            params.series_damping_per_volt,
            params.hysteretic_stiffness,
            params.hysteretic_stiffness_per_volt,
            params.stiffness,
            params.slope,
            -params.filter_rate,
            self._gamma + self._beta,
            self._beta - self._gamma,
        )
        self.initial_state: tuple[float, ...] = (0.0, 0.0, params.voltage)
        """y (m), z (m), u (V); it has stood under its voltage for long."""

    @property
    def voltage(self) -> float:
        """At the current driver, V."""
        return self._voltage

    @voltage.setter
    def voltage(self, wanted: float) -> None:
        self._voltage = min(max(wanted, 0.0), self._p.max_voltage)

    def advance(self, state: Sequence[float], h: float, start: Place, middle: Place, end: Place) -> list[float]:
        """The states a step of ``h`` (s) later by RK4, as :func:`rths_nodes.laboratory.runge_kutta.advance`.

        The same arithmetic as by :meth:`rate`, written out: the damper is most of the time of its rig.
        """
        if not self._square:
            return by_rates(self.rate, state, h, start, middle, end)
        c_0, c_0_volt, c_1, c_1_volt, alpha, alpha_volt, k, slope, eta, loading, unloading = self._constants
        wanted, half, (x, v) = self._voltage, 0.5 * h, start
        y0, z0, u0 = y, z, u = state
        c = c_0 + c_0_volt * u
        a1 = ((alpha + alpha_volt * u) * z + c * v + k * (x - y)) / (c + (c_1 + c_1_volt * u))
        slip = v - a1
        b1 = slope * slip * (1.0 - (loading if slip * z > 0.0 else unloading) * z * z)
        d1 = eta * (u - wanted)
        x, v = middle
        y, z, u = y0 + half * a1, z0 + half * b1, u0 + half * d1
        c = c_0 + c_0_volt * u
        a2 = ((alpha + alpha_volt * u) * z + c * v + k * (x - y)) / (c + (c_1 + c_1_volt * u))
        slip = v - a2
        b2 = slope * slip * (1.0 - (loading if slip * z > 0.0 else unloading) * z * z)
        d2 = eta * (u - wanted)
        y, z, u = y0 + half * a2, z0 + half * b2, u0 + half * d2
        c = c_0 + c_0_volt * u
        a3 = ((alpha + alpha_volt * u) * z + c * v + k * (x - y)) / (c + (c_1 + c_1_volt * u))
        slip = v - a3
        b3 = slope * slip * (1.0 - (loading if slip * z > 0.0 else unloading) * z * z)
        d3 = eta * (u - wanted)
        x, v = end
        y, z, u = y0 + h * a3, z0 + h * b3, u0 + h * d3
        c = c_0 + c_0_volt * u
        a4 = ((alpha + alpha_volt * u) * z + c * v + k * (x - y)) / (c + (c_1 + c_1_volt * u))
        slip = v - a4
        b4 = slope * slip * (1.0 - (loading if slip * z > 0.0 else unloading) * z * z)
        sixth = h / 6.0
        return [
            y0 + sixth * (a1 + 2.0 * (a2 + a3) + a4),
            z0 + sixth * (b1 + 2.0 * (b2 + b3) + b4),
            u0 + sixth * (d1 + 2.0 * (d2 + d3) + eta * (u - wanted)),
        ]

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        c_0, c_0_volt, c_1, c_1_volt, alpha, alpha_volt, k, *_ = self._constants
        y, z, u = state
        damping, series = c_0 + c_0_volt * u, c_1 + c_1_volt * u
        piston = ((alpha + alpha_volt * u) * z + damping * velocity + k * (displacement - y)) / (damping + series)
        p = self._p
        return series * piston + p.accumulator_stiffness * (displacement - p.accumulator_displacement)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        p = self._p
        z = state[1]
        series = self._series_velocity(state, displacement, velocity)
        slip = velocity - series
        hysteretic = p.slope * slip * bouc_wen_slope(z, slip, self._beta, self._gamma, p.exponent)
        return series, hysteretic, -p.filter_rate * (state[2] - self._voltage)

    def _series_velocity(self, state: Sequence[float], x: float, v: float) -> float:
        """y', m/s: where the force of dashpot c_1 equals that of the parallel group behind it."""
        p = self._p
        y, z, u = state
        damping = p.damping + p.damping_per_volt * u
        series = p.series_damping + p.series_damping_per_volt * u
        alpha = p.hysteretic_stiffness + p.hysteretic_stiffness_per_volt * u
        return (alpha * z + damping * v + p.stiffness * (x - y)) / (damping + series)
