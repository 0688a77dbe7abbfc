# SPDX-License-Identifier: Apache-2.0
"""Files of ground motions, read as in a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

Content = str | bytes


def make(folder: Path, content: Content, **data: Any) -> Any:
    """Write a file and build the record of it."""
    path = folder / "record.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    cls = registry.load("ground_motion", "record")
    return cls(from_data(cls.Params, {"file": str(path), **data}, "ground_motion"), 1)


def refusal(folder: Path, content: Content, **data: Any) -> str:
    """Return the error message of a refused file."""
    with pytest.raises(ConfigError) as caught:
        make(folder, content, **data)
    return str(caught.value)
