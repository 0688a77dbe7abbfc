# SPDX-License-Identifier: Apache-2.0
"""A user's script passes ``mypy --strict``; a wrong argument does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import rths_nodes
from rths_nodes.core import Kernel, no_state, number, params


def step(
    k: tuple[float], s: tuple[()], x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[tuple[()], float]:
    (delay,) = k
    return s, x + delay * v


kernel = Kernel(lambda params, dt: (0.0273,), no_state, step)
scenario = rths_nodes.load("chen_ricles_2010", {"duration": 2}, compensator=kernel)
run = rths_nodes.run(scenario, ["seed=2"], engine="kernels")
error: float = abs(run.target - run.displacement).max()
again: rths_nodes.Run = rths_nodes.read("runs/mine")
again.to_mat("mine.mat")
rths_nodes.overlay({"measured": again, "simulated": run}, "force").set_title("forces")
delay: float = rths_nodes.estimate(again)["story_1"].loading.delay
prediction = rths_nodes.estimate(again, set={"compensator.type": "none"})
worst: float = prediction.indices["predicted"]["story_1"]["max_error_m"]
lag: float = rths_nodes.identify("rths_benchmark_2020", noise={"duration": 10.0}).delay
inverse = rths_nodes.identify("rths_benchmark_2020", purpose="identified_inverse", out="inverse.yaml")
coefficients: float = inverse.coefficients.max()
levels = {"compensator.alpha_es": {"list": [15, 29]}}
study = rths_nodes.study(scenario="chen_ricles_2010", set={"duration": 1.0}, factors=levels, plants=2)
study.plot("max_error_mm").set_title("errors")
best = rths_nodes.tune(scenario, parameters={"compensator.alpha_es": (10.0, 40.0)}, evaluations=8)
values: dict[str, float] = dict(best.values)
board = rths_nodes.scoreboard("rths_benchmark_2020", laws=["none", kernel], plants=0)
stable: bool = rths_nodes.stability(scenario).stable
motion = {"type": "predefined", "history": {"time": run.time, "axis_1": run.displacement[:, 0]}}
rths_nodes.run("predefined_sine", integrator=motion, duration=1.0)
"""


@pytest.mark.timeout(600)
def test_a_script_of_a_user_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed here")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(SCRIPT.replace('engine="kernels"', "duration=[2.0]"))
    config = f"--config-file={ROOT / 'pyproject.toml'}"
    words = ["--strict", "--follow-imports=silent", config, "script.py", "wrong.py"]
    command = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("wrong.py")
    assert "duration" in errors[0]


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "rths_nodes" / "py.typed").is_file()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
