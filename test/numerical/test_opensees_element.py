# SPDX-License-Identifier: Apache-2.0
"""The element genericClient as a user writes it into a model of his own: what is observed, what is damped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import beside, free_port, skip_without_opensees, wait_for_listener

from rths_nodes.app import hosts

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STEPS = 100
BETA_K = 0.01
"""s, of ops.rayleigh."""

MODEL = f"""
import json
import sys

import openseespy.opensees as ops

sys.path.insert(0, {str(FOLDER)!r})
import frame


def spring(floor, stiffness):
    ops.uniaxialMaterial("Elastic", floor, stiffness)
    ops.element("zeroLength", floor, floor - 1, floor, "-mat", floor, "-dir", 1, "-doRayleigh", 1)


def model(rig):
    frame.spring = spring
    frame.model(rig)
    ops.rayleigh(0.3, 0.0, BETA_K, 0.0)
    ops.recorder("Node", "-file", OUT, "-precision", 17, "-node", 1, 2, 3, "-dof", 1, "disp")


if __name__ == "__main__":
    words = json.loads(sys.argv[1])
    model((lambda: ops.element("genericClient", 1, *words)) if words else (lambda: spring(1, frame.STORIES[0])))
    frame.earthquake({STEPS}, ["NewmarkExplicit", 0.5], 0)
    ops.wipe()
"""


class Own:
    """A model in a file of its own, its words for the rig apart; ``moves`` are those of its last run."""

    def __init__(self, folder: Path, beta_k: float = 0.0) -> None:
        self.path, self._out = folder / "own.py", folder / "moves.txt"
        self.path.write_text(f"BETA_K, OUT = {beta_k}, {str(self._out)!r}\n" + MODEL)

    def moves(self) -> Any:
        """Displacements of the floors ``(steps, 3)`` m."""
        return np.loadtxt(self._out)

    def alone(self, *words: Any) -> Any:
        """All of it in OpenSees; with the ``words`` of the element as a client."""
        command = [sys.executable, str(self.path), json.dumps(words)]
        subprocess.run(command, check=True, capture_output=True, timeout=60.0)
        return self.moves()

    def against_remote(self, *words: Any, overrides: tuple[str, ...] = ()) -> Any:
        """The result of the test to which it connects."""
        port = free_port()

        def client() -> None:
            wait_for_listener(port)
            self.alone(*words, "-server", port, "127.0.0.1", "-noRayleigh")

        given = [f"integrator.port={port}", f"duration={0.01 * STEPS}", *overrides]
        with beside(client):
            result = hosts.run(FOLDER / "frame.yaml", given, keep=True)
        assert result.outcome == "finished", result.reason
        return result


@pytest.fixture(scope="module", autouse=True)
def _opensees() -> None:
    skip_without_opensees()


def test_nodes_that_the_users_element_has_behind_those_of_the_axes_are_observed(tmp_path: Path) -> None:
    own = Own(tmp_path)
    words = ("-node", 1, 3, 2, "-dof", 1, "-dof", 1, "-dof", 1)
    run = own.against_remote(*words, overrides=("observed=[roof, floor_2]",)).read()
    static = run.integrator["static_stage"]["displacement"]
    found, moves = (static + run.dof_displacement)[1:], own.moves()[:, [0, 2, 1]]
    assert np.abs(found[: len(moves)] - moves[: len(found)]).max() < 1e-12 * np.abs(moves).max()
    whole = own.alone()[:, [0, 2, 1]]
    assert np.abs(found - whole).max() < 1e-8 * np.abs(whole).max()


@pytest.mark.parametrize("who", ["opensees", "remote"])
def test_rayleigh_damping_of_the_replaced_element_is_what_is_declared_of_it(who: str, tmp_path: Path) -> None:
    own = Own(tmp_path, BETA_K)
    whole = own.alone()
    apart = []
    for damping in (0.0, BETA_K * 1.0e6):
        declared = f"integrator.experimental_damping=[[{damping}]]"
        if who == "remote":
            own.against_remote("-node", 1, "-dof", 1, overrides=(declared,))
            found = own.moves()
        else:
            given = [f"integrator.model={own.path}", f"duration={0.01 * STEPS}", declared]
            run = hosts.run(FOLDER / "frame_started.yaml", given, keep=True).read()
            found = run.integrator["static_stage"]["displacement"] + run.dof_displacement[1:]
        width = found.shape[1]
        apart.append(np.abs(found - whole[:, :width]).max() / np.abs(whole[:, :width]).max())
    assert apart[0] > 0.02, "not declared, it is lost"
    assert apart[1] < 1e-8
