# SPDX-License-Identifier: Apache-2.0
"""File with the result of a commissioning: ``RIG.commissioned.yaml`` next to the rig file."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

from rths_nodes.core import text_files
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import reason
from rths_nodes.loop.commissioning import VERDICTS, Commissioning, barred
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording import plain
from rths_nodes.recording.records import RecordingError

SUFFIX = ".commissioned.yaml"
VERSION = 1
HEAD = (
    "# Result of the commissioning of this rig without a specimen, written by rths commission. Do not edit.\n"
    "# The result is valid for 12 months if port, channels, limits and receiver do not change.\n"
)


def beside(rig: Path | str) -> Path:
    return Path(rig).with_suffix(SUFFIX)


def write(result: Commissioning, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text_files.write(path, plain.text_of(result, VERSION, HEAD))
    except OSError as error:
        raise RecordingError(f"{path}: the commissioning cannot be written ({reason(error)})") from error


def keep_older(*paths: Path) -> list[Path]:
    """Copy existing ``paths`` to names with the modification time. Raises RecordingError if a copy fails."""
    copies = []
    for path in filter(Path.exists, paths):
        changed = datetime.fromtimestamp(path.stat().st_mtime).strftime("%Y-%m-%d_%H%M%S")
        copy = path.with_name(f"{path.stem}_{changed}{path.suffix}")
        try:
            with text_files.replaced(copy) as complete:
                shutil.copy2(path, complete)
        except OSError as error:
            raise RecordingError(f"{copy}: the older commissioning cannot be saved ({reason(error)})") from error
        copies.append(copy)
    return copies


def read(path: Path | str) -> Commissioning:
    commissioning = plain.read(Commissioning, Path(path), VERSION)
    for number, row in enumerate(commissioning.rows):
        if row.verdict not in VERDICTS:
            verdicts = ", ".join(VERDICTS)
            raise ConfigError(f"{path}: rows[{number}].verdict = {row.verdict!r}: must be one of {verdicts}")
    return commissioning


def of_rig(rig: Path | str) -> Commissioning | None:
    return read(beside(rig)) if beside(rig).exists() else None


def in_effect(scenario: Scenario, rig: str) -> tuple[Commissioning | None, str]:
    """Return the commissioning of the rig file ``rig``, and the reason why rungs that move the rig are barred.

    The commissioning is None if its file is missing or not required, as for simulators and emulators. The reason
    is empty if no rung is barred. Raises ConfigError if the file is invalid.
    """
    if not rig or Assembly(scenario).port.simulated:
        return None, ""
    file = of_rig(files.locate(rig, files.RIG))
    return file, barred(file, scenario, None, datetime.now().astimezone())
