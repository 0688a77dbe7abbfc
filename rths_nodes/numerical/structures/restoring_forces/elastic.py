"""The elastic stiffness of a restoring force: stated, or left to its structure."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number


def elastic_stiffness() -> Any:
    """The parameter ``stiffness`` of a restoring force."""
    return number("elastic stiffness k; left out, it is that of the structure", "N/m", None, more_than=0.0)


def stated(name: str, params: Any) -> float:
    """The stiffness of ``params`` (N/m). Raises ConfigError where neither they nor a structure have stated it."""
    if params.stiffness is None:
        raise ConfigError(f"restoring_force {name}: its stiffness is missing (elastic stiffness k [N/m])")
    return float(params.stiffness)


def refuse_several(name: str, n_dof: int) -> None:
    """Refuses (ConfigError) other than one degree of freedom for a force with one memory."""
    if n_dof != 1:
        raise ConfigError(f"restoring_force {name}: has 1 degree of freedom, the structure has {n_dof}")
