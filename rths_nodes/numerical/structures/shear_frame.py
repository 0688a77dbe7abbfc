# SPDX-License-Identifier: Apache-2.0
"""Shear frames, and structures with a single degree of freedom."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, Problems, show, unknown
from rths_nodes.core.parameters import (
    OfParams,
    TestContext,
    completed,
    component,
    components,
    number,
    params,
    vector,
)
from rths_nodes.core.protocols import RestoringForce
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.numerical.structures.matrices import DAMPING, Partition
from rths_nodes.numerical.structures.restoring_forces import (
    Change,
    Law,
    Lawful,
    Linear,
    LinearRestoringForce,
    law_of,
)

PER_STORY = (
    "stiffnesses",
    "experimental_masses",
    "experimental_stiffnesses",
    "experimental_dampings",
    "gravity_loads",
    "story_heights",
    "experimental_gravity_loads",
)
FAR = (100.0, 101.0)
"""Multiples of the yield displacement between which the slope after yielding is computed."""
PARTS = (("masses", "kg"), ("stiffnesses", "N/m"), ("gravity_loads", "N"))
"""Properties that can be partly or wholly in the laboratory."""
NAME = "x"

Parts = tuple[int, object, object]
"""Number of a story, constants of the other stories, and constants of the story's restoring force."""
OfOne = Callable[..., tuple[object, float]]
OfSeveral = Callable[..., tuple[object, Array]]


def with_only_story(other: OfOne, law: OfOne) -> OfOne:
    """Return a kernel for a single story, which adds the story's force ``law`` to the force ``other``."""

    def force(k: Parts, s: tuple[object, object], x: float) -> tuple[object, float]:
        _, of_other, of_law = k
        state, memory = s
        state, r = other(of_other, state, x)
        memory, shear = law(of_law, memory, x)
        return (state, memory), r + shear

    return force


def with_story(lower: OfSeveral, law: OfOne) -> OfSeveral:
    def force(k: Parts, s: tuple[object, object], x: Array) -> tuple[object, Array]:
        """Add the shear of a story to the restoring forces of both its floors."""
        story, of_others, of_law = k
        state, memory = s
        state, r = lower(of_others, state, x)
        drift = float(x[story])
        if story > 0:
            drift -= float(x[story - 1])
        memory, shear = law(of_law, memory, drift)
        r[story] += shear
        if story > 0:
            r[story - 1] -= shear
        return (state, memory), r

    return force


class StoryForces(Lawful):
    """Adds the shears of yielding stories to the linear force K x.

    A positive shear pulls a floor towards the floor below.
    """

    def __init__(self, linear: Array, stories: Mapping[int, RestoringForce]) -> None:
        """Add forces of ``stories``, by index from 0, to the force of the stiffness ``linear`` ``(n, n)``, N/m."""
        law = LinearRestoringForce(linear).law
        for story, restoring_force in stories.items():
            one = law_of(restoring_force)
            force = (with_story if len(linear) > 1 else with_only_story)(law.force, one.force)
            constants = (story, law.constants, one.constants)
            law = Law(force, constants, (law.rest, one.rest))
        self._inwards = tuple(f"story_{story + 1}" for story in reversed(list(stories)))
        self._follow(law)

    def renewed(self, name: str, constants: object, memory: object, change: Change) -> tuple[object, object]:
        def within(depth: int, k: object, s: object) -> tuple[object, object]:
            story, lower, state = cast(Parts, k)
            before, mine = cast(tuple[object, object], s)
            if depth:
                lower, before = within(depth - 1, lower, before)
            else:
                state, mine = change(state, mine)
            return (story, lower, state), (before, mine)

        return within(self._inwards.index(name), constants, memory)


