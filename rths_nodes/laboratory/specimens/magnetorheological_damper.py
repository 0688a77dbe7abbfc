# SPDX-License-Identifier: Apache-2.0
"""Magnetorheological damper: the phenomenological model of Spencer, Dyke, Sain & Carlson (1997)."""

from __future__ import annotations

from rths_nodes.core.arithmetic import Numbers, power
from rths_nodes.core.decay import Decay, check_increments
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext, number, params
from rths_nodes.core.simulators import Specimen, SpecimenKernel
from rths_nodes.mechanics.bouc_wen import SHARPEST, check_shape


def rate(
    k: tuple[Numbers, Numbers, float], s: tuple[float, float, float], x: float, v: float
) -> tuple[float, float, float]:
    """Return the rates of the states y, z and u. The dashpot in series has the force of the parallel group."""
    c_0, c_0_volt, c, c_volt, alpha, alpha_volt, stiffness, slope, eta, loading, unloading, n, voltage = k[0]
    y, z, u = s
    series = ((alpha + alpha_volt * u) * z + (c_0 + c_0_volt * u) * v + stiffness * (x - y)) / (c + c_volt * u)
    slip = v - series
    shape = loading if slip * z > 0.0 else unloading
    bend = shape * z * z if n == 2.0 else shape * power(abs(z), n)
    return series, slope * slip * (1.0 - bend), eta * (u - voltage)


def force(k: tuple[Numbers, Numbers, float], s: tuple[float, float, float], x: float, v: float) -> float:
    """Return the sum of the forces of the series dashpot and the accumulator, N."""
    c_0, c_0_volt, c_1, c_1_volt, alpha, alpha_volt, stiffness, accumulator, x_0 = k[1]
    y, z, u = s
    damping, series = c_0 + c_0_volt * u, c_1 + c_1_volt * u
    piston = ((alpha + alpha_volt * u) * z + damping * v + stiffness * (x - y)) / (damping + series)
    return series * piston + accumulator * (x - x_0)


def driven(k: tuple[Numbers, Numbers, float], voltage: float) -> tuple[Numbers, Numbers, float]:
    """Return the constants for ``voltage`` (V), limited to the range of the current driver."""
    of_rate, of_force, most = k
    held = 0.0 if voltage < 0.0 else voltage
    held = most if held > most else held
    return of_rate[:-1] + (held,), of_force, most


def constants(p: MagnetorheologicalDamper.Params) -> tuple[Numbers, Numbers, float]:
    """Return the constants of the rates and of the force, and the saturation voltage (V) of the driver.

    The rates use (gamma + beta) / ``slope`` while abs(z) grows, and (beta - gamma) / ``slope`` while it falls.
    """
    beta, gamma = p.beta / p.slope, p.gamma / p.slope
    viscous = p.damping, p.damping_per_volt
    series = p.series_damping, p.series_damping_per_volt
    shared = p.hysteretic_stiffness, p.hysteretic_stiffness_per_volt, p.stiffness
    both = viscous[0] + series[0], viscous[1] + series[1]
    shape = p.slope, -p.filter_rate, gamma + beta, beta - gamma, p.exponent
    accumulator = p.accumulator_stiffness, p.accumulator_displacement
    return (*viscous, *both, *shared, *shape, p.voltage), (*viscous, *series, *shared, *accumulator), p.max_voltage


