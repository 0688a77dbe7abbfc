# SPDX-License-Identifier: Apache-2.0
"""OpenSees model in a scenario: degrees of freedom, files, and analysis commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rths_nodes.core.child_process import ChildProcess
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.validation import to_data

PROGRAM = Path(__file__).with_name("opensees_program.py")

Rows = Sequence[Sequence[float]]


def check_rows(lists: Mapping[str, Rows]) -> None:
    seen: dict[tuple[float, ...], str] = {}
    for path, rows in lists.items():
        for row in rows:
            if len(row) != 2 or any(one % 1.0 for one in row) or row[1] < 1:
                raise ConfigError(
                    f"{path} = {shown(rows)}: must be rows [node, degree of freedom] of whole numbers"
                )
            if (other := seen.get(tuple(row))) is not None:
                where = "twice" if other == path else f"in {other} as well"
                raise ConfigError(f"{path} = {shown(rows)}: {shown(row)} is listed {where}")
            seen[tuple(row)] = path


def check_count(path: str, rows: Rows, n: int, noun: str) -> None:
    if len(rows) != n:
        raise ConfigError(f"{path}: must have {n} {'row' if n == 1 else 'rows'}, one for each {noun}")


def shown(numbers: Sequence[float | Sequence[float]]) -> str:
    return show([list(map(_plain, row)) if isinstance(row, Sequence) else _plain(row) for row in numbers])


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


def whole_rows(*lists: Rows) -> list[tuple[int, int]]:
    return [(int(node), int(number)) for rows in lists for node, number in rows]


def check_files(model: str, files: Sequence[str]) -> None:
    """Raise ConfigError if ``model``, or one of ``files`` (relative to the model's folder), is missing."""
    if not Path(model).is_file():
        raise ConfigError(f"model = {model!r}: there is no such file")
    for index, file in enumerate(files):
        if Path(file).is_absolute():
            raise ConfigError(f"files[{index}] = {file!r}: must be relative to the folder of the model")
        if not (Path(model).parent / file).is_file():
            raise ConfigError(f"files[{index}] = {file!r}: there is no such file in the folder of {model}")


def commands_of(analysis: object) -> dict[str, list[object]]:
    lines = to_data(analysis).items()
    return {name: [_number(word) for word in line.split()] for name, line in lines if line is not None}


def _number(word: str) -> object:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


class ModelProcess(ChildProcess):
    """Runs the Python file ``work`` with ``task``. This file builds the model that the file ``model`` defines."""

    farewells = ("Process 0 Terminating",)
    points_back = "See stderr output"  # exceptions of OpenSees refer to the reason on stderr

    def __init__(self, model: str, work: Path, task: Mapping[str, object]) -> None:
        request = {"model": str(Path(model).absolute()), "work": str(work), **task}
        super().__init__(Path(model).name, "OpenSees", PROGRAM, request)
