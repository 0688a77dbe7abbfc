"""How far numbers may be apart that are the same but for rounding."""

from __future__ import annotations

ROUNDING = 1e-9
"""Of a count of samples, or relative: far above the rounding of a float, far below what anybody means."""
