# SPDX-License-Identifier: Apache-2.0
"""Predefined history of a run, stored in one file: the target and command of every axis at every sample."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, read_arrays, read_bytes, replaced, version_of

SAME_RATE = 1e-9
"""Largest relative difference between servo rates that count as equal."""


@dataclass(frozen=True, eq=False)
class History:
    """Motion of ``axes`` at ``servo_rate`` (Hz), samples 0 ... n - 1.

    ``target`` ``(n, 3, n_axes)`` has displacement (m), velocity (m/s) and acceleration (m/s^2). ``command`` is
    ``(n, n_axes)`` m; it has no rows if a compensator computes the commands. ``parents`` maps the source files of
    the history to their SHA-256.
    """

    axes: tuple[str, ...]
    servo_rate: float
    source: str
    target: Array
    command: Array
    parents: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        head = {
            "axes": self.axes,
            "servo_rate": self.servo_rate,
            "source": self.source,
            "parents": dict(self.parents),
        }
        with replaced(path) as beside, beside.open("wb") as file:
            np.savez(file, told=np.array(json.dumps(head)), target=self.target, command=self.command)

    def check(self, axes: tuple[str, ...], servo_rate: float, path: str) -> None:
        """Raise ConfigError, naming ``path``, unless the test's ``axes`` and ``servo_rate`` (Hz) match."""
        if self.axes != axes:
            raise ConfigError(f"{path}: has the axes {', '.join(self.axes)}, but the test has {', '.join(axes)}")
        if abs(self.servo_rate - servo_rate) > SAME_RATE * servo_rate:
            raise ConfigError(
                f"{path}: has a servo rate of {self.servo_rate:g} Hz, but the test has {servo_rate:g} Hz"
            )

    def check_length(self, rows: int, path: str) -> None:
        if len(self.target) < rows:
            raise ConfigError(f"{path}: has {len(self.target)} samples, but the test needs {rows}")


def load(path: str) -> History:
    """Return the history in the file ``path``. Raises ConfigError if it is unreadable or not a history."""
    file = Path(path).expanduser()
    try:
        return _load(file, *version_of(file))
    except OSError as error:
        raise ConfigError(f"history = {show(path)}: cannot be read ({error.strerror or error})") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"history = {show(path)}: must be a history from rths iterate ({error})") from None


@lru_cache(maxsize=2)  # integrator and compensator of a run read the same file
def _load(path: Path, *now: int) -> History:
    data = read_arrays(read_bytes(path, LARGEST), LARGEST)
    header = json.loads(str(data["told"]))
    target, command = (np.asarray(data[name], np.float64) for name in ("target", "command"))
    parents = {str(name): str(checksum) for name, checksum in header.get("parents", {}).items()}
    history = History(
        tuple(header["axes"]), float(header["servo_rate"]), str(header["source"]), target, command, parents
    )
    n, n_axes = len(target), len(history.axes)
    if target.shape != (n, 3, n_axes) or command.shape not in ((n, n_axes), (0, n_axes)) or n < 2:
        raise ValueError("the arrays have inconsistent sizes")
    if not (np.isfinite(target).all() and np.isfinite(command).all()):
        raise ValueError("the file contains numbers that are not finite")
    target.flags.writeable = command.flags.writeable = False
    return history
