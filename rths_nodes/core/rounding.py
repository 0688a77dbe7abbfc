# SPDX-License-Identifier: Apache-2.0
"""Tolerance for rounding."""

from __future__ import annotations

ROUNDING = 1e-9
"""Tolerance in samples, or relative: far above the rounding of a float, far below any intended difference."""
