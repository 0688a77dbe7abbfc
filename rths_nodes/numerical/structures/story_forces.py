"""The restoring force of a shear frame with stories that yield."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rths_nodes.core.protocols import RestoringForce
from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.laws import Law, Lawful, law_of
from rths_nodes.numerical.structures.linear_force import LinearRestoringForce


def beside(other: Callable[..., Any], law: Callable[..., Any]) -> Callable[..., Any]:
    """``other`` and the ``law`` of the only story, whose drift is the displacement."""

    def force(k: Any, s: Any, x: float) -> tuple[Any, float]:
        of_other, of_law = k
        own, memory = s
        own, r = other(of_other, own, x)
        memory, shear = law(of_law, memory, x)
        return (own, memory), r + shear

    return force


def with_lowest(others: Callable[..., Any], law: Callable[..., Any]) -> Callable[..., Any]:
    """``others`` and the ``law`` of the lowest story of several."""

    def force(k: Any, s: Any, x: Array) -> tuple[Any, Array]:
        of_others, of_law = k
        own, memory = s
        own, r = others(of_others, own, x)
        memory, shear = law(of_law, memory, float(x[0]))
        r[0] += shear
        return (own, memory), r

    return force


def with_story(others: Callable[..., Any], law: Callable[..., Any]) -> Callable[..., Any]:
    """``others`` and the ``law`` of a story above the lowest."""

    def force(k: Any, s: Any, x: Array) -> tuple[Any, Array]:
        story, of_others, of_law = k
        own, memory = s
        own, r = others(of_others, own, x)
        memory, shear = law(of_law, memory, float(x[story]) - float(x[story - 1]))
        r[story] += shear
        r[story - 1] -= shear
        return (own, memory), r

    return force


class StoryForces(Lawful):
    """K x of what is linear, and the shear of each story that yields, a function of the path of its drift.

    A shear r_i pulls floor i back to the floor below, x_i - x_{i-1} being its drift.
    """

    def __init__(self, linear: Array, stories: Mapping[int, RestoringForce]) -> None:
        """``linear`` is the stiffness ``(n_dof, n_dof)`` N/m of all but ``stories``, which are counted from 0."""
        whole = LinearRestoringForce(linear).law
        for story, restoring_force in stories.items():
            one = law_of(restoring_force)
            constants: tuple[Any, ...] = (whole.constants, one.constants)
            if story:
                force = with_story(whole.force, one.force)
                constants = (story, *constants)
            else:
                force = (with_lowest if len(linear) > 1 else beside)(whole.force, one.force)
            whole = Law(force, constants, (whole.rest, one.rest))
        self._follow(whole)
