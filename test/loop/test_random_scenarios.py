# SPDX-License-Identifier: Apache-2.0
"""Random legal scenarios: the loop in C has the bits of the embedded loop, whatever it consists of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fresh_library import forget
from random_scenarios import drawn

from rths_nodes.app import hosts

Different = Callable[..., list[str]]
COMPILERS = ("gcc", "clang")
DRAWN, BATCH = 500, 10
"""Scenarios of make soak, and of one test there."""


def agrees(seed: int, different: Different) -> None:
    scenario, plain = drawn(seed)
    computed = hosts.run(scenario, engine="compiled")
    assert (computed.engine, computed.notes) == ("compiled", []), seed
    assert different(computed.read(), plain.read()) == [], seed


@pytest.mark.parametrize("seed", range(10))
def test_a_random_scenario_has_the_same_bits_in_c(seed: int, different: Different) -> None:
    agrees(seed, different)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("first", range(0, DRAWN, BATCH))
def test_random_scenarios_have_the_same_bits_with_two_compilers(
    first: int, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: Different
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget(monkeypatch)
    for seed in range(first, first + BATCH):
        agrees(seed, different)


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_force_lead_begins_with_the_forces_of_the_soft_start(substeps: int, different: Different) -> None:
    changes = ["duration=1", f"substeps={substeps}", "force_lead=0.001", "ground_motion.type=none"]
    changes += ["soft_start={amplitude: 0.002, frequency: 3.0, rise_time: 0.2, duration: 0.6, fall_time: 0.2}"]
    plain = hosts.run("three_independent_axes", changes, engine="python")
    for engine in ("kernels", "compiled"):
        assert different(hosts.run("three_independent_axes", changes, engine=engine).read(), plain.read()) == []
