# SPDX-License-Identifier: Apache-2.0
"""Growing motions of a structure in the loop, and stability at the corners of the bounds of updated models.

The constants of the integrator follow from the initial values of these models. Of several corners with equal
elastic stiffness, one is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.stability.crossings import LOWEST, Crossing, Loop, folded, follow, growing_motions, settle
from rths_nodes.analysis.stability.impulses import Impulses
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.analysis.stability.sampled_loop import MARGINAL, SampledLoop
from rths_nodes.analysis.stability.turns import HZ
from rths_nodes.core.errors import ConfigError, within
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.numerical.structures.restoring_forces import Lawful

SMALL = 1e-9
"""Displacement at which no updated model yields, m."""

STAGES = 32
SEARCH = 64
SAME = 1e-6
"""Relative distance below which roots are treated as equal."""


@dataclass(frozen=True, eq=False)
class Mode:
    """A mode of the intended structure, and its motion in the loop.

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
        """Damping ratio of the motion in the loop, negative if the motion grows."""
        return -self.motion.real / abs(self.motion)

    @property
    def stable(self) -> bool:
        return self.loop_damping_ratio >= -MARGINAL


def places_of(modes: Iterable[Mode]) -> list[float]:
    return [coordinate for mode in modes for coordinate in (HZ * mode.frequency, mode.motion.imag)]


def modes_of(loop: Loop) -> tuple[Mode, ...]:
    """Return the oscillations of the structure with a perfect rig, in order of frequency."""
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
    """Return growing motions (rad/s) without conjugates, fastest first.

    The search begins at ``starts`` and ``limits``.
    """
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
    for omega in np.geomspace(LOWEST * loop.scale, loop.highest, SEARCH).tolist():
        if sum(2 if motion.imag > SAME * abs(motion) else 1 for motion in growing) >= count:
            break
        add(settle(loop, (0.1 + 1j) * omega))
        add(settle(loop, complex(omega)))
    return tuple(sorted(growing, key=lambda motion: -motion.real))


def unstable_corners(scenario: Scenario, impulses: dict[str, Impulses] | None = None) -> Iterator[str]:
    """Yield a description of each corner with growing motions. ``impulses`` is the cache of :func:`sampled_loop`.

    Raises ConfigError if the stability cannot be judged.
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
    """Return the elastic stiffness, ``(n_dof, n_dof)`` N/m.

    ``shares`` are factors on the initial values of the updated models.
    """
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
    """Raise ConfigError if updated models may cause growing motions, or if the stability cannot be judged."""
    with within("updating.mode = 'used': the stability cannot be judged"):
        corners = list(unstable_corners(scenario))
    if corners:
        raise ConfigError(
            f"updating.parameters: the loop is unstable at a corner of the bounds ({corners[0]}). Narrow the "
            "bounds, or use the mode shadow"
        )
