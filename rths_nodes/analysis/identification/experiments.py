# SPDX-License-Identifier: Apache-2.0
"""Tests that move one axis at a time, with noise or in cycles, and characteristics from the cyclic tests.

Force axes are loaded first and stay loaded. Each history of a cyclic test is a mean cycle: harmonics of the
driving frequency, fitted to whole cycles. The effective stiffness K is the difference of the forces at the largest
and smallest displacement, divided by the difference of these displacements. The effective damping ratio is
W / (2 pi K d^2), with the energy W of a cycle and the amplitude d (ASCE/SEI 7, EN 15129). The equivalent dashpot
is W / (pi omega d^2), with the angular frequency omega (Jacobsen 1930).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.control import DAMPER_VOLTAGE
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import replace
from rths_nodes.loop.scenario.force_axes import SHARE
from rths_nodes.loop.scenario.schema import Scenario

TAPER = 1.0
"""Rise time and fall time of the noise, s. Each is at most a tenth of the duration."""
SETTLED = 1.0
"""Duration of the constant load before the motion begins, s."""
RAMP, SETTLING = 2, 1
"""Numbers of cycles. ``RAMP``: during the smooth rise and during the fall. ``SETTLING``: before the evaluation."""
WITHOUT_STRUCTURE: dict[str, object] = {
    "structure": None,
    "reduction": None,
    "soft_start": None,
    "force_lead": None,
    "ground_motion": {"type": "none"},
    "interface": [],
    "observed": [],
    "indices": "none",
    "cases": {},
    "substeps": 1,
}
"""Settings that convert a scenario to a test whose targets are known in advance."""
HARMONICS = 9
POINTS = 720
ALIKE = 1.05
FEWEST = 6


@params
class Noise:
    """Noise that drives one actuator while the other actuators are at rest."""

    rms: float = number("root mean square of the displacement", "m", 3e-4, more_than=0.0)
    lower_frequency: float = number("lower end of the frequency band", "Hz", 0.25, more_than=0.0)
    upper_frequency: float = number("upper end of the frequency band", "Hz", 50.0, more_than=0.0)
    duration: float = number("duration of the test of each axis", "s", 60.0, more_than=0.0, at_most=3600.0)
    period: float | None = number(
        "period of the noise; default: the noise is not periodic", "s", None, more_than=0.0
    )

    @property
    def band(self) -> tuple[float, float]:
        return self.lower_frequency, self.upper_frequency

    def validate(self, path: str) -> None:
        if self.lower_frequency >= self.upper_frequency:
            raise ConfigError(
                f"{join(path, 'lower_frequency')} = {self.lower_frequency:g} Hz: must be < upper_frequency = "
                f"{self.upper_frequency:g} Hz"
            )


@params
class Cycles:
    """Cyclic motion of one actuator while the other actuators are at rest."""

    amplitude: float = number("amplitude of the displacement", "m", more_than=0.0)
    frequency: float = number("frequency of the cycles", "Hz", more_than=0.0)
    cycles: int = integer("number of evaluated cycles", default=5, at_least=1, at_most=10_000)
    voltage: float = number("voltage of a damper with a voltage input", "V", 0.0, at_least=0.0)

    @property
    def begin(self) -> float:
        return (RAMP + SETTLING) / self.frequency

    @property
    def periods(self) -> int:
        return 2 * RAMP + SETTLING + self.cycles


def driven(scenario: Scenario, axis: int, noise: Noise) -> Scenario:
    """Return a scenario in which ``noise`` moves only ``axis``. Raises ConfigError if the band is too high."""
    _resolved(scenario, "upper_frequency", noise.upper_frequency)
    motion = {
        "type": "band_limited_noise",
        "rms": noise.rms,
        "lower_frequency": noise.lower_frequency,
        "upper_frequency": noise.upper_frequency,
        "duration": noise.duration,
        "taper": min(TAPER, 0.1 * noise.duration),
        "period": noise.period,
    }
    inputs = Assembly(scenario).port.auxiliary_inputs
    semi_active = to_data(scenario.semi_active) if inputs else None
    if inputs == (DAMPER_VOLTAGE,):
        voltage = 0.0 if scenario.semi_active is None else scenario.semi_active.voltage
        law = registry.load("semi_active", "random_switching").Params
        semi_active = {"type": "random_switching", "voltage": voltage or law().voltage}
    return _moving(scenario, axis, motion, noise.duration, "identify", semi_active)


def cycled(scenario: Scenario, axis: int, cycles: Cycles) -> Scenario:
    """Return a scenario in which only ``axis`` moves, in ``cycles``. Raises ConfigError if a limit is exceeded."""
    _resolved(scenario, "frequency", cycles.frequency)
    name = scenario.moved_axes[axis]
    limits, speed = scenario.axes[name].limits, 2.0 * math.pi * cycles.frequency * cycles.amplitude
    for limit, bound, reached, unit in (
        ("stroke", limits.stroke, cycles.amplitude, "m"),
        ("velocity", limits.velocity, speed, "m/s"),
    ):
        if reached > bound:
            raise ConfigError(
                f"amplitude = {cycles.amplitude:g} m at {cycles.frequency:g} Hz: reaches {reached:.4g} {unit}; "
                f"must be <= axes.{name}.limits.{limit} = {bound:g} {unit}"
            )
    motion = {
        "type": "harmonic",
        "amplitude": cycles.amplitude,
        "frequency": cycles.frequency,
        "periods": cycles.periods,
        "ramp_periods": RAMP,
    }
    constant = None
    if Assembly(scenario).port.auxiliary_inputs:
        constant = {"type": "passive", "voltage": cycles.voltage}
    elif cycles.voltage:
        raise ConfigError(
            f"voltage = {cycles.voltage:g} V: no part of the rig of {scenario.name} has a voltage input"
        )
    return _moving(scenario, axis, motion, cycles.periods / cycles.frequency, "characterise", constant)


def _resolved(scenario: Scenario, name: str, frequency: float) -> None:
    if not 2.0 * frequency < scenario.servo_rate:
        raise ConfigError(
            f"{name} = {frequency:g} Hz: must be below half the servo_rate, {0.5 * scenario.servo_rate:g} Hz"
        )


def _moving(
    scenario: Scenario, axis: int, motion: dict[str, object], duration: float, word: str, semi_active: object
) -> Scenario:
    """Return a scenario in which only ``axis`` moves, without structure, compensator and ground motion.

    A scaled specimen is driven and loaded at its own scale.
    """
    name, begin = scenario.moved_axes[axis], loaded_at(scenario)
    if begin:
        motion, duration = {"type": "delayed", "delay": begin, "motion": motion}, begin + duration
    alone = np.eye(len(scenario.moved_axes))
    alone[:, axis] -= 1.0
    alone[axis, axis] = 1.0
    changes = WITHOUT_STRUCTURE | {
        "name": f"{scenario.name}.{word}_{name}",
        "time_ratio": 1,
        "duration": duration,
        "integrator": {"type": "prescribed", "displacement": motion},
        "ramp": {"type": "linear"},
        "setup": {"type": "matrix", "matrix": alone.tolist()},
        "compensator": {"type": "none"},
        "semi_active": semi_active,
        "updating": None,
        "monitor": {},
    }
    pairs: list[tuple[list[str], object]] = [([key], value) for key, value in changes.items()]
    for axis_name in scenario.force_axes:
        load = scenario.axes[axis_name].own_load
        pairs += [(["axes", axis_name, "load"], to_data(load)), (["axes", axis_name, "load", "held_from"], None)]
    if scenario.scaled:
        pairs += [(["axes", axis_name, "rig_axis", "similitude"], {}) for axis_name in scenario.axes]
    return replace(scenario, pairs)


def loaded_at(scenario: Scenario) -> float:
    """Return the time (s), rounded up to a sample, at which all loads have settled. It is 0 without loads."""
    longest = 0.0
    for name in scenario.force_axes:
        load, limits = scenario.axes[name].own_load, scenario.axes[name].limits
        assert load is not None
        assert limits.force_rate is not None
        longest = max(longest, load.held_for + load.rise + abs(load.largest) / (SHARE * limits.force_rate))
    return math.ceil((longest + SETTLED) * scenario.servo_rate) / scenario.servo_rate if longest else 0.0


@dataclass(frozen=True)
class Cyclic:
    """Results of a cyclic test of one axis at ``frequency`` (Hz).

    ``wanted`` (m) is the commanded amplitude, ``amplitude`` (m) the measured amplitude.

    Specimen: ``storage_stiffness`` and ``loss_stiffness`` (N/m) are the real and imaginary part of force over
    displacement in the first harmonic. ``effective_stiffness`` is in N/m, ``energy`` (J) is dissipated in a cycle,
    ``damping`` (N s/m) is the equivalent dashpot, and ``damping_ratio`` is the effective ratio.
    ``stiffness_scatter`` (N/m) and ``loss_factor_scatter`` are standard deviations over the cycles, NaN for a
    single cycle or too few samples.

    Actuator: ``gain`` and ``delay`` (s) relate the measured displacement to the command. The delay includes the
    transport delay and is ambiguous by whole periods. ``displacement`` (m) and ``force`` (N) are the mean cycle,
    ``(POINTS,)``.
    """

    wanted: float
    amplitude: float
    frequency: float
    cycles: int
    storage_stiffness: float
    loss_stiffness: float
    effective_stiffness: float
    energy: float
    damping: float
    damping_ratio: float
    gain: float
    delay: float
    stiffness_scatter: float
    loss_factor_scatter: float
    displacement: Array
    force: Array

    @property
    def loss_factor(self) -> float:
        return self.loss_stiffness / self.storage_stiffness if self.storage_stiffness else math.inf


@dataclass(frozen=True)
class Equivalent:
    """Spring (N/m) and dashpot (N s/m) in parallel, fitted to the first harmonics of all tests.

    The ranges hold the smallest and the largest value among the tests. Unlike ``damping``, ``Cyclic.damping``
    (Jacobsen) also represents the energy of the other harmonics.
    """

    stiffness: float
    damping: float
    stiffness_range: tuple[float, float]
    damping_range: tuple[float, float]


def cyclic(command: Array, displacement: Array, force: Array, dt: float, frequency: float, cycles: int) -> Cyclic:
    """Evaluate steady histories ``(n,)`` of one axis over whole ``cycles`` at ``frequency`` (Hz).

    Raises ValueError if the histories differ in length, have too few samples, or do not move at ``frequency``.
    """
    if not len(command) == len(displacement) == len(force):
        raise ValueError(
            f"command, displacement and force have {len(command)}, {len(displacement)} and {len(force)} samples; "
            "the numbers must be equal"
        )
    omega = 2.0 * math.pi * frequency
    wanted, moved, felt = (_harmonics(history, dt, omega) for history in (command, displacement, force))
    least = ROUNDING * float(np.abs(command).max(initial=0.0))
    if not (abs(wanted[1]) > least and abs(moved[1]) > least):
        raise ValueError(f"command and displacement must both move at frequency = {frequency:g} Hz")
    stiffness, answer = felt[1] / moved[1], moved[1] / wanted[1]
    path, pull = _cycle(moved), _cycle(felt)
    ends = int(path.argmax()), int(path.argmin())
    amplitude = 0.5 * (path[ends[0]] - path[ends[1]])
    effective = 0.5 * (pull[ends[0]] - pull[ends[1]]) / amplitude
    numbers = np.arange(len(moved))
    energy = math.pi * float((numbers * (felt * moved.conj()).imag).sum())
    return Cyclic(
        float(abs(wanted[1])),
        float(amplitude),
        frequency,
        cycles,
        float(stiffness.real),
        float(stiffness.imag),
        float(effective),
        energy,
        energy / (math.pi * omega * amplitude**2),
        energy / (2.0 * math.pi * effective * amplitude**2) if effective > 0.0 else math.inf,
        float(abs(answer)),
        -float(np.angle(answer)) / omega,
        *_scatter(displacement, force, dt, omega, cycles),
        path,
        pull,
    )


def equivalent(tests: Sequence[Cyclic]) -> Equivalent:
    omega = 2.0 * math.pi * np.array([test.frequency for test in tests])
    storage = np.array([test.storage_stiffness for test in tests])
    loss = np.array([test.loss_stiffness for test in tests])
    dashpots = loss / omega
    return Equivalent(
        float(storage.mean()),
        float(omega @ loss / (omega @ omega)),
        (float(storage.min()), float(storage.max())),
        (float(dashpots.min()), float(dashpots.max())),
    )


def at_small(tests: Sequence[Cyclic]) -> dict[str, float]:
    """Return the stiffness (N/m), the loss factor and their scatters at the smallest amplitude, by name.

    The slowest test with this amplitude gives the values, and its cycles give the scatters. The scatter of the
    stiffness includes the rms difference from the tests at other frequencies. Raises ValueError if the stiffness
    is not positive or has no scatter.
    """
    least = min(test.wanted for test in tests)
    small = sorted((test for test in tests if test.wanted <= ALIKE * least), key=lambda test: test.frequency)
    first, rest = small[0], small[1:]
    first_text = f"{first.wanted:.4g} m at {first.frequency:g} Hz"
    if not first.storage_stiffness > 0.0:
        raise ValueError(f"{first_text}: storage stiffness of {first.storage_stiffness:.4g} N/m; must be > 0")
    if not math.isfinite(first.stiffness_scatter):
        raise ValueError(
            f"{first_text}: the scatter cannot be determined (cycles = {first.cycles}). Use at least two cycles "
            "and more samples per cycle"
        )
    differences = [test.storage_stiffness - first.storage_stiffness for test in rest]
    between = math.sqrt(sum(difference**2 for difference in differences) / len(differences)) if rest else 0.0
    scatter = math.hypot(first.stiffness_scatter, between)
    return {
        "stiffness": first.storage_stiffness,
        "stiffness_scatter": scatter,
        "loss_factor": first.loss_factor,
        "loss_factor_scatter": first.loss_factor_scatter,
    }


def _scatter(displacement: Array, force: Array, dt: float, omega: float, cycles: int) -> tuple[float, float]:
    ends = np.ceil(np.arange(cycles + 1) * 2.0 * math.pi / (omega * dt) - ROUNDING).astype(int)
    ends[-1] = len(force)
    if cycles < 2 or np.diff(ends).min() < FEWEST:
        return math.nan, math.nan
    scatter = []
    for begin, end in pairwise(ends.tolist()):
        most = min(HARMONICS, (end - begin - 2) // 4)
        moved, felt = (_harmonics(history[begin:end], dt, omega, most)[1] for history in (displacement, force))
        if moved == 0.0:
            return math.nan, math.nan
        scatter.append(felt / moved)
    stiffness = np.array(scatter)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = stiffness.imag / stiffness.real
        return float(stiffness.real.std(ddof=1)), float(loss.std(ddof=1))


def _harmonics(history: Array, dt: float, omega: float, most: int = HARMONICS) -> Complex:
    """Return amplitudes a_n of the least-squares fit sum Re(a_n exp(i n omega t)), n = 0 to at most ``most``."""
    count = min(most, math.ceil(math.pi / (omega * dt)) - 1)  # only harmonics below the Nyquist frequency
    if count < 1 or len(history) < 4 * count + 2:
        raise ValueError(f"{len(history)} samples: too few to evaluate a cycle of {2.0 * math.pi / omega:g} s")
    phase = omega * dt * np.outer(np.arange(len(history)), np.arange(1, count + 1))
    waves = np.column_stack((np.ones(len(history)), np.cos(phase), np.sin(phase)))
    amplitudes = np.linalg.lstsq(waves, history, rcond=None)[0]
    return np.concatenate((amplitudes[:1], amplitudes[1 : count + 1] - 1j * amplitudes[count + 1 :]))


def _cycle(amplitudes: Complex) -> Array:
    phase = np.linspace(0.0, 2.0 * math.pi, POINTS, endpoint=False)
    waves = np.exp(1j * np.outer(phase, np.arange(len(amplitudes))))
    return np.asarray((waves @ amplitudes).real)
