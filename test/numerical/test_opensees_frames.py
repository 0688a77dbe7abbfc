# SPDX-License-Identifier: Apache-2.0
"""Own yielding frames against the same models in OpenSees: Steel01, BoucWen, and a column that leans."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import skip_without_opensees

from rths_nodes.core.samples import Array
from rths_nodes.numerical.structures.damping import Rayleigh

MODEL = Path(__file__).with_name("opensees_frame.py")
MASSES = [30e3, 30e3, 30e3]
STIFFNESSES = [60e6, 50e6, 40e6]
YIELDS = [120e3, 90e3, 60e3]
RATIO = 0.05
LOSSES = {"strength_degradation": 0.02, "stiffness_degradation": 0.03}
DAMPING = {"type": "rayleigh", "ratios": [0.02, 0.02]}
EXPLICIT: dict[str, Any] = {"integrator": ["NewmarkExplicit", 0.5], "algorithm": "Linear"}
SMALL = 1e-3
"""Of the peak: what two programs may differ by with equal steps."""


@pytest.fixture(scope="module", autouse=True)
def _opensees() -> None:
    skip_without_opensees()


class Both:
    """One frame of as many stories as there are restoring forces, in both programs."""

    def __init__(self, make: Callable[..., Any], folder: Path) -> None:
        self._make, self._folder = make, folder
        self._motion = make("ground_motion", "record", 1, record="elcentro_1940_ns", scale=0.6)

    def frame(self, laws: Sequence[dict[str, Any]], **more: Any) -> Any:
        n = len(laws)
        data = {"masses": MASSES[:n], "stiffnesses": STIFFNESSES[:n], "damping": DAMPING}
        forces = {f"story_{story + 1}": law for story, law in enumerate(laws)}
        return self._make("structure", "shear_frame", **data, restoring_forces=forces, **more)

    def ground(self, dt: float, duration: float) -> Array:
        found: Array = self._motion.sample(dt * np.arange(round(duration / dt) + 1))
        return found

    def own(self, frame: Any, dt: float, duration: float, integrator: str = "explicit_newmark") -> Array:
        """Displacements ``(steps + 1, n)`` m."""
        load = np.outer(-self.ground(dt, duration), frame.mass @ frame.influence)
        solver = self._make("integrator", integrator, frame, load, dt)
        history, nothing = [solver.displacement.copy()], np.zeros(len(frame.names))
        for _ in load[1:]:
            solver.step(nothing)
            history.append(solver.displacement.copy())
        return np.array(history)

    def opensees(self, materials: Sequence[Any], dt: float, duration: float, **more: Any) -> Array:
        """The same in OpenSees, damped as the frame without gravity; ``more`` is of ``opensees_frame.py``."""
        n = len(materials)
        elastic = self.frame([{"type": "linear"}] * n)
        damping = Rayleigh(Rayleigh.Params()).coefficients(elastic.mass, elastic.stiffness)
        model = {
            "masses": MASSES[:n],
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
        found: Array = np.load(out)
        return found


@pytest.fixture
def both(make: Callable[..., Any], tmp_path: Path) -> Both:
    return Both(make, tmp_path)


def steel(story: int) -> list[Any]:
    return ["Steel01", YIELDS[story], STIFFNESSES[story], RATIO]


def bilinear(story: int) -> dict[str, Any]:
    return {"type": "bilinear", "yield_force": YIELDS[story], "post_yield_ratio": RATIO}


def apart(one: Array, other: Array) -> float:
    """Largest difference relative to the peak."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def ductility(history: Array) -> Array:
    """Largest drift of each story over its drift at yielding."""
    n = history.shape[1]
    drifts = np.abs(np.diff(history, axis=1, prepend=0.0)).max(axis=0)
    return np.asarray(drifts * np.divide(STIFFNESSES[:n], YIELDS[:n]))


@pytest.mark.parametrize("dt", [0.01, 0.0025])
def test_a_bilinear_frame_is_steel01_with_equal_steps(both: Both, dt: float) -> None:
    """The same explicit method, the same force: the same numbers."""
    own = both.own(both.frame([bilinear(story) for story in range(3)]), dt, 8.0)
    assert (ductility(own) > 1.9).all()
    assert apart(own, both.opensees([steel(story) for story in range(3)], dt, 8.0, **EXPLICIT)) < 1e-9


@pytest.mark.parametrize(
    "losses",
    [pytest.param({}, id="bouc_wen"), pytest.param(LOSSES, id="degrading", marks=pytest.mark.soak)],
)
def test_a_bouc_wen_frame_is_that_of_opensees_as_the_step_shrinks(both: Both, losses: dict[str, float]) -> None:
    """OpenSees follows z by backward Euler, of first order: its extrapolation meets ours."""
    bends = [force / stiffness for force, stiffness in zip(YIELDS[:2], STIFFNESSES, strict=False)]
    kind = "degrading_bouc_wen" if losses else "bouc_wen"
    laws = [{"type": kind, "yield_displacement": bend, "post_yield_ratio": RATIO, **losses} for bend in bends]
    materials = []
    for bend, stiffness in zip(bends, STIFFNESSES, strict=False):
        energy = (1.0 - RATIO) * stiffness * bend**2
        lost = [loss / energy for loss in losses.values()] or [0.0, 0.0]
        shape = 0.5 / bend**2
        materials.append(["BoucWen", RATIO, stiffness, 2.0, shape, shape, 1.0, 0.0, *lost, 1e-12, 50])
    frame, found = both.frame(laws), {}
    for rate in (512, 1024, 16384):
        found[rate] = both.own(frame, 1.0 / rate, 3.0), both.opensees(materials, 1.0 / rate, 3.0, **EXPLICIT)
    assert (ductility(found[1024][0]) > 1.4).all()
    errors = [apart(*pair) for pair in found.values()]
    assert errors[2] < SMALL
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(16.0, rel=0.1)
    assert apart(found[512][0], 2.0 * found[1024][1][::2] - found[512][1]) < 2.0 * SMALL


def test_p_delta_is_a_column_of_bars_that_leans_in_opensees(both: Both) -> None:
    """Corotational bars under the weights of the floors, Newmark's method: both converge to one response."""
    heights, weights = [3.5, 3.0, 3.0], [2.4e6, 2.4e6, 2.4e6]
    loads = np.cumsum(weights[::-1])[::-1].tolist()
    laws = [bilinear(story) for story in range(3)]
    leaning = both.frame(laws, gravity_loads=loads, story_heights=heights)
    errors = []
    for rate in (256, 512, 1024):
        own = both.own(leaning, 1.0 / rate, 8.0, "cr")
        implicit = {"integrator": ["Newmark", 0.5, 0.25], "algorithm": "Newton"}
        more = {"weights": weights, "story_heights": heights, **implicit}
        errors.append(apart(own, both.opensees([steel(story) for story in range(3)], 1.0 / rate, 8.0, **more)))
    assert apart(both.own(both.frame(laws), 1.0 / 1024, 8.0, "cr"), own) > 0.1  # gravity matters
    assert errors[2] < SMALL
    assert errors[0] > 1.8 * errors[1] > 1.8**2 * errors[2]