class MagnetorheologicalDamper(Specimen):
    """Force F = c_1 y' + k_1 (x - x_0) for the displacement x, with inner displacement y and Bouc-Wen state z.

        y' = (alpha z + c_0 x' + k_0 (x - y)) / (c_0 + c_1)
        z' = A (x' - y') - (gamma sgn((x' - y') z) + beta) |z|^n (x' - y')

    Viscosity and yield level grow with the magnetic field: alpha, c_0 and c_1 each have a passive value plus u
    times a value per volt. The state u follows the ``voltage`` v of the current driver (V, limited to 0 ...
    ``max_voltage``): u' = -eta (u - v). The defaults describe the damper of Dyke, Spencer, Sain & Carlson (1996).
    """

    SOURCES = ("spencer_1997",)

    @params
    class Params:
        voltage: float = number("voltage at the current driver if there is no controller", "V", 0.0, at_least=0.0)
        max_voltage: float = number("voltage at which the driver and the fluid saturate", "V", 2.25, more_than=0.0)
        filter_rate: float = number("response rate eta of driver and fluid", "1/s", 190.0, more_than=0.0)
        hysteretic_stiffness: float = number(
            "force alpha_a per z without magnetic field", "N/m", 14.0e3, at_least=0.0
        )
        hysteretic_stiffness_per_volt: float = number("alpha_b, alpha per volt", "N/(m V)", 69.5e3, at_least=0.0)
        damping: float = number(
            "damping c_0a at large velocities, without magnetic field", "N s/m", 2100.0, at_least=0.0
        )
        damping_per_volt: float = number("c_0b, c_0 per volt", "N s/(m V)", 350.0, at_least=0.0)
        series_damping: float = number(
            "damping c_1a in series, without magnetic field; it rounds the force at small velocities",
            "N s/m",
            28.3e3,
            more_than=0.0,
        )
        series_damping_per_volt: float = number("c_1b, c_1 per volt", "N s/(m V)", 295.0, at_least=0.0)
        stiffness: float = number("stiffness k_0 at large velocities", "N/m", 4690.0, at_least=0.0)
        accumulator_stiffness: float = number("stiffness k_1 of the accumulator", "N/m", 500.0, at_least=0.0)
        accumulator_displacement: float = number(
            "initial displacement x_0, the pre-load of the accumulator (0.143 m in the paper); 0 if the load "
            "cell is tared",
            "m",
            0.0,
        )
        slope: float = number("slope A of z before yielding", "1", 301.0, more_than=0.0)
        beta: float = number("Bouc-Wen beta", "1/m^2", 363.0e4, at_least=0.0)
        gamma: float = number("Bouc-Wen gamma", "1/m^2", 363.0e4, at_least=0.0)
        exponent: float = number(
            "Bouc-Wen exponent n; beta and gamma have the unit 1/m^n", default=2.0, at_least=1.0, at_most=SHARPEST
        )

        def validate(self, path: str) -> None:
            check_shape(self.beta, self.gamma, path, "1/m^2")
            if self.voltage > self.max_voltage:
                raise ConfigError(
                    f"{path}.voltage = {self.voltage:g} V: must be <= max_voltage = {self.max_voltage:g} V"
                )

        def decay(self) -> Decay:
            """Return an upper bound on the decay rates of all states."""
            shape = self.beta + self.gamma
            largest = (self.slope / shape) ** (1.0 / self.exponent)
            voltages = (0.0, self.max_voltage)  # the ratios below are monotonic between these voltages
            dampings = [
                self.damping + self.series_damping + u * (self.damping_per_volt + self.series_damping_per_volt)
                for u in voltages
            ]
            alphas = [self.hysteretic_stiffness + u * self.hysteretic_stiffness_per_volt for u in voltages]
            pull = self.slope * max(alpha / damping for alpha, damping in zip(alphas, dampings, strict=True))
            # after a reversal, z opposes the motion: the slip velocity exceeds the damper velocity, and z unloads
            unloading = max(1.0, 2.0 * self.gamma / shape) + self.exponent * abs(self.beta - self.gamma) / shape
            relaxation = self.stiffness / min(dampings) + pull * unloading
            return Decay(max(self.filter_rate, relaxation), self.exponent * self.slope / largest)

        def fits(self, test: TestContext) -> None:
            check_increments(self.decay(), f"slope = {self.slope:g}", test)

    KERNEL = SpecimenKernel(constants, lambda k: (0.0, 0.0, k[0][-1]), force, rate, driven)
    """States y (m), z (m) and u (V), initially in the steady state for the voltage."""

    @property
    def voltage(self) -> float:
        held: float = self._constants[0][-1]
        return held

    @voltage.setter
    def voltage(self, wanted: float) -> None:
        self._constants = driven(self._constants, wanted)
