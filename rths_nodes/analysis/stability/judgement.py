# SPDX-License-Identifier: Apache-2.0
"""Stability of the loop of a test, and its margins, determined without a simulation.

A delay of the rig is negative damping (Horiuchi, Nakagawa, Sugano, Konno 1996, Eq. 3). With prediction of order n,
a spring of stiffness k under test appears with stiffness k* and damping c* at the angular frequency w (Eq. 6, in
closed form, with phi = w delay)

    k*/k + j c* w/k = 1 - (1 - e^{-j phi})^{n + 1}

The damping becomes negative at phi = pi/3 (n = 2) and pi/2 (n = 3). At that frequency of the *response* the spring
appears stiffer: if the complete spring is tested, the critical *natural* frequencies w0 are w0 delay = 0.7405 and
0.7025. Without compensation the limit is w0 delay = 2 zeta, to first order in the damping ratio zeta.

``doc/methods.md`` describes the methods, which are exact for the linear loop with its delays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.stability.corners import Mode, growing_ones, modes_of, places_of, unstable_corners
from rths_nodes.analysis.stability.crossings import (
    FARTHEST,
    Crossing,
    Loop,
    delays,
    gains,
    growing_motions,
    ratio_limit,
    ratios,
    sweep,
    verified,
)
from rths_nodes.analysis.stability.force_loops import ForceLoop
from rths_nodes.analysis.stability.impulses import Impulses
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.analysis.stability.sampled_loop import MARGINAL, SampledLoop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import Scenario

LEAST_MARGIN = 0.2
"""Smallest relative margin of the delay that causes no caution. This margin is twice the scatter (about 10 %) of
identified delays of servo-hydraulic actuators."""


class DelayMargin(NamedTuple):
    """Expected ``delay`` of the rig and ``critical`` delay of the loop with its compensator, s.

    ``critical`` is None if no delay is critical, or if no shorter delay makes an unstable loop stable.
    """

    delay: float
    critical: float | None
    stable: bool

    @property
    def value(self) -> float | None:
        """Relative margin, (critical - expected) / critical delay; negative for an unstable loop."""
        return (self.critical - self.delay) / self.critical if self.critical else None

    @property
    def small(self) -> bool:
        return not self.stable or (self.value is not None and self.value < LEAST_MARGIN)

    @property
    def required(self) -> str:
        return (
            f"must be at least {PERCENT * LEAST_MARGIN:g} %, because the delay of a rig changes by "
            "about 10 % with "
            "amplitude, load and temperature (rths stability)"
        )

    def in_words(self) -> str:
        return "no critical delay" if self.value is None else f"delay margin {PERCENT * self.value:.3g} %"

    def __str__(self) -> str:
        verdict = "" if self.stable else "UNSTABLE, "
        if self.critical is None:
            return f"{verdict}{self.in_words()}"
        delays = f"expected delay {MS * self.delay:.4g} ms, critical delay {MS * self.critical:.4g} ms"
        return f"{verdict}{self.in_words()} ({delays})"


@dataclass(frozen=True, eq=False)
class Judgement:
    """Stability of the loop of a test, determined before the test.

    ``growing`` is the number of growing roots, including conjugates. ``motions`` (rad/s) are the computed growing
    roots without conjugates; the fastest growth is first. ``delay`` is the low-frequency delay of the rig's
    slowest axis without a compensator, s.

    ``further_delay`` (s, equal for all axes), ``frequency_factor`` and ``gain`` (scale factor of the tested
    forces) are the nearest limits. They are above the present value if the loop is stable, and below it if it is
    unstable. A limit is None if it does not exist. A stable loop also becomes unstable below ``least_gain``
    (conditional stability).
    """

    loop: Loop
    axes: tuple[str, ...]
    modes: tuple[Mode, ...]
    growing: int
    motions: tuple[complex, ...]
    delay: float
    further_delay: Crossing | None
    frequency_factor: Crossing | None
    gain: Crossing | None
    least_gain: Crossing | None
    assumptions: tuple[str, ...] = ()
    continuous_delay: float | None = None
    """Critical delay with exact integrator and ramp, s; None without a limit."""
    corners: tuple[str, ...] = ()
    """Descriptions of the corners of the bounds of updated models at which a motion grows."""

    @property
    def stable(self) -> bool:
        return self.growing == 0 and not self.corners and all(force_loop.stable for force_loop in self.force_loops)

    @property
    def force_loops(self) -> tuple[ForceLoop, ...]:
        return self.loop.force_loops if isinstance(self.loop, SampledLoop) else ()

    @property
    def critical_delay(self) -> float | None:
        """Delay of the rig (s) at the stability limit of the loop with its compensator; None without a limit."""
        return None if self.further_delay is None else max(0.0, self.delay + self.further_delay.value)

    @property
    def margin(self) -> DelayMargin:
        return DelayMargin(self.delay, self.critical_delay, self.stable)

    @property
    def critical_frequency(self) -> float | None:
        """First natural frequency at the limit (Hz), if all natural frequencies are scaled equally."""
        limit = self.frequency_factor
        return None if limit is None or not self.modes else limit.value * self.modes[0].frequency

    def verdict(self) -> str:
        if self.growing:
            nothing = f"neither a shorter delay of the rig nor a lower frequency{self._sought()} helps"
            limits = ", or ".join(self._limits("would have to fall")) or nothing
            return f"UNSTABLE: {self.margin.in_words()}; {self._worst()}; {limits}"
        if astray := [force_loop.text() for force_loop in self.force_loops if not force_loop.stable]:
            return f"UNSTABLE: {'; '.join(astray)}"
        if self.corners:
            return f"UNSTABLE: a motion grows if the copies have {'; or '.join(self.corners)}"
        nothing = f"no delay and no frequency{self._sought()} is critical"
        limits = "; ".join(self._limits("may grow")) or nothing
        return f"stable: {self.margin.in_words()}; {limits}"

    @property
    def farthest(self) -> float:
        """Largest factor applied to the natural frequencies in the search, or the smallest if motions grow."""
        if not isinstance(self.loop, SampledLoop):
            return math.inf if self.stable else 0.0
        return 1.0 / FARTHEST if self.growing else FARTHEST

    def _sought(self) -> str:
        if not isinstance(self.loop, SampledLoop):
            return ""
        if self.growing:
            return f" down to 1/{1.0 / self.farthest:g} of the present value"
        return f" up to {self.farthest:g} times the present value"

    def _worst(self) -> str:
        if not self.motions:
            return f"{self.growing} motions grow"
        motion = self.motions[0]
        if motion.imag < MARGINAL * abs(motion):
            return f"a motion grows without oscillation, by a factor of e in {1.0 / motion.real:.3g} s"
        growth = math.exp(min(HZ * motion.real / motion.imag, 700.0))
        shown = f"by {PERCENT * (growth - 1.0):.3g} %" if growth < 2.0 else f"{growth:.3g}-fold"
        return f"a motion of {motion.imag / HZ:.4g} Hz grows {shown} per cycle"

    def _limits(self, verb: str) -> Iterable[str]:
        if self.critical_delay is not None:
            yield f"the delay {verb} from {MS * self.delay:.4g} ms to {MS * self.critical_delay:.4g} ms"
        if self.frequency_factor and self.critical_frequency is not None:
            first, critical = self.modes[0].frequency, self.critical_frequency
            note = "" if len(self.modes) == 1 else " if all other frequencies are scaled by the same factor"
            yield f"the {self._noun()} {verb} from {first:.4g} Hz to {critical:.4g} Hz{note}"

    def _noun(self) -> str:
        return "natural frequency" if len(self.modes) == 1 else "first natural frequency"

    def bode(self, frequency: Array) -> NDArray[np.complex128]:
        """Return displacement over target of the compensated rig, ``(n, n_axes, n_axes)``.

        ``frequency`` is ``(n,)`` Hz.

        >>> import rths_nodes
        >>> rig = rths_nodes.stability("chen_ricles_2010").bode([0.1, 10.0])
        >>> [f"{abs(gain):.2f}" for gain in rig[:, 0, 0]]
        ['1.00', '0.64']
        """
        return self._sampled().rig(2.0 * np.pi * np.asarray(frequency, float))

    def nyquist(self, frequency: Array) -> NDArray[np.complex128]:
        """Return the eigenvalues of the open loop, ``(n, m)``. The critical point is -1.

        ``frequency`` is ``(n,)`` Hz.

        >>> import rths_nodes
        >>> rths_nodes.stability("chen_ricles_2010").nyquist([0.1, 10.0]).shape
        (2, 1)
        """
        loop = self._sampled().open_loop(2j * np.pi * np.asarray(frequency, float))
        return np.linalg.eigvals(loop).astype(np.complex128)

    def _sampled(self) -> SampledLoop:
        if not isinstance(self.loop, SampledLoop):
            raise ConfigError("stability: available only for a loop in discrete time")
        return self.loop

    def margins(self) -> list[str]:
        further, factor, delay = self.further_delay, self.frequency_factor, self.critical_delay
        lines = []
        if further and delay is not None:
            times = f", {delay / self.delay:.3g} times the present {MS * self.delay:.4g} ms" if self.delay else ""
            alike = " of the slowest axis if the delays of all axes change equally" if len(self.axes) > 1 else ""
            lines.append(
                f"critical delay {MS * delay:.4g} ms{alike}{times} (motion of {further.frequency:.4g} Hz)"
            )
        if self.continuous_delay is not None:
            exact = f"{MS * self.continuous_delay:.4g} ms"
            lines.append(f"critical delay in continuous time, with exact integrator and ramp: {exact}")
        if factor and self.critical_frequency is not None:
            lines.append(
                f"critical {self._noun()} {self.critical_frequency:.4g} Hz, {factor.value:.3g} times the present "
                f"value (motion of {factor.frequency:.4g} Hz)"
            )
        elif not factor and self.modes and self._sought():
            lines.append(f"no critical {self._noun()}{self._sought()}, where the search ended")
        if self.gain:
            lines.append(f"critical factor on the tested forces: {self.gain.value:.3g}")
        if self.least_gain:
            lines.append(
                f"conditionally stable: unstable if the tested forces fall to {self.least_gain.value:.3g} times "
                "their present value"
            )
        lines += [force_loop.text() for force_loop in self.force_loops]
        return lines

    def data(self) -> Data:
        further, factor = self.further_delay, self.frequency_factor
        return {
            "stable": self.stable,
            "verdict": self.verdict(),
            "growing_roots": self.growing,
            "unstable_corners": list(self.corners),
            "delay_s": self.delay,
            "critical_delay_s": self.critical_delay,
            "delay_margin": self.margin.value,
            "critical_delay_motion_hz": further.frequency if further else None,
            "critical_delay_continuous_time_s": self.continuous_delay,
            "critical_frequency_hz": self.critical_frequency,
            "critical_frequency_factor": factor.value if factor else None,
            "critical_frequency_factor_sought_to": self.farthest,
            "critical_frequency_motion_hz": factor.frequency if factor else None,
            "gain_margin": self.gain.value if self.gain else None,
            "least_gain": self.least_gain.value if self.least_gain else None,
            "modes": [self._row(mode) for mode in self.modes],
            "force_loops": [force_loop.data() for force_loop in self.force_loops],
            "assumptions": list(self.assumptions),
        }

    def _row(self, mode: Mode) -> dict[str, object]:
        return {
            "frequency_hz": mode.frequency,
            "damping_ratio": mode.damping_ratio,
            "apparent_stiffness": dict(zip(self.axes, mode.apparent_stiffness.tolist(), strict=True)),
            "apparent_damping": dict(zip(self.axes, mode.apparent_damping.tolist(), strict=True)),
            "loop_frequency_hz": mode.loop_frequency,
            "loop_damping_ratio": mode.loop_damping_ratio,
            "stable": mode.stable,
        }


def judge(scenario: Scenario) -> Judgement:
    """Return the stability of ``scenario`` in discrete time. Raises ConfigError if it cannot be determined."""
    impulses: dict[str, Impulses] = {}
    loop = sampled_loop(scenario, impulses)
    judgement = judge_loop(loop, scenario.moved_axes)
    corners, exact = tuple(unstable_corners(scenario, impulses)), continuous_delay(scenario)
    return replace(judgement, assumptions=loop.assumptions, continuous_delay=exact, corners=corners)


def is_stable(scenario: Scenario, impulses: dict[str, Impulses] | None = None) -> bool:
    """Return true if the loop is stable; faster than :func:`judge`. ``impulses`` is a cache of responses."""
    loop = sampled_loop(scenario, impulses)
    if not all(force_loop.stable for force_loop in loop.force_loops):
        return False
    if growing_motions(loop, places_of(modes_of(loop))):
        return False
    return next(unstable_corners(scenario, impulses), None) is None


def delay_margin(scenario: Scenario) -> DelayMargin:
    loop = sampled_loop(scenario)
    places = places_of(modes_of(loop))
    growing = growing_motions(loop, places)
    further = _further_delay(loop, sweep(loop, places), growing)
    stable = growing == 0 and all(axis.stable for axis in loop.force_loops)
    return DelayMargin(loop.delay, None if further is None else max(0.0, loop.delay + further.value), stable)


def continuous_delay(scenario: Scenario) -> float | None:
    """Return the critical delay (s) in continuous time; None without a limit or if a part has no response."""
    try:
        loop = continuous_loop(scenario)
        places = places_of(modes_of(loop))
    except ConfigError:
        return None
    late = delays(loop, sweep(loop, places), loop.delay)
    further = _limit(late, 0.0, growing_motions(loop, places))
    return None if further is None else max(0.0, loop.delay + further.value)


def judge_loop(loop: Loop, axes: Sequence[str] = ()) -> Judgement:
    modes, delay = modes_of(loop), loop.delay
    places = places_of(modes)
    growing, grid = growing_motions(loop, places), sweep(loop, places)
    factors = ratio_limit(loop, places, growing) if isinstance(loop, SampledLoop) else ratios(loop, grid)
    forces = gains(loop, grid)
    lower = [crossing for crossing in forces if crossing.value < 1.0 and not crossing.growing]
    further, gain = _further_delay(loop, grid, growing), _limit(forces, 1.0, growing)
    if isinstance(loop, SampledLoop) and not growing:
        gain = verified(loop, "gain", gain, 1.0)
    return Judgement(
        loop,
        tuple(axes) or tuple(f"axis_{index + 1}" for index in range(loop.n_axes)),
        modes,
        growing,
        growing_ones(loop, growing, [mode.motion for mode in modes], factors),
        delay,
        further,
        _limit(factors, 1.0, growing),
        gain,
        None if growing else max(lower, key=lambda crossing: crossing.value, default=None),
    )


def _further_delay(loop: Loop, grid: Array, growing: int) -> Crossing | None:
    further = _limit(delays(loop, grid, loop.delay), 0.0, growing)
    return verified(loop, "delay", further, 0.0) if isinstance(loop, SampledLoop) and not growing else further


def _limit(crossings: Iterable[Crossing], now: float, growing: int) -> Crossing | None:
    """Return the nearest limit above which a stable loop is unstable or below which an unstable loop is stable."""
    ordered = sorted(crossings, key=lambda crossing: crossing.value)
    if growing == 0:
        return next((crossing for crossing in ordered if crossing.value > now and crossing.growing), None)
    for crossing in reversed([one for one in ordered if one.value < now]):
        growing -= crossing.roots if crossing.growing else -crossing.roots
        if growing <= 0:
            return crossing
    return None
