# SPDX-License-Identifier: Apache-2.0
"""Options of figures in files, without the drawing library."""

from __future__ import annotations

from rths_nodes.core.errors import ConfigError

SCREEN, PAPER = "screen", "paper"
STYLES = (SCREEN, PAPER)
FORMATS = ("pdf", "svg")
COLUMN, NARROWEST, WIDEST = 89.0, 60.0, 400.0
"""Width of a journal column (default on paper), smallest width and largest width, mm."""


def check_width(millimetres: float) -> None:
    """Raise ConfigError if a width is too small or too large."""
    if not NARROWEST <= millimetres <= WIDEST:
        raise ConfigError(f"--width = {millimetres:g} mm: must be between {NARROWEST:g} and {WIDEST:g} mm")
