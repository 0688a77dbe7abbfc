# SPDX-License-Identifier: Apache-2.0
"""Tests of integrators that run in another process: equal results, no blocking, clean-up."""

from __future__ import annotations

import os
import pickle
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from loop_parts import simulate
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import component, number, params
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import FLAG_TRIPPED, Array, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.supervision.states import State

CHEN_RICLES = "{type: cr, equivalent_stiffness: 7.6e6, equivalent_damping: 0.64e6}"
LOCAL = ["duration=0.5", f"integrator={CHEN_RICLES}"]
REMOTE = ["duration=0.5", f"integrator={{type: mine, model: {CHEN_RICLES}}}"]
SLOW = ["integrator.delay=0.2"]
STATE = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
PROGRAM = f"""
import pickle, sys, time

delay, cls, *task = pickle.load(sys.stdin.buffer)
integrator = cls(*task)
while True:
    pickle.dump({{name: getattr(integrator, name) for name in {STATE}}}, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    try:
        force = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    if force is None:
        integrator.reset()
    else:
        time.sleep(delay)
        integrator.step(force)
"""
"""The first request builds the integrator, None resets it, a force is one step; each is answered by its state."""


class Remote(Integrator):
    """Runs the integrator ``model`` in a separate process. Raises EOFError if the process has died."""

    external = True
    alive: ClassVar[list[subprocess.Popen[bytes]]] = []
    """Processes of all open integrators."""

    @params
    class Params:
        model: Any = component("integrator", "integrator that the process runs")
        delay: float = number("duration of a step", "s", 0.0, at_least=0.0)

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        cls = registry.class_of("integrator", params.model)
        self._task = (params.delay, cls, params.model, structure, external_force, dt)
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
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
            with self._process as process:  # closing its pipes ends the process
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
def _registered(register: Callable[..., None]) -> Iterator[None]:
    """Register the integrator as ``mine``; afterwards no process is left."""
    Remote.alive.clear()
    register("integrator", Remote)
    yield
    assert Remote.alive == []


def scenario(*overrides: str) -> Any:
    return files.load("chen_ricles_2010", overrides)


def measurement(sample: int, force: float = 0.0, flags: int = 0) -> Measurement:
    return Measurement(sample, np.zeros(1), np.array([force]), np.zeros(1), flags=flags)


def opened(*overrides: str) -> NumericalStage:
    stage = NumericalStage(Assembly(scenario(*overrides)))
    stage.open()
    return stage


def test_remote_and_local_loops_agree_bit_for_bit() -> None:
    local, expected = simulate("chen_ricles_2010", *LOCAL)
    remote, run = simulate("chen_ricles_2010", *REMOTE)
    assert (remote.metrics, remote.compensator) == (local.metrics, local.compensator)
    for name in ("displacement", "force", "command"):
        np.testing.assert_array_equal(getattr(run, name), getattr(expected, name))


def test_second_instance_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("integrator.type", "mine")):
        Assembly(scenario(*REMOTE)).fresh("integrator")


def test_constructor_starts_no_process() -> None:
    Loop(Assembly(scenario(*REMOTE)))
    assert Remote.alive == []


def test_process_ends_with_failed_loop() -> None:
    loop = Loop(Assembly(scenario(*REMOTE)))

    with pytest.raises(ZeroDivisionError):
        loop.run(progress=lambda _: 1 // 0)
    assert Remote.alive == []


def test_stage_does_not_wait_for_slow_answer() -> None:
    stage, local = opened(*REMOTE, "integrator.delay=1"), opened(*LOCAL)
    began = time.monotonic()
    assert stage.next(measurement(0, 1e3)) is None
    assert stage.answer() is None
    assert time.monotonic() - began < 1.0
    assert stage.pending
    while (target := stage.answer()) is None:
        time.sleep(0.01)
    expected = local.next(measurement(0, 1e3))
    assert expected is not None
    for name in ("step", *STATE):
        np.testing.assert_array_equal(getattr(target, name), getattr(expected, name))
    assert not stage.pending
    assert stage.answer() is None, "each answer is returned once"
    stage.close()


def test_answer_waits_on_request() -> None:
    stage = opened(*REMOTE, *SLOW)
    assert stage.next(measurement(0)) is None
    target = stage.answer(wait=True)
    assert target is not None
    assert target.step == 1
    stage.close()


def test_trip_clears_pending_answer() -> None:
    stage = opened(*REMOTE, *SLOW)
    stage.next(measurement(0))
    assert stage.next(measurement(1, flags=FLAG_TRIPPED)) is None
    assert not stage.pending
    stage.close()


def test_no_step_begins_while_a_target_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a trip, a client received a force that it had not requested, for a displacement not yet sent."""
    stage = opened(*REMOTE, *SLOW)
    stage.next(measurement(0))
    begun: list[Any] = []
    monkeypatch.setattr(stage.integrator, "begin", begun.append)
    assert stage.next(measurement(stage.substeps, 1e3)) is None
    assert stage.pending
    assert begun == []
    stage.close()


def test_close_is_idempotent() -> None:
    stage = NumericalStage(Assembly(scenario(*REMOTE)))
    stage.close()
    stage.open()
    stage.close()
    stage.close()


def test_dead_process_trips_the_loop() -> None:
    loop = Loop(Assembly(scenario(*REMOTE)))

    def kill(sample: int) -> None:
        Remote.alive[0].kill()
        Remote.alive[0].wait()

    outcome = loop.run(progress=kill)
    assert outcome.state is State.TRIPPED
    assert outcome.failed
    assert re.search(r"integrator.type = 'mine': \S+: in \w+: (EOFError|BrokenPipeError)", outcome.reason)


def test_nodes_and_local_loop_agree() -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    result = hosts.run("chen_ricles_2010", REMOTE, host="composed")
    assert result.outcome == "finished", result.reason
    assert result.metrics == hosts.run("chen_ricles_2010", LOCAL).metrics


def test_late_answers_are_bridged_in_real_time(patience: list[str]) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    slow = [*REMOTE, *patience, "integrator.delay=0.012"]
    result = hosts.run("chen_ricles_2010", slow, host="composed", pace="realtime")
    assert result.outcome == "finished", result.reason
    assert result.timing["bridged"] > 100
