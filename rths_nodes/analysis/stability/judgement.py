# SPDX-License-Identifier: Apache-2.0
"""Stability of the loop of a test, and its margins, determined without a simulation.

A delay of the rig acts as negative damping (Horiuchi, Nakagawa, Sugano, Konno 1996, Eq. 3). With prediction of
order n, a tested spring of stiffness k appears to have stiffness k* and damping c* at the angular frequency w. In
closed form, with phi = w delay, Eq. 6 is

    k*/k + j c* w/k = 1 - (1 - e^{-j phi})^{n + 1}

The damping becomes negative at phi = pi/3 (n = 2) and pi/2 (n = 3). At this frequency of the *response*, the
spring appears stiffer. If the complete spring is tested, the critical *natural* frequency w0 is therefore lower:
w0 delay = 0.7405 (n = 2) and 0.7025 (n = 3). Without compensation the limit is w0 delay = 2 zeta, to first order
in the damping ratio zeta.

``doc/methods.md`` describes the methods, which are exact for the linear loop with its delays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.stability import crossings
from rths_nodes.analysis.stability.crossings import Crossing, Loop, folded, follow, growing_motions, settle, sweep
from rths_nodes.analysis.stability.loops import HZ, MARGINAL, ForceLoop, Impulses, SampledLoop
from rths_nodes.analysis.stability.of_scenario import continuous_loop, sampled_loop
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, within
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.numerical.structures.restoring_forces import Lawful

LEAST_MARGIN = 0.2
"""Smallest relative delay margin without a caution: twice the scatter (about 10 %) of identified delays of
servo-hydraulic actuators."""
SMALL = 1e-9
"""Displacement at which no updated model yields, m."""
STAGES = 32
SEARCH = 64
SAME = 1e-6


class DelayMargin(NamedTuple):
    """Expected ``delay`` of the rig and ``critical`` delay of the loop with its compensator, s.

    ``critical`` is None if no delay is critical, or if no shorter delay makes an unstable loop stable. If
    ``fed_back`` is true, the compensator feeds measurements back, and the delay within this feedback is constant.
    """

    delay: float
    critical: float | None
    stable: bool
    fed_back: bool = False

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
            f"must be at least {PERCENT * LEAST_MARGIN:g} %, because the delay of a rig changes by about 10 % "
            "with amplitude, load and temperature (rths stability)"
        )

    def in_words(self) -> str:
        return "no critical delay" if self.value is None else f"delay margin {PERCENT * self.value:.3g} %"

    def __str__(self) -> str:
        verdict = "" if self.stable else "UNSTABLE, "
        if self.critical is None:
            return f"{verdict}{self.in_words()}"
        delays = f"expected delay {MS * self.delay:.4g} ms, critical delay {MS * self.critical:.4g} ms"
        delays += ", possibly shorter because the compensator feeds measurements back" * self.fed_back
        return f"{verdict}{self.in_words()} ({delays})"


@dataclass(frozen=True, eq=False)
class Mode:
    """Mode of the structure with a perfect rig, and its motion in the loop of the test.

    At the ``frequency`` (Hz) of the mode, the rig's response gives a spring of stiffness k the apparent stiffness
    k* and damping c*. ``apparent_stiffness`` is k*/k, and ``apparent_damping`` is c* w/k, where w is the angular
    frequency, ``(n_axes,)`` each. ``motion`` is the root of the mode in the loop, rad/s.
    """

    frequency: float
    damping_ratio: float
    apparent_stiffness: Array
    apparent_damping: Array
    motion: complex

    @property
    def loop_frequency(self) -> float:
        return abs(self.motion.imag) / HZ

    @property
    def loop_damping_ratio(self) -> float:
        """Damping ratio of the motion in the loop; negative for an unstable mode."""
        return -self.motion.real / abs(self.motion)

    @property
    def stable(self) -> bool:
        return self.loop_damping_ratio >= -MARGINAL


@dataclass(frozen=True, eq=False)
class Judgement:
    """Stability of the loop of a test, determined before the test.

    ``growing`` is the number of unstable roots, including conjugates. ``motions`` (rad/s) are the computed
    unstable roots without conjugates, fastest growth first. ``delay`` is the low-frequency delay of the rig's
    slowest axis without a compensator, s.

    ``further_delay`` (s, equal for all axes), ``frequency_factor`` and ``gain`` (scale factor of the tested
    forces) are the nearest limits. They are above the present value for a stable loop, otherwise below it. A
    missing limit is None. A conditionally stable loop also becomes unstable below ``least_gain``.
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
    """Critical delay with exact integrator and ramp, s; None without a critical delay."""
    corners: tuple[str, ...] = ()
    """Combinations of parameter bounds of updated models at which the loop is unstable, as text."""

    @property
    def stable(self) -> bool:
        return self.growing == 0 and not self.corners and all(force_loop.stable for force_loop in self.force_loops)

    @property
    def force_loops(self) -> tuple[ForceLoop, ...]:
        return self.loop.force_loops

    @property
    def critical_delay(self) -> float | None:
        """Delay of the rig (s) at the stability limit of the loop with its compensator, or None."""
        return _critical(self.delay, self.further_delay)

    @property
    def margin(self) -> DelayMargin:
        return DelayMargin(self.delay, self.critical_delay, self.stable, self.loop.fed_back)

    @property
    def critical_frequency(self) -> float | None:
        """First natural frequency at the limit (Hz), if all natural frequencies are scaled equally."""
        limit = self.frequency_factor
        return None if limit is None or not self.modes else limit.value * self.modes[0].frequency

    def verdict(self) -> str:
        if self.growing:
            nothing = f"the loop remains unstable with shorter delays and lower frequencies{self._sought()}"
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
        """Factor on natural frequencies at which the search for a limit ends; below 1 for an unstable loop."""
        if not isinstance(self.loop, SampledLoop):
            return 0.0 if self.growing else math.inf
        return 1.0 / crossings.FARTHEST if self.growing else crossings.FARTHEST

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
            yield f"the {self._first_frequency} {verb} from {first:.4g} Hz to {critical:.4g} Hz{note}"

    @property
    def _first_frequency(self) -> str:
        return "natural frequency" if len(self.modes) == 1 else "first natural frequency"

    def bode(self, frequency: Array) -> NDArray[np.complex128]:
        """Return the ratio of displacement to target of the compensated rig, ``(n, n_axes, n_axes)``.

        ``frequency`` is ``(n,)`` Hz, or a number (n = 1).

        >>> import rths_nodes
        >>> rig = rths_nodes.stability("chen_ricles_2010").bode([0.1, 10.0])
        >>> [f"{abs(gain):.2f}" for gain in rig[:, 0, 0]]
        ['1.00', '0.64']
        """
        return self.loop.rig(2.0 * np.pi * np.atleast_1d(np.asarray(frequency, float)))

    def nyquist(self, frequency: Array) -> NDArray[np.complex128]:
        """Return the eigenvalues of the open loop, ``(n, m)``. The critical point is -1.

        ``frequency`` is ``(n,)`` Hz, or a number (n = 1).

        >>> import rths_nodes
        >>> rths_nodes.stability("chen_ricles_2010").nyquist([0.1, 10.0]).shape
        (2, 1)
        """
        loop = self.loop.open_loop(2j * np.pi * np.atleast_1d(np.asarray(frequency, float)))
        return np.linalg.eigvals(loop).astype(np.complex128)

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
                f"critical {self._first_frequency} {self.critical_frequency:.4g} Hz, {factor.value:.3g} times the "
                f"present value (motion of {factor.frequency:.4g} Hz)"
            )
        elif not factor and self.modes and self._sought():
            lines.append(f"no critical {self._first_frequency}{self._sought()}, where the search ended")
        if self.gain:
            lines.append(f"critical scale factor of the tested forces: {self.gain.value:.3g}")
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
    """Return the stability of ``scenario`` in discrete time. Raises ConfigError if the loop cannot be judged."""
    impulses: dict[str, Impulses] = {}
    loop = sampled_loop(scenario, impulses)
    judgement = judge_loop(loop, scenario.moved_axes)
    corners, exact = tuple(unstable_corners(scenario, impulses)), continuous_delay(scenario)
    return replace(judgement, assumptions=loop.assumptions, continuous_delay=exact, corners=corners)


