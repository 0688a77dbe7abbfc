# SPDX-License-Identifier: Apache-2.0
"""Tests of yielding frames against the same models in OpenSees: Steel01, BoucWen, and a leaning column."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make

from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.damping import Rayleigh

pytestmark = pytest.mark.usefixtures("opensees")

MODEL = Path(__file__).with_name("opensees_frame.py")
MASSES = [30e3, 30e3, 30e3]
STIFFNESSES = [60e6, 50e6, 40e6]
YIELDS = [120e3, 90e3, 60e3]
RATIO = 0.05
LOSSES = {"strength_degradation": 0.02, "stiffness_degradation": 0.03}
DAMPING = {"type": "rayleigh", "ratios": [0.02, 0.02]}
EXPLICIT: dict[str, Any] = {"integrator": ["NewmarkExplicit", 0.5], "algorithm": "Linear"}
SMALL = 1e-3
"""Largest difference of both programs with equal steps, relative to the peak."""


class Both:
    """One frame in both programs, with a story per restoring force."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._motion = make("ground_motion", "record", 1, record="elcentro_1940_ns", scale=0.6)

    def frame(self, laws: Sequence[dict[str, Any]], **more: Any) -> Any:
        n = len(laws)
        data = {"masses": MASSES[:n], "stiffnesses": STIFFNESSES[:n], "damping": DAMPING}
        forces = {f"story_{story + 1}": law for story, law in enumerate(laws)}
        return make("structure", "shear_frame", **data, restoring_forces=forces, **more)

    def ground(self, dt: float, duration: float) -> Array:
        return np.asarray(self._motion.sample(dt * np.arange(round(duration / dt) + 1)))

    def package(self, frame: Any, dt: float, duration: float, integrator: str = "explicit_newmark") -> Array:
        """Displacements ``(steps + 1, n)`` m."""
        load = np.outer(-self.ground(dt, duration), frame.mass @ frame.influence)
        solver = make("integrator", integrator, frame, load, dt)
        history = [solver.displacement.copy()]
        for _ in load[1:]:
            solver.step(np.zeros(len(frame.names)))
            history.append(solver.displacement.copy())
        return np.array(history)

    def opensees(self, materials: Sequence[Any], dt: float, duration: float, **more: Any) -> Array:
        """Displacements by OpenSees, damped as the frame without gravity; ``more`` as in ``opensees_frame.py``."""
        elastic = self.frame([{"type": "linear"}] * len(materials))
        damping = Rayleigh(Rayleigh.Params()).coefficients(elastic.mass, elastic.stiffness)
        model = {
            "masses": MASSES[: len(materials)],
            "materials": materials,
            "damping": damping,
            "step": dt,
            "acceleration": self.ground(dt, duration).tolist(),
            **more,
        }
        text, out = self._folder / "model.json", self._folder / "out.npy"
        text.write_text(json.dumps(model))
        done = subprocess.run([sys.executable, MODEL, text, out], capture_output=True, text=True, timeout=120.0)
        assert done.returncode == 0, done.stderr
        return np.asarray(np.load(out))


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


def steel(story: int) -> list[Any]:
    return ["Steel01", YIELDS[story], STIFFNESSES[story], RATIO]


def bilinear(story: int) -> dict[str, Any]:
    return {"type": "bilinear", "yield_force": YIELDS[story], "post_yield_ratio": RATIO}


def difference(values: Array, reference: Array) -> float:
    """Largest difference relative to the peak."""
    return float(np.abs(values - reference).max() / np.abs(reference).max())


def ductility(history: Array) -> Array:
    """Largest drift of each story, relative to its yield drift."""
    n = history.shape[1]
    drifts = np.abs(np.diff(history, axis=1, prepend=0.0)).max(axis=0)
    return np.asarray(drifts * np.divide(STIFFNESSES[:n], YIELDS[:n]))


@pytest.mark.parametrize("dt", [0.01, 0.0025])
def test_bilinear_frame_matches_steel01(both: Both, dt: float) -> None:
    history = both.package(both.frame([bilinear(story) for story in range(3)]), dt, 8.0)
    assert (ductility(history) > 1.9).all()
    assert difference(history, both.opensees([steel(story) for story in range(3)], dt, 8.0, **EXPLICIT)) < 1e-9


@pytest.mark.parametrize(
    "losses",
    [pytest.param({}, id="bouc_wen"), pytest.param(LOSSES, id="degrading", marks=pytest.mark.soak)],
)
def test_bouc_wen_frame_converges_to_opensees(both: Both, losses: dict[str, float]) -> None:
    """OpenSees integrates z by backward Euler, of first order; its extrapolation matches the package."""
    bends = [force / stiffness for force, stiffness in zip(YIELDS[:2], STIFFNESSES, strict=False)]
    kind = "degrading_bouc_wen" if losses else "bouc_wen"
    laws = [{"type": kind, "yield_displacement": bend, "post_yield_ratio": RATIO, **losses} for bend in bends]
    materials = []
    for bend, stiffness in zip(bends, STIFFNESSES, strict=False):
        energy = (1.0 - RATIO) * stiffness * bend**2
        rates = [loss / energy for loss in losses.values()] or [0.0, 0.0]
        shape = 0.5 / bend**2
        materials.append(["BoucWen", RATIO, stiffness, 2.0, shape, shape, 1.0, 0.0, *rates, 1e-12, 50])
    frame, pairs = both.frame(laws), {}
    for rate in (512, 1024, 16384):
        pairs[rate] = both.package(frame, 1.0 / rate, 3.0), both.opensees(materials, 1.0 / rate, 3.0, **EXPLICIT)
    assert (ductility(pairs[1024][0]) > 1.4).all()
    errors = [difference(*pair) for pair in pairs.values()]
    assert errors[2] < SMALL
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(16.0, rel=0.1)
    assert difference(pairs[512][0], 2.0 * pairs[1024][1][::2] - pairs[512][1]) < 2.0 * SMALL


def test_p_delta_matches_leaning_column_of_opensees(both: Both) -> None:
    """Corotational bars under the weights of the floors, and Newmark's method, converge to the same response."""
    heights, weights = [3.5, 3.0, 3.0], [2.4e6, 2.4e6, 2.4e6]
    loads = np.cumsum(weights[::-1])[::-1].tolist()
    laws = [bilinear(story) for story in range(3)]
    leaning = both.frame(laws, gravity_loads=loads, story_heights=heights)
    errors = []
    more = {"weights": weights, "story_heights": heights}
    more |= {"integrator": ["Newmark", 0.5, 0.25], "algorithm": "Newton"}
    for rate in (256, 512, 1024):
        history = both.package(leaning, 1.0 / rate, 8.0, "cr")
        reference = both.opensees([steel(story) for story in range(3)], 1.0 / rate, 8.0, **more)
        errors.append(difference(history, reference))
    assert difference(both.package(both.frame(laws), 1.0 / 1024, 8.0, "cr"), history) > 0.1  # gravity matters
    assert errors[2] < SMALL
    assert errors[0] > 1.8 * errors[1] > 1.8**2 * errors[2]
