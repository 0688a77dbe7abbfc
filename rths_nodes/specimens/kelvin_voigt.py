"""Spring and dashpot in parallel; the defaults are specimen L of the notes."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.params import number, params


class KelvinVoigt:
    """F = k d + c v."""

    @params
    class Params:
        stiffness: float = number("stiffness k", "N/m", 7.6e6, at_least=0.0)
        damping: float = number("damping c", "N s/m", 0.64e6, at_least=0.0)

    initial_state: tuple[float, ...] = ()

    def __init__(self, params: Params) -> None:
        self._stiffness, self._damping = params.stiffness, params.damping

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return self._stiffness * displacement + self._damping * velocity

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()
