# SPDX-License-Identifier: Apache-2.0
"""Tests of the warm-up: a copy at rest runs the code of a step without effect on the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.warm_up import command_warm_up, step_warm_up
from rths_nodes.recording.run import Collector

BRIEF = ("duration=0.25", "soft_start=null")


class WarmedLoop(Loop):
    """Reference loop with a warm-up before every step."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly)
        self._codec = assembly.codec()
        self._warm_ups = step_warm_up(assembly), command_warm_up(assembly)

    def _answer(self, measured: Measurement) -> Command | None:
        if measured.sample % self.scenario.samples_per_step == 0:
            for warm_up in self._warm_ups:
                warm_up(self._codec)
        return super()._answer(measured)


def numbers(loop: Loop) -> dict[str, bytes]:
    collector = Collector(loop.scenario, loop.assembly.names)
    outcome = loop.run([collector])
    return {name: values.tobytes() for name, values in collector.run(metrics=outcome.metrics).arrays().items()}


def cases() -> Iterator[Any]:
    """Every scenario and case; of cases that differ only in numbers, all but the last are marked ``soak``."""
    for name in files.shipped():
        yield pytest.param(name, "")
        labelled = files.load(name).cases
        last = {str(kinds(case.set)): label for label, case in labelled.items()}
        for label, case in labelled.items():
            soak = last[str(kinds(case.set))] != label
            yield pytest.param(name, label, marks=[pytest.mark.soak] if soak else [])


def kinds(value: Any) -> Any:
    """Keys and texts of ``value``, without its numbers."""
    if isinstance(value, Mapping):
        return {key: kinds(inner) for key, inner in sorted(value.items())}
    return value if isinstance(value, str) else None


@pytest.mark.parametrize(("name", "case"), cases())
def test_warm_up_changes_no_bit(name: str, case: str) -> None:
    rig = files.load(name, BRIEF, case)
    assert numbers(WarmedLoop(Assembly(rig))) == numbers(Loop(Assembly(rig)))


@pytest.mark.parametrize("name", files.shipped())
def test_copy_for_warm_up_stays_at_rest(name: str) -> None:
    rig = files.load(name, BRIEF)
    assembly = Assembly(rig)
    codec = assembly.codec()
    step, command = step_warm_up(assembly), command_warm_up(assembly)
    prescribed = rig.structure is None
    for number in range(1, rig.steps + 1):
        target = step(codec)
        assert target.step == number
        for motion in (target.displacement, target.velocity, target.acceleration):
            assert np.isfinite(motion).all() if prescribed else not motion.any()
        command(codec)
    assert step(codec) is None
    command(codec)
