# SPDX-License-Identifier: Apache-2.0
"""A port is opened by a test only where no real actuator can move, or an operator has armed it."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port


def check_armed(port: Port) -> None:
    """Raises ConfigError for a ``port`` behind which real actuators could move, unless an operator armed it."""
    if not (port.simulated or port.armed):
        raise ConfigError(
            f"{port.label}: is not a simulator: only an operator may arm it: rths test (doc/procedure.md)"
        )


def open_port(port: Port, pacer: Callable[[], int] | None = None) -> None:
    """Open ``port``. Raises ConfigError where real actuators could move, and no operator has armed it."""
    check_armed(port)
    port.open(pacer)