class ShearFrame(Partition):
    """Masses on floors with springs between them; x_i is the displacement of floor i relative to the ground.

    The drift of story i is x_i - x_{i-1}. Parameters ``experimental_...`` describe the part of the frame that is
    in the laboratory and is subtracted. They exclude properties that only the specimen has.

    A restoring force belongs to the numerical part of its story. A gravity load P reduces the stiffness of a story
    by P per story height (P-Delta). The experimental part of P is excluded, because the rig applies it and the
    measured force contains its effect. The damping model uses the elastic stiffnesses without P-Delta.
    """

    ABOUT = "Shear frame: a mass per floor, a spring per story that can yield, and gravity loads (P-Delta)."

    @params
    class Params:
        masses: tuple[float, ...] = vector(
            "mass of each floor, lowest floor first, including the part in the laboratory", "kg", more_than=0.0
        )
        stiffnesses: tuple[float, ...] = vector(
            "elastic shear stiffness of each story, including the part in the laboratory", "N/m", at_least=0.0
        )
        damping: OfParams = component("damping", "damping of the whole frame", DAMPING)
        restoring_forces: dict[str, OfParams] = components(
            "restoring_force",
            "restoring force of the numerical part of each story, by name (story_1 is the lowest); default: "
            "linear",
        )
        gravity_loads: tuple[float, ...] | None = vector(
            "weight of all floors above each story, for P-Delta", "N", None, at_least=0.0
        )
        story_heights: tuple[float, ...] | None = vector(
            "height of each story, for P-Delta", "m", None, more_than=0.0
        )
        experimental_masses: tuple[float, ...] | None = vector(
            "experimental part of the mass of each floor", "kg", None, at_least=0.0
        )
        experimental_stiffnesses: tuple[float, ...] | None = vector(
            "experimental part of the stiffness of each story; equal to the stiffness if the story is wholly "
            "physical",
            "N/m",
            None,
            at_least=0.0,
        )
        experimental_dampings: tuple[float, ...] | None = vector(
            "damping of the laboratory dashpots in each story, also included in the damping of the frame",
            "N s/m",
            None,
            at_least=0.0,
        )
        experimental_gravity_loads: tuple[float, ...] | None = vector(
            "part of the gravity loads that the rig applies; the P-Delta of this part is measured, not computed",
            "N",
            None,
            at_least=0.0,
        )

        def validate(self, path: str) -> None:
            n = len(self.masses)
            for name in PER_STORY:
                values = getattr(self, name)
                if values is not None and len(values) != n:
                    raise ConfigError(f"{path}.{name} = {show(values)}: must be {n} numbers, one for each mass")
            if 0.0 in self.stiffnesses:
                story = self.stiffnesses.index(0.0)
                raise ConfigError(
                    f"{path}.stiffnesses[{story}] = {show(0.0, 'N/m')}: must be the stiffness of the whole story, "
                    f"> 0 N/m. For a wholly physical story, set the same value in {path}.experimental_stiffnesses"
                )
            stories = [f"story_{story + 1}" for story in range(n)]
            for name in self.restoring_forces:
                if name not in stories:
                    raise unknown(f"{path}.restoring_forces", "story", name, stories)
            for name, unit in PARTS:
                parts, all_of_them = getattr(self, f"experimental_{name}") or (), getattr(self, name) or (0.0,) * n
                for index, (part, all_of_it) in enumerate(zip(parts, all_of_them, strict=False)):
                    if part > all_of_it:
                        raise ConfigError(
                            f"{path}.experimental_{name}[{index}] = {show(part, unit)}: must be <= "
                            f"{path}.{name}[{index}] = {show(all_of_it, unit)}"
                        )
            _check_gravity(self, path)

        @property
        def left(self) -> Array:
            """Return the elastic stiffness ``(n,)`` N/m of the numerical part of each story."""
            n = len(self.masses)
            return zeros(n, self.stiffnesses) - zeros(n, self.experimental_stiffnesses)

        def laws(self) -> dict[str, OfParams]:
            left, forces = self.left.tolist(), self.restoring_forces
            return {name: completed(law, "stiffness", left[_story(name)]) for name, law in forces.items()}

        def cautions(self, test: TestContext) -> list[str]:
            return list(_falls(self))

    def __init__(self, params: Params) -> None:
        n = len(params.masses)
        self.names = tuple(f"floor_{index + 1}" for index in range(n))
        self.influence = np.ones(n)
        drifts = np.eye(n) - np.eye(n, k=-1)

        def stories(values: tuple[float, ...] | Array | None) -> Array:
            return drifts.T @ np.diag(zeros(n, values)) @ drifts

        super().__init__(
            params.damping,
            (np.diag(params.masses), stories(params.stiffnesses)),
            (
                np.diag(zeros(n, params.experimental_masses)),
                stories(params.experimental_dampings),
                stories(params.experimental_stiffnesses),
            ),
        )
        lost = np.zeros((n, n))
        if params.gravity_loads is not None:
            heights = zeros(n, params.story_heights)
            tested = zeros(n, params.experimental_gravity_loads) / heights
            lost = stories(zeros(n, params.gravity_loads) / heights - tested)
            self.experimental_stiffness = self.experimental_stiffness - stories(tested)
            self.stiffness = self.stiffness - lost
            self.restoring_force = LinearRestoringForce(self.stiffness)
        left, yielding = params.left, _laws(params)
        if yielding:
            linear = left.copy()
            linear[list(yielding)] = 0.0
            self.restoring_force = StoryForces(stories(linear) - lost, yielding)
            for law in yielding.values():
                self.elastic_energy += law.elastic_energy


def zeros(n: int, values: tuple[float, ...] | Array | None) -> Array:
    return np.zeros(n) if values is None else np.array(values)


