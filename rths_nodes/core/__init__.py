# SPDX-License-Identifier: Apache-2.0
"""Base package: samples, protocols, parameters, registry, kernels and serialization.

Authors of components import from this package::

    from rths_nodes.core import Array, Motion, number, params

Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rths_nodes.core.decay import Decay
    from rths_nodes.core.errors import ConfigError
    from rths_nodes.core.kernels import Kernel, no_state
    from rths_nodes.core.parameters import (
        ChecksScenario,
        TestContext,
        component,
        components,
        flag,
        integer,
        mapping,
        matrix,
        number,
        params,
        path,
        section,
        sections,
        text,
        vector,
    )
    from rths_nodes.core.protocols import (
        Actuator,
        Compensator,
        Damping,
        GroundMotion,
        Integrator,
        Port,
        Ramp,
        RestoringForce,
        Rig,
        SemiActive,
        Setup,
        Specimen,
        Structure,
    )
    from rths_nodes.core.samples import EMPTY, Array, Command, Measurement, Motion, Target

__all__ = [
    "EMPTY",
    "Actuator",
    "Array",
    "ChecksScenario",
    "Command",
    "Compensator",
    "ConfigError",
    "Damping",
    "Decay",
    "GroundMotion",
    "Integrator",
    "Kernel",
    "Measurement",
    "Motion",
    "Port",
    "Ramp",
    "RestoringForce",
    "Rig",
    "SemiActive",
    "Setup",
    "Specimen",
    "Structure",
    "Target",
    "TestContext",
    "component",
    "components",
    "flag",
    "integer",
    "mapping",
    "matrix",
    "no_state",
    "number",
    "params",
    "path",
    "section",
    "sections",
    "text",
    "vector",
]

_MODULES = ("errors", "samples", "parameters", "decay", "kernels", "protocols")
"""Modules that define the exported names, fastest to load first. No module imports one that follows it."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in _MODULES:
            attribute = getattr(import_module(f"{__name__}.{module}"), name, None)
            if attribute is not None:
                return attribute
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
