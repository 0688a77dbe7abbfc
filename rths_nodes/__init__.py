# SPDX-License-Identifier: Apache-2.0
"""Real-time hybrid simulation with ROS 2.

>>> import rths_nodes
>>> run = rths_nodes.run("chen_ricles_2010", "compensator.alpha_es=29", duration=2.0)
>>> run.outcome
'finished'
"""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING

from rths_nodes.core.version import __version__ as __version__

# A checkout imports the generated messages from the installed package.
__path__ = extend_path(__path__, __name__)

# Set this before numpy is loaded: sums must not depend on the number of threads, and threads that wait for each
# other block forever under SCHED_FIFO. A value set by the user takes precedence. This line has no effect if numpy
# is already loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from rths_nodes.app.api import estimate, identify, load, overlay, read, run, scoreboard, stability, study, tune
    from rths_nodes.app.results import Run
    from rths_nodes.core.errors import ConfigError
    from rths_nodes.loop.scenario.schema import Scenario

__all__ = [
    "ConfigError",
    "Run",
    "Scenario",
    "estimate",
    "identify",
    "load",
    "overlay",
    "read",
    "run",
    "scoreboard",
    "stability",
    "study",
    "tune",
]

_HOMES = {"Run": "app.results", "ConfigError": "core.errors", "Scenario": "loop.scenario.schema"}
"""Modules of the public names that ``app.api`` does not define. Each module is imported on first use."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'app.api')}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
