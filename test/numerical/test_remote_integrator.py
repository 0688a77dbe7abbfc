# SPDX-License-Identifier: Apache-2.0
"""An integrator that another process answers: same results to the bit, and nobody waits who cannot."""

from __future__ import annotations

import os
import pickle
import re
import select
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, number, params
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import FLAG_TRIPPED, Array, Measurement, Target
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.supervision.states import State

CHEN_RICLES = "{type: cr, equivalent_stiffness: 7.6e6, equivalent_damping: 0.64e6}"
LOCAL = ["duration=0.5", f"integrator={CHEN_RICLES}"]
REMOTE = ["duration=0.5", f"integrator={{type: elsewhere, model: {CHEN_RICLES}}}"]
SLOW = ["integrator.delay=0.2"]
PROGRAM = Path(__file__).with_name("integrator_process.py")


class Remote(Integrator):
    """Runs the integrator ``model`` in a process of its own. Raises EOFError where that has died."""

    external = True
    alive: ClassVar[list[subprocess.Popen[bytes]]] = []
    """The processes of all integrators that are open."""

    @params
    class Params:
        model: Any = component("integrator", "what the process computes")
        delay: float = number("how long it takes for a step", "s", 0.0, at_least=0.0)

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        cls = registry.class_of("integrator", params.model)
        self._task = (params.delay, cls, params.model, structure, external_force, dt)
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        path = os.pathsep.join(sys.path)
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": path},
        )
        self.alive.append(self._process)
        self._send(self._task)
        self._receive()

    def begin(self, experimental_force: Array) -> None:
        self._send(experimental_force)

    def ready(self) -> bool:
        assert self._process is not None
        return bool(select.select([self._process.stdout], [], [], 0.0)[0])

    def step(self, experimental_force: Array) -> None:
        self._receive()

    def reset(self) -> None:
        self._send(None)
        self._receive()

    def close(self) -> None:
        if self._process is not None:
            self.alive.remove(self._process)
            with self._process as process:  # closes its pipes, which ends it, and waits for it
                assert process.stdin is not None
            self._process = None

    def _send(self, request: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(pickle.dumps(request))

    def _receive(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for name, value in pickle.load(self._process.stdout).items():
            setattr(self, name, value)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As another package would add it. In the end no process is left."""
    Remote.alive.clear()
    module = types.ModuleType("some_laboratory")
    module.Remote = Remote  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_laboratory", module)
    points = EntryPoints([EntryPoint("elsewhere", "some_laboratory:Remote", "rths_nodes.integrator")])
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    registry._table.cache_clear()
    registry._load.cache_clear()
    yield
    monkeypatch.undo()
    registry._table.cache_clear()
    registry._load.cache_clear()
    assert Remote.alive == []


def scenario(*overrides: str) -> Any:
    return files.load("chen_ricles_2010", overrides)


def measurement(sample: int, force: float = 0.0, flags: int = 0) -> Measurement:
    return Measurement(sample, np.zeros(1), np.array([force]), np.zeros(1), flags=flags)


def opened(*overrides: str) -> NumericalStage:
    stage = NumericalStage(Assembly(scenario(*overrides)))
    stage.open()
    return stage


def same(one: Target, other: Target) -> bool:
    names = ("step", "displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_the_loop_is_the_same_to_the_bit(simulate: Any) -> None:
    (local, expected), (remote, found) = (
        simulate("chen_ricles_2010", *LOCAL),
        simulate("chen_ricles_2010", *REMOTE),
    )
    assert remote.metrics == local.metrics
    assert remote.compensator == local.compensator
    for name in ("displacement", "force", "command"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_there_is_only_one_of_it() -> None:
    with pytest.raises(ConfigError, match=naming("integrator.type", "elsewhere")):
        Assembly(scenario(*REMOTE)).fresh("integrator")


def test_a_constructor_starts_nothing() -> None:
    Loop(Assembly(scenario(*REMOTE)))
    assert Remote.alive == []


def test_the_process_ends_with_a_test_that_fails() -> None:
    loop = Loop(Assembly(scenario(*REMOTE)))

    def surprise(sample: int) -> None:
        raise ZeroDivisionError(sample)

    with pytest.raises(ZeroDivisionError):
        loop.run(progress=surprise)
    assert Remote.alive == []


def test_the_stage_does_not_wait_for_a_slow_answer() -> None:
    stage, local = opened(*REMOTE, "integrator.delay=1"), opened(*LOCAL)
    began = time.monotonic()
    assert stage.next(measurement(0, 1e3)) is None
    assert stage.answer() is None
    assert time.monotonic() - began < 1.0
    assert stage.pending
    while (found := stage.answer()) is None:
        time.sleep(0.01)
    expected = local.next(measurement(0, 1e3))
    assert expected is not None
    assert same(found, expected)
    assert not stage.pending
    assert stage.answer() is None, "it comes once"
    stage.close()


def test_a_host_that_can_wait_does() -> None:
    stage = opened(*REMOTE, *SLOW)
    assert stage.next(measurement(0)) is None
    found = stage.answer(wait=True)
    assert found is not None
    assert found.step == 1
    stage.close()


def test_after_a_trip_nothing_is_pending() -> None:
    stage = opened(*REMOTE, *SLOW)
    stage.next(measurement(0))
    assert stage.next(measurement(1, flags=FLAG_TRIPPED)) is None
    assert not stage.pending
    stage.close()


def test_it_is_closed_twice_or_unopened() -> None:
    stage = NumericalStage(Assembly(scenario(*REMOTE)))
    stage.close()
    stage.open()
    stage.close()
    stage.close()


def test_a_dead_process_ends_the_test() -> None:
    loop = Loop(Assembly(scenario(*REMOTE)))

    def kill(sample: int) -> None:
        Remote.alive[0].kill()
        Remote.alive[0].wait()

    outcome = loop.run(progress=kill)
    assert outcome.state is State.TRIPPED
    assert outcome.failed
    assert re.search(r"integrator.type = 'elsewhere': \S+: in \w+: (EOFError|BrokenPipeError)", outcome.reason)


def test_its_node_gives_the_same_targets() -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    found = hosts.run("chen_ricles_2010", REMOTE, host="composed")
    assert found.outcome == "finished", found.reason
    assert found.metrics == hosts.run("chen_ricles_2010", LOCAL).metrics


def test_in_real_time_the_loop_goes_on_while_it_works(patience: list[str]) -> None:
    """An answer takes longer than a step: its Target is bridged, and nothing else waits for it."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    slow = [*REMOTE, *patience, "integrator.delay=0.012"]
    found = hosts.run("chen_ricles_2010", slow, host="composed", pace="realtime")
    assert found.outcome == "finished", found.reason
    assert found.timing["bridged"] > 100