def _check_gravity(params: ShearFrame.Params, path: str) -> None:
    if params.gravity_loads is None:
        return
    if params.story_heights is None:
        raise ConfigError(f"{path}.story_heights: missing (m), but required for the P-Delta of gravity_loads")
    above = 0.0
    for index, load in reversed(list(enumerate(params.gravity_loads))):
        location = f"{path}.gravity_loads[{index}] = {show(load, 'N')}"
        if load < above:
            raise ConfigError(
                f"{location}: must be >= {show(above, 'N')}, the load of the story above, because each load is "
                "the weight of all floors above the story"
            )
        above = load
        critical = params.stiffnesses[index] * params.story_heights[index]
        if load >= critical:
            raise ConfigError(
                f"{location}: must be < {show(critical, 'N')}, stiffness times height, because otherwise the "
                "story is unstable"
            )


def _falls(params: ShearFrame.Params) -> Iterator[str]:
    if params.gravity_loads is None or params.story_heights is None:
        return
    tested = zeros(len(params.masses), params.experimental_gravity_loads)
    for story, law in _laws(params).items():
        bend = math.sqrt(2.0 * law.elastic_energy / law.initial_stiffness)
        if bend <= 0.0:
            continue
        near, far = (float(law.force(np.array([yields * bend]))[0]) for yields in FAR)
        kept, lost = (far - near) / ((FAR[1] - FAR[0]) * bend), params.gravity_loads[story] - tested[story]
        lost /= params.story_heights[story]
        if kept < lost:
            yield (
                f"story_{story + 1}: the stiffness after yielding is {kept:.3g} N/m, but gravity reduces the "
                f"stiffness by {lost:.3g} N/m. The story collapses if it yields far and no part under test holds "
                "it"
            )


def _story(name: str) -> int:
    return int(name.removeprefix("story_")) - 1


def _laws(params: ShearFrame.Params) -> dict[int, RestoringForce]:
    laws, problems, left = {}, Problems(), params.left
    for name, story_law in params.laws().items():
        story = _story(name)
        stiffness, path = float(left[story]), f"structure.restoring_forces.{name}"
        with problems.gathered():
            if stiffness <= 0.0:
                raise ConfigError(
                    f"{path}: must be left out, because the whole stiffness of the story is experimental"
                )
            law = registry.build("restoring_force", story_law, 1)
            if abs(law.initial_stiffness - stiffness) > ROUNDING * stiffness:
                raise ConfigError(
                    f"{path}.stiffness = {show(law.initial_stiffness, 'N/m')}: must be {show(stiffness, 'N/m')}, "
                    "the stiffness of the story without the experimental part. Remove the key"
                )
            if not isinstance(law, Linear):
                laws[story] = law
    problems.refuse()
    return laws


class Sdof:
    """Single degree of freedom: mass, damping c = 2 zeta m w, and a restoring force (linear by default).

    A restoring force without a stiffness uses the structure's stiffness, which excludes the specimen. For a mass
    whose whole spring is under test, use a ``shear_frame`` of one story.
    """

    ABOUT = "Single degree of freedom."

    @params
    class Params:
        mass: float = number("mass m of the numerical part, without the specimen", "kg", more_than=0.0)
        frequency: float = number("natural frequency without the specimen", "Hz", more_than=0.0)
        damping_ratio: float = number("viscous damping ratio zeta", default=0.02, at_least=0.0, less_than=1.0)
        restoring_force: OfParams | None = component(
            "restoring_force", "restoring force of the numerical substructure; default: linear", None
        )

        @property
        def stiffness(self) -> float:
            omega = 2.0 * math.pi * self.frequency
            return self.mass * omega**2

        def laws(self) -> dict[str, OfParams]:
            force = self.restoring_force
            return {} if force is None else {NAME: completed(force, "stiffness", self.stiffness)}

    names: tuple[str, ...] = (NAME,)

    def __init__(self, params: Params) -> None:
        omega = 2.0 * math.pi * params.frequency
        if params.restoring_force is None:
            self.restoring_force: Any = Linear(Linear.Params(stiffness=params.stiffness), 1)
        else:
            self.restoring_force = registry.build("restoring_force", params.laws()[NAME], 1)
        self.mass = np.array([[params.mass]])
        self.damping = np.array([[2.0 * params.damping_ratio * params.mass * omega]])
        self.stiffness = np.array([[self.restoring_force.initial_stiffness]])
        self.experimental_mass = self.experimental_damping = self.experimental_stiffness = np.zeros((1, 1))
        self.influence = np.ones(1)
        self.ground_load = np.array([params.mass])
        self.elastic_energy: float = self.restoring_force.elastic_energy
