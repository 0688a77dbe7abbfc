# SPDX-License-Identifier: Apache-2.0
"""Structure as a scenario asks for it: its degrees of freedom by name, its reduction, what is seen of it."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.protocols import Reduction, Structure
from rths_nodes.core.wire.layout import bound_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.numerical.observation import Observation, Selection, WithObserved, refuse_tested_beside
from rths_nodes.numerical.reductions import Recovery, Reduced, reduced


def places(key: str, names: tuple[str, ...], structure: Structure) -> list[int]:
    """Places of the degrees of freedom ``names``, which stand in the section ``key``. Raises ConfigError."""
    found = {name: place for place, name in enumerate(structure.names)}
    for name in names:
        if name not in found:
            raise unknown(key, "degree of freedom", name, found)
    return [found[name] for name in names]


def reduced_structure(scenario: Scenario, reduction: Reduction, full: Structure) -> Structure:
    """``full`` in the coordinates of a reduction. Raises ConfigError where it cannot be reduced."""
    at = places("interface", scenario.interface, full)
    refuse_tested_beside(full, at, full.names)
    found: Any = reduced(reduction, full, at)
    return found  # type: ignore[no-any-return]


def observation_of(scenario: Scenario, full: Structure | None, model: object) -> Observation:
    """Return what is seen of ``model``, the structure ``full`` or its reduction; without one both are None.

    Raises ConfigError for names that the structure has not, for what is under test beside the interface, and for a
    model that does not fit into a Target whole.
    """
    most = bound_of("Target", "displacement")
    if full is None and not scenario.interface:
        n_axes = len(scenario.moved_axes)
        n_model = n_axes + len(scenario.observed)
        _refuse_too_many(n_model, most)
        return WithObserved(n_axes, n_model) if scenario.observed else Observation(n_axes)
    known = scenario.moved_axes if full is None else full.names
    if not scenario.interface:
        if len(known) > most:
            raise ConfigError(
                f"interface: missing: the structure has {len(known)} degrees of freedom, a Target at most {most}; "
                f"name those that the setup turns into axes, e.g. {known[-1]}"
            )
        return Observation(len(known))
    if full is None:
        raise ConfigError("interface: must be left out where there is no structure: the axes themselves move")
    interface = places("interface", scenario.interface, full)
    observed = interface + places("observed", scenario.observed, full)
    _refuse_too_many(len(observed), most)
    refuse_tested_beside(full, interface, known)
    if isinstance(model, Reduced):
        return Recovery(model, interface, observed)
    return Selection(len(known), interface, observed)


def _refuse_too_many(observed: int, most: int) -> None:
    if observed > most:
        raise ConfigError(
            f"interface, observed: {observed} degrees of freedom: must be <= {most}, which fit into a Target"
        )
