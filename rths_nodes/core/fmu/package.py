# SPDX-License-Identifier: Apache-2.0
"""The package that reads and runs FMUs: fmpy, which is optional."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.errors import ConfigError

INSTALL = "pip install fmpy"


def fmpy() -> Any:
    """The package. Raises ConfigError where it is not installed."""
    try:
        import fmpy
    except ImportError as error:
        raise ConfigError(f"an FMU needs fmpy, which cannot be imported ({error}): {INSTALL}") from error
    return fmpy
