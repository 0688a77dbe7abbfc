# SPDX-License-Identifier: Apache-2.0
"""Predefined history of a run, and files with it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np

from rths_nodes.mechanics.history import History

NAMES = ("a", "b")


def history_of(n_axes: int, dt: float, samples: int = 200, names: tuple[str, ...] = NAMES) -> History:
    """Return a wave on each axis, with commands of twice its size."""
    phase = np.outer(0.2 * np.arange(samples), np.arange(1.0, n_axes + 1.0))
    target = np.stack([np.sin(phase), np.cos(phase), -np.sin(phase)], axis=1)
    return History(names[:n_axes], 1.0 / dt, "a wave", target, 2.0 * target[:, 0])


def written_history(n_axes: int, dt: float, *names: str) -> str:
    """Write :func:`history_of` to a file that is deleted at exit; return its path."""
    folder = Path(tempfile.mkdtemp(prefix="rths_history_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    history_of(n_axes, dt, names=names or NAMES).save(folder / "history.npz")
    return str(folder / "history.npz")
