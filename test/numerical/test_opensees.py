"""OpenSees itself at the other end of the wire: the split frame moves as OpenSees moves the whole one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import beside, free_port, wait_for_listener

from rths_nodes.app import hosts

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STEPS = 100


@pytest.fixture(scope="module", autouse=True)
def _opensees() -> None:
    """A wheel whose system libraries are missing cannot be imported, either."""
    done = subprocess.run([sys.executable, "-c", "import openseespy.opensees"], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no words"])[-1]
        pytest.skip(f"openseespy is not to be had here ({why}): pip install 'rths_nodes[opensees]'")


def opensees(out: Path, *arguments: str, steps: int = STEPS) -> Any:
    """Displacements of the floors ``(steps, 3)`` m, from ``frame.py`` in a process of its own."""
    command = [sys.executable, FOLDER / "frame.py", "--steps", str(steps), "--out", out, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60.0)
    return np.load(out)


def split(folder: Path, words: list[str], overrides: list[str], steps: int = STEPS, **options: Any) -> Any:
    """How the hybrid test ended, and the displacements that OpenSees found in it."""
    port = free_port()

    def client() -> Any:
        wait_for_listener(port)
        return opensees(folder / "split.npy", "--rig", "--port", str(port), *words, steps=steps)

    given = [f"integrator.port={port}", f"duration={0.01 * STEPS}", "integrator.answer_within=60", *overrides]
    with beside(client) as found:
        result = hosts.run(FOLDER / "frame.yaml", given, **options)
    return result, found[0]


INTEGRATORS: dict[str, tuple[list[str], list[str], int]] = {
    "NewmarkExplicit": (["--integrator", "NewmarkExplicit", "0.5"], [], STEPS),
    "KRAlphaExplicit": (["--integrator", "KRAlphaExplicit", "1.0"], [], STEPS),
    "KRAlphaExplicit_TP": (["--integrator", "KRAlphaExplicit_TP", "0.8"], [], STEPS),
    "AlphaOS": (["--integrator", "AlphaOS", "0.9"], [], STEPS),
    # asks for the force at the beginning of a step, so that the last displacement wants one step more
    "CentralDifference": (["--integrator", "CentralDifference"], [], STEPS + 1),
    "HHTHSFixedNumIter": (
        ["--integrator", "HHTHSFixedNumIter", "0.9", "--iterations", "5"],
        ["integrator.iterations=5", "substeps=2"],
        STEPS,
    ),
}


@pytest.mark.parametrize("name", INTEGRATORS)
def test_the_split_frame_is_the_whole_one(name: str, tmp_path: Path) -> None:
    words, overrides, steps = INTEGRATORS[name]
    result, found = split(tmp_path, words, overrides, steps)
    assert result.outcome == "finished", result.reason
    whole = opensees(tmp_path / "whole.npy", *words, steps=steps)
    assert np.abs(found - whole).max() < 1e-8 * np.abs(whole).max()
    assert np.ptp(whole[:, 0]) > 0.01, "m: it has moved"


@pytest.mark.nodes
@pytest.mark.parametrize("name", ["NewmarkExplicit", "KRAlphaExplicit"])
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_so_it_is_on_every_host(host: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    words, overrides, steps = INTEGRATORS[name]
    result, found = split(tmp_path, words, overrides, steps, host=host)
    assert result.outcome == "finished", result.reason
    whole = opensees(tmp_path / "whole.npy", *words)
    assert np.abs(found - whole).max() < 1e-8 * np.abs(whole).max()
