# SPDX-License-Identifier: Apache-2.0
"""The functions of ``import rths_nodes``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from rths_nodes.app import hosts
from rths_nodes.app.keywords import OfRun, OfScenario, declared_by, of_run, split
from rths_nodes.app.results import Run
from rths_nodes.loop.options import EMBEDDED
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import Source
from rths_nodes.loop.scenario.overrides import Overrides
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.reading import read_run


@declared_by(OfScenario, of_run())
def load(scenario: Source, overrides: Overrides = (), **keywords: Unpack[OfScenario]) -> Scenario:
    """Read, check and build a scenario.

    Parameters
    ----------
    scenario : str, path-like, dict or Scenario
        Name of a shipped scenario, path of a YAML file, the contents of such a file, or a loaded Scenario.
    overrides : str, dict, or sequence of these
        Changes, as ``"section.key=value"`` or ``{"section.key": value}``, in SI units. The ``type`` of a section
        may be a class, a :class:`rths_nodes.core.Kernel` or a kernel's step.

    Returns
    -------
    Scenario
        Checked, frozen parameters; ``data()`` has them as plain data.

    Raises
    ------
    ConfigError
        For wrong input: all problems, each with path, value, unit, bound and known names.

    Examples
    --------
    >>> import rths_nodes
    >>> rths_nodes.load("chen_ricles_2010", {"compensator.alpha_es": 29}, duration=10).compensator.alpha_es
    29.0
    >>> rths_nodes.load("chen_ricles_2010", "compensator.alpha_es=-1")
    Traceback (most recent call last):
    rths_nodes.core.errors.ConfigError: compensator.alpha_es = -1 samples: must be >= 1 samples
    """
    changes, options = split(keywords, overrides)
    return files.load(scenario, changes, **options)


@declared_by(OfRun, of_run())
def run(
    scenario: Source,
    overrides: Overrides = (),
    *,
    progress: Callable[[int, int], None] | None = None,
    **keywords: Unpack[OfRun],
) -> Run:
    """Run a test and return its histories, indices and timing.

    Parameters
    ----------
    scenario : str, path-like, dict or Scenario
        As of :func:`load`.
    overrides : str, dict, or sequence of these
        As of :func:`load`.
    progress : callable, optional
        Called with the number of the sample, and the number of samples.

    Returns
    -------
    Run
        Arrays ``(n_samples, n_axes)`` in SI units, ``metrics``, ``outcome``; shown with a figure in a notebook.

    Raises
    ------
    ConfigError
        For wrong input, for an engine that the test cannot have, and with ``engine="compiled"`` for a kernel that
        has no C form, with its line.

    Examples
    --------
    A compensator of one's own in place of the scenario's: its step is compiled, like those in the package.

    >>> import rths_nodes
    >>> def lead(k, s, x, v, a, m, f, rests, preparing):
    ...     return s, x + 0.0273 * v
    >>> test = rths_nodes.run("chen_ricles_2010", duration=2.0, compensator=lead)
    >>> f"{1e3 * test.metrics['axes']['story_1']['max_error_m']:.4f} mm"
    '0.0071 mm'
    """
    changes, options = split(keywords, overrides)
    if options.get("host", EMBEDDED) == EMBEDDED or options.get("record") is not None:
        return Run.from_run(hosts.run(scenario, changes, progress=progress, **options).read())
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        options |= {"record": Path(folder) / "run"}
        return Run.from_run(hosts.run(scenario, changes, progress=progress, **options).read())


def read(recording: str | Path) -> Run:
    """Read a recording, finished or not.

    Parameters
    ----------
    recording : str or path-like
        Folder of the recording, or its file.

    Returns
    -------
    Run
        As of :func:`run`, to the bit; with the scenario, and with ``notes`` on missing or damaged data.

    Raises
    ------
    ConfigError
        If it is no recording of a test.

    Examples
    --------
    >>> import rths_nodes, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     test = rths_nodes.run("predefined_sine", duration=0.5, record=f"{folder}/test")
    ...     bool((rths_nodes.read(f"{folder}/test").displacement == test.displacement).all())
    True
    """
    return Run.from_run(read_run(recording))