def is_stable(scenario: Scenario, impulses: dict[str, Impulses] | None = None) -> bool:
    """Return True if the loop is stable. Faster than :func:`judge`. ``impulses`` caches impulse responses."""
    loop = sampled_loop(scenario, impulses)
    if not all(force_loop.stable for force_loop in loop.force_loops):
        return False
    if growing_motions(loop, places_of(modes_of(loop))):
        return False
    return next(unstable_corners(scenario, impulses), None) is None


def delay_margin(scenario: Scenario) -> DelayMargin:
    loop = sampled_loop(scenario)
    return _margin_of(loop, modes_of(loop))


def continuous_delay(scenario: Scenario) -> float | None:
    """Return the critical delay (s) in continuous time; None if there is none or a component has no response."""
    try:
        loop = continuous_loop(scenario)
        modes = modes_of(loop)
    except ConfigError:
        return None
    return _margin_of(loop, modes).critical


def _margin_of(loop: Loop, modes: Iterable[Mode]) -> DelayMargin:
    places = places_of(modes)
    growing = growing_motions(loop, places)
    critical = _critical(loop.delay, _further_delay(loop, sweep(loop, places), growing))
    stable = growing == 0 and all(axis.stable for axis in loop.force_loops)
    return DelayMargin(loop.delay, critical, stable, loop.fed_back)


