# SPDX-License-Identifier: Apache-2.0
"""Real-time hybrid simulation with ROS 2.

>>> import rths_nodes
>>> run = rths_nodes.run("chen_ricles_2010", ["compensator.alpha_es=29"])   # doctest: +SKIP
>>> run.metrics["axes"]["story_1"]["max_error_m"]                           # doctest: +SKIP
"""

from __future__ import annotations

import os
from pkgutil import extend_path
from typing import TYPE_CHECKING

from rths_nodes.core.version import __version__ as __version__

# A checkout finds the built messages of the installed package.
__path__ = extend_path(__path__, __name__)

# Before numpy is loaded: a sum must not depend on the number of threads, and threads that wait for each other
# never end under SCHED_FIFO. A program that loads numpy first, or sets the variable, decides for itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rths_nodes.loop.scenario.schema import Scenario
    from rths_nodes.recording.run import Run


def run(scenario: str | Path | Scenario, overrides: Iterable[str] = (), **options: object) -> Run:
    """Run ``scenario`` (name, path or Scenario) and return its histories, indices and timing.

    ``overrides`` are ``section.key=value`` texts; ``options`` are the Python options of ``loop/options.py`` (rig,
    case, host, pace, record, ...). Raises rths_nodes.core.errors.ConfigError if the test cannot run, and for an
    unknown option.
    """
    from rths_nodes.app import hosts

    return hosts.run_and_read(scenario, overrides, **options)


def load(
    scenario: str | Path | Scenario, overrides: Iterable[str] = (), case: str = "", rig: str | Path = ""
) -> Scenario:
    """Return the Scenario of a file, or of a shipped name; with ``case`` its variant of that name.

    With a ``rig`` (name or path of a rig file) it is the scenario on that rig. ``overrides`` are
    ``section.key=value`` texts. Raises ConfigError with path, value, unit and bound.
    """
    from rths_nodes.loop.scenario import files

    return files.load(scenario, overrides, case, rig)


def read(recording: str | Path) -> Run:
    """Return the Run of a recording, finished or not: exact histories, scenario, indices. Raises ConfigError."""
    from rths_nodes.recording.reading import read_run

    return read_run(recording)
