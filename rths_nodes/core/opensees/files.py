"""The files of a model: its Python file, and those that it opens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rths_nodes.core.errors import ConfigError


def check_files(model: str, files: Sequence[str]) -> None:
    """Raises ConfigError for a model that is not there, and for files, relative to it, that it cannot open."""
    if not Path(model).is_file():
        raise ConfigError(f"model = {model!r}: there is no such file")
    for index, file in enumerate(files):
        if Path(file).is_absolute():
            raise ConfigError(
                f"files[{index}] = {file!r}: must be relative to the model, as it finds the file itself"
            )
        if not (Path(model).parent / file).is_file():
            raise ConfigError(f"files[{index}] = {file!r}: there is no such file, seen from {model}")