def _critical(delay: float, further: Crossing | None) -> float | None:
    return None if further is None else max(0.0, delay + further.value)


def judge_loop(loop: Loop, axes: Sequence[str] = ()) -> Judgement:
    modes, delay = modes_of(loop), loop.delay
    places = places_of(modes)
    growing, grid = growing_motions(loop, places), sweep(loop, places)
    if isinstance(loop, SampledLoop):
        factors = crossings.ratio_limit(loop, places, growing)
    else:
        factors = crossings.ratios(loop, grid)
    forces = crossings.gains(loop, grid)
    lower = [crossing for crossing in forces if crossing.value < 1.0 and not crossing.growing]
    return Judgement(
        loop,
        tuple(axes) or tuple(f"axis_{index + 1}" for index in range(loop.n_axes)),
        modes,
        growing,
        growing_ones(loop, growing, [mode.motion for mode in modes], factors),
        delay,
        _further_delay(loop, grid, growing),
        _limit(factors, 1.0, growing),
        _verified(loop, "gain", forces, 1.0, growing),
        None if growing else max(lower, key=lambda crossing: crossing.value, default=None),
    )


def _further_delay(loop: Loop, grid: Array, growing: int) -> Crossing | None:
    return _verified(loop, "delay", crossings.delays(loop, grid, loop.delay), 0.0, growing)


def _verified(
    loop: Loop, parameter: str, candidates: Iterable[Crossing], now: float, growing: int
) -> Crossing | None:
    limit = _limit(candidates, now, growing)
    if growing or not isinstance(loop, SampledLoop):
        return limit
    return crossings.verified(loop, parameter, limit, now)


def _limit(candidates: Iterable[Crossing], now: float, growing: int) -> Crossing | None:
    """Return the nearest limit, or None. It is above ``now`` for a stable loop, below it for an unstable loop."""
    ordered = sorted(candidates, key=lambda crossing: crossing.value)
    if growing == 0:
        return next((crossing for crossing in ordered if crossing.value > now and crossing.growing), None)
    for crossing in reversed([one for one in ordered if one.value < now]):
        growing -= crossing.roots if crossing.growing else -crossing.roots
        if growing <= 0:
            return crossing
    return None


def places_of(modes: Iterable[Mode]) -> list[float]:
    return [coordinate for mode in modes for coordinate in (HZ * mode.frequency, mode.motion.imag)]


def modes_of(loop: Loop) -> tuple[Mode, ...]:
    """Return the modes of the structure with a perfect rig, in order of frequency."""
    free = loop.whole.states(np.eye(len(loop.whole.specimens))[None])[0]
    modes = []
    for root in sorted(free[free.imag > MARGINAL * loop.scale], key=abs):
        omega = float(abs(root))
        rig = loop.rig(np.array([omega / loop.time_ratio]))[0].diagonal()
        motion = _in_the_loop(loop, complex(root))
        modes.append(Mode(omega / HZ, float(-root.real / omega), rig.real, rig.imag, motion))
    return tuple(modes)


