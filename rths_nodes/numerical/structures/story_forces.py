"""The restoring force of a shear frame with stories that yield."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from rths_nodes.core.protocols import RestoringForce
from rths_nodes.core.samples import Array


class StoryForces:
    """K x of what is linear, and the shear of each story that yields, a function of the path of its drift.

    A shear r_i pulls floor i back to the floor below, x_i - x_{i-1} being its drift.
    """

    def __init__(self, linear: Array, stories: Mapping[int, RestoringForce]) -> None:
        """``linear`` is the stiffness ``(n_dof, n_dof)`` N/m of all but ``stories``, which are counted from 0."""
        self._linear = linear
        self._stories = dict(stories)

    def __copy__(self) -> StoryForces:
        """One that may be moved on without the other: the memory is that of the stories."""
        return StoryForces(self._linear, {story: copy.copy(law) for story, law in self._stories.items()})

    def force(self, displacement: Array) -> Array:
        """Move to ``displacement`` ``(n_dof,)`` m and give the force ``(n_dof,)`` N there."""
        force: Array = self._linear.dot(displacement)
        drifts = displacement.copy()
        drifts[1:] -= displacement[:-1]
        for story, law in self._stories.items():
            shear = law.force(drifts[story : story + 1])[0]
            force[story] += shear
            if story:
                force[story - 1] -= shear
        return force

    def reset(self) -> None:
        """All stories back to the virgin state."""
        for law in self._stories.values():
            law.reset()
