# SPDX-License-Identifier: Apache-2.0
"""The recursion of a linear response, in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.analysis.linear_reference import BLOCK, recursion


@pytest.mark.parametrize("steps", [1, BLOCK - 1, BLOCK, BLOCK + 1, 1000])
def test_blocks_give_what_step_by_step_does(steps: int) -> None:
    rng = np.random.default_rng(steps)
    phi, driven = rng.normal(0.0, 1.0, (4, 4)), rng.normal(0.0, 1.0, (steps, 4))
    phi *= 0.999 / np.abs(np.linalg.eigvals(phi)).max()
    expected = np.zeros((steps + 1, 4))
    for step in range(steps):
        expected[step + 1] = phi @ expected[step] + driven[step]
    np.testing.assert_allclose(recursion(phi, driven), expected, atol=1e-12 * np.abs(expected).max())