def _in_the_loop(loop: Loop, root: complex) -> complex:
    if not isinstance(loop, SampledLoop):
        slow = loop.states(loop.rig(np.zeros(1)))[0]
        return complex(follow(loop, slow[np.argmin(abs(slow - root))], "ratio", np.linspace(0.0, 1.0, STAGES))[-1])
    if not loop.separate:
        return folded(loop, settle(loop, root))
    stepped = follow(loop, root, "ratio", np.linspace(1.0 / STAGES, 1.0, STAGES), share=0.0)[-1]
    return folded(loop, complex(follow(loop, stepped, "share", np.linspace(0.0, 1.0, STAGES))[-1]))


def growing_ones(
    loop: Loop, count: int, starts: Iterable[complex], limits: Iterable[Crossing]
) -> tuple[complex, ...]:
    """Return unstable roots (rad/s) without conjugates, fastest growth first. The search begins at ``starts``."""
    growing: list[complex] = []

    def add(motion: complex) -> None:
        motion = folded(loop, motion)
        apart = all(abs(motion - other) > SAME * abs(other) for other in growing)
        if motion.real > MARGINAL * loop.scale and motion.imag >= -SAME * abs(motion) and apart:
            growing.append(motion)

    for motion in starts:
        add(motion)
    for one in limits:
        if count and one.value < 1.0 and one.growing:
            values = np.linspace(one.value, 1.0, STAGES)
            add(complex(follow(loop, 1j * HZ * one.frequency, "ratio", values)[-1]))
    for omega in np.geomspace(crossings.LOWEST * loop.scale, loop.highest, SEARCH).tolist():
        if sum(2 if motion.imag > SAME * abs(motion) else 1 for motion in growing) >= count:
            break
        add(settle(loop, (0.1 + 1j) * omega))
        add(settle(loop, complex(omega)))
    return tuple(sorted(growing, key=lambda motion: -motion.real))


def unstable_corners(scenario: Scenario, impulses: dict[str, Impulses] | None = None) -> Iterator[str]:
    """Yield, as text, each combination of parameter bounds of updated models at which the loop is unstable.

    ``impulses`` is the cache of :func:`sampled_loop`. Raises ConfigError if the stability cannot be judged.
    """
    if scenario.updating is None or scenario.updating.mode != USED:
        return
    copies, structure = Copies(scenario), Assembly(scenario).structure
    assert structure is not None
    impulses = {} if impulses is None else impulses
    seen: list[Array] = []
    for shares in copies.corners:
        stiffness = stiffness_at(structure, copies, shares.tolist())
        if any(np.allclose(stiffness, other, rtol=1e-6, atol=0.0) for other in seen):
            continue
        seen.append(stiffness)
        loop = sampled_loop(scenario, impulses, stiffness)
        if growing_motions(loop, places_of(modes_of(loop))):
            values = zip(copies.learns.names, shares * copies.learns.initial, copies.learns.units, strict=True)
            yield ", ".join(f"{name} = {value:.4g} {unit}".rstrip() for name, value, unit in values)


def stiffness_at(structure: Structure, copies: Copies, shares: list[float]) -> Array:
    """Return the elastic stiffness, ``(n_dof, n_dof)`` N/m, if parameters are ``shares`` times initial values."""
    force = structure.restoring_force
    assert isinstance(force, Lawful)
    _, constants, memory = force.law
    for name, copy in copies.followers().items():
        constants, memory = force.renewed(name, constants, memory, copy.change(shares))
    n = len(structure.influence)
    columns = [
        force.law.force(constants, memory, SMALL if n == 1 else SMALL * unit)[1] / SMALL for unit in np.eye(n)
    ]
    return np.column_stack([np.atleast_1d(column) for column in columns])


def refuse_unstable(scenario: Scenario) -> None:
    """Raise ConfigError if updated models may destabilise the loop, or if the stability cannot be judged."""
    with within("updating.mode = 'used': the stability cannot be judged"):
        corners = list(unstable_corners(scenario))
    if corners:
        raise ConfigError(
            f"updating.parameters: the loop is unstable at a corner of the bounds ({corners[0]}). Narrow the "
            "bounds, or set updating.mode to shadow"
        )
