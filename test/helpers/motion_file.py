# SPDX-License-Identifier: Apache-2.0
"""Files of ground motions, made and read as a scenario reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data

Content = str | bytes


def make(folder: Path, content: Content, **data: Any) -> Any:
    """The record of a file, built as the scenario builds it."""
    path = folder / "record.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    cls = registry.load("ground_motion", "record")
    return cls(from_data(cls.Params, {"file": str(path), **data}, "ground_motion"), 1)


def refusal(folder: Path, content: Content, **data: Any) -> str:
    """Why the file is refused, in words."""
    with pytest.raises(ConfigError) as caught:
        make(folder, content, **data)
    return str(caught.value)
