"""What the Targets tell of the whole structure: input energy, largest and smallest displacement.

E gains (F + F') / 2 (x' - x'') over all degrees of freedom, with displacement x (m) and external force F (N):
Target i brings the displacement of step i and the force of step i - 1. A dash is a step before. The largest and
smallest displacements are worked in place.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

from rths_nodes.core.arithmetic import INF, NAN


class State(NamedTuple):
    """Input energy (J); by degree of freedom x'' and x' (m), F' (N), largest and smallest displacement (m)."""

    energy: float
    earlier: Sequence[float]
    before: Sequence[float]
    force: Sequence[float]
    highest: MutableSequence[float]
    lowest: MutableSequence[float]


def rest(n_dof: int) -> State:
    """Before the first Target."""
    zero = [0.0] * n_dof
    return State(0.0, zero, zero, zero, [-INF] * n_dof, [INF] * n_dof)


def start(state: State, displacement: Sequence[float]) -> State:
    """The motion begins at ``displacement`` (m): no work was done before."""
    energy, _, _, _, highest, lowest = state
    return State(energy, displacement, displacement, [0.0] * len(displacement), highest, lowest)


def step(
    constants: tuple[()], state: State, displacement: Sequence[float], external: Sequence[float], told: float
) -> tuple[State, float]:
    """A Target; beside the state the input energy, J.

    ``told`` is the input energy (J) of a model that does not travel whole; nan where the arrays have all of it.
    """
    energy, earlier, before, force, highest, lowest = state
    work = 0.0
    for n in range(len(displacement)):
        work += (external[n] + force[n]) * (before[n] - earlier[n])
        if not lowest[n] <= displacement[n] <= highest[n]:
            highest[n] = larger(displacement[n], highest[n])
            lowest[n] = -larger(-displacement[n], -lowest[n])
    energy = told if told == told else energy + 0.5 * work
    now = (energy, before, displacement, external, highest, lowest)
    return now, energy  # type: ignore[return-value]


def larger(a: float, b: float) -> float:
    """The larger one; what is not a number is larger than all."""
    return a if not a <= b and b == b else b


def percent(error: float, scale: float) -> float:
    """An energy error (J) in parts of ``scale`` (J), %; nan where that is zero."""
    return 100.0 * error / scale if scale else NAN
