"""What a characterisation has found as the section of a rig file: ``rths characterise --out``.

It is the ``characterised`` of each axis that was tested, under the name that the rig has for it. Before it is
written it was read: the rig file with the section in it has been built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent, at_small
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.strict import as_data, build
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario

DIGITS = 7
"""Significant ones of what is written."""


def check(out: Path, rig: str) -> None:
    """Raises ConfigError, before anything moves, for a section that has no rig file or would overwrite it."""
    if not rig:
        raise ConfigError(f"--out {out}: is a section for a rig file: name that file by --rig")
    if out.exists() and out.samefile(files.locate(rig, files.RIG)):
        raise ConfigError(f"--out {out}: is the rig file itself; give another file, whose lines go into it")


def text(
    found: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], scenario: Scenario, rig: str
) -> str:
    """The section for the file of ``rig``, of the tests ``found`` by axis of ``scenario``, as YAML.

    Raises ConfigError for tests of which no stiffness can be expected, and what the reader of rig files raises for
    a section that it does not accept.
    """
    origin = {
        "scenario": scenario.name,
        "date": datetime.now(UTC).date().isoformat(),
        "simulated": Assembly(scenario).port.simulated,
    }
    sections = {}
    for axis, tests in found.items():
        place = scenario.axes[axis].rig_axis
        assert place is not None
        sections[place.name] = {"characterised": origin | _of(axis, tests, alike[axis])}
    file = as_data(files.load_rig(rig))
    for name, section in sections.items():
        file["axes"][name] |= section
    try:
        build(RigFile, file)
    except ConfigError as error:
        raise error.within(f"{rig} with what was found") from None
    head = "# Of rths characterise: put each `characterised` under its axis in the rig file.\n"
    return head + dump({"axes": sections}, rows=True)


def _of(axis: str, tests: Sequence[Cyclic], alike: Equivalent) -> dict[str, Any]:
    try:
        small = at_small(tests)
    except ValueError as error:
        raise ConfigError(f"--out: axes.{axis}: {error}") from None
    rows = [
        (test.wanted, test.frequency, test.storage_stiffness, test.loss_factor, test.gain, test.delay)
        for test in tests
    ]
    return {
        **{name: _rounded(value) for name, value in small._asdict().items()},
        "equivalent_stiffness": _rounded(alike.stiffness),
        "equivalent_damping": _rounded(alike.damping),
        "tests": [[_rounded(value) for value in row] for row in rows],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
