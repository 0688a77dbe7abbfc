# SPDX-License-Identifier: Apache-2.0
"""Pinned texts on which a person acts: prompts that lead to motion, and reasons of trips and safe stops.

Two people read a text before it changes here. To pin another text, add a row: a name, a callable that makes the
program produce the text, and the text. Other tests compare the parts of a message (``helpers/messages.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rig_runner import conducted, positioned

from rths_nodes.analysis.report.document import NO_SAFETY
from rths_nodes.app import hosts
from rths_nodes.app.commands.procedures import AtTerminal
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, arms
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.datagrams import REASONS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.bridges import BridgeCount, BridgeParams, Pause
from rths_nodes.loop.supervision.heartbeat import Heartbeat, HeartbeatParams
from rths_nodes.loop.supervision.hops import IN_A_ROW, TakenAtOnce
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.monitor import Monitor, MonitorParams
from rths_nodes.procedure.following import ANOTHER_MODE, DROPPED, command_mismatch, rejected_command
from rths_nodes.procedure.session import ACTS, MOTIONS

Row = tuple[Callable[[], object], object]
DT = 1.0 / 1024.0
LIMITS = {"stroke": 0.25, "velocity": 0.76, "force": 1.7e6}


def check(**data: float) -> LimitCheck:
    return LimitCheck({"a": from_data(Limits, LIMITS | data)}, DT)


def command_breach(value: float, previous: float = 0.0, target: float = 0.0, **data: float) -> str:
    sent = np.array([previous])
    return check(**data).command(Command(1, np.array([target]), np.array([value])), sent)


def measurement_breach(displacement: float, force: float = 0.0, target: float | None = None, **data: float) -> str:
    aim = displacement if target is None else target
    sample = Measurement(1, np.array([displacement]), np.array([force]), np.zeros(1))
    return check(**data).measurement(sample, np.array([aim]))


def bridge_breach(samples: int, missing: str, **params: Any) -> str:
    count = BridgeCount(from_data(BridgeParams, params), DT)
    for _ in range(samples):
        count.follow(True, missing)
    return count.breach


def overrun_breach(samples: int, every: int) -> str:
    """Breach by ``samples`` late samples, one in ``every`` samples."""
    allowed = {"overruns": {"in_a_row": 2, "in_window": 5, "window": 0.5}}
    overruns = BridgeCount(from_data(BridgeParams, allowed), DT)
    for sample in range(1, samples * every + 1):
        overruns.sampled(sample, sample % every == 0)
    return overruns.breach


def pause_breach(seconds: float) -> str:
    pause = Pause(
        from_data(BridgeParams, {"when_late": "pause", "max_pause": 0.5}), {"a": from_data(Limits, LIMITS)}, DT
    )
    pause.begin(*(Command(sample, np.zeros(1), np.zeros(1)) for sample in (1, 2)))
    for _ in range(math.ceil(seconds / DT)):
        pause.command(3)
    return pause.breach


def lost_peers(blind: bool = False) -> list[tuple[str, str]]:
    """Lost peers, with a monitor that is silent for 0.3 s, or that sends but receives nothing (``blind``)."""
    heartbeat = Heartbeat(HeartbeatParams(), ["monitor"])
    heartbeat.begin(0)
    for now in range(0, 300_000_001, 4_000_000):
        if blind:
            heartbeat.received("monitor", now, behind=now)
        if lost := heartbeat.lost(now):
            return lost
    return []


def hops_reason() -> str:
    """Reason with a driver that applies each command at once, with hops of depth 3."""
    watch, reason = TakenAtOnce(3), ""
    watch.start(Measurement(0, np.zeros(1), np.zeros(1), np.zeros(1)))
    for k in range(1, 2 * IN_A_ROW):
        moved = np.array([1e-3 * math.sin(0.1 * k)])
        watch.made(Command(k, moved, moved))
        reason = reason or watch.reason(Measurement(k, moved, np.zeros(1), moved))
    return reason


def level_reason(force: float) -> object:
    watch = LevelWatch({"a": from_data(Limits, LIMITS | {"levels": {"force": {"maximum": 1e3}}})}, DT)
    command = Command(1, np.zeros(1), np.zeros(1))
    return watch.judge(command, Measurement(1, np.zeros(1), np.array([force]), np.zeros(1)))[0]


def energy_error() -> str:
    """Breach by a step of 1 m against a mean force of 0.5 N; the reference energy is 2 J."""
    monitor = Monitor(from_data(MonitorParams, {"energy_error_percent": 10.0}, "monitor"), ("a",), 1, DT, 2.0)
    for k in range(100):
        moved = [float(k >= 50)]
        monitor.step(k, [0.0], moved, moved)
    assert monitor.breach is not None
    return monitor.breach[1]


def final_reason(*overrides: str, faults: tuple[str, ...] = ()) -> str:
    """Reason for the end of a test on the host ``embedded``."""
    return hosts.run("predefined_sine", ["duration=0.3", *overrides], faults=list(faults)).reason


TRIPS: list[Row] = [
    (
        partial(command_breach, 0.0, target=math.nan),
        "axes.a: target = nan: must be finite: the response has run away, or lies beyond the reach of the setup",
    ),
    (partial(command_breach, math.nan), "axes.a: command = nan: must be finite"),
    (partial(command_breach, 0.2501, 0.25), "axes.a.limits.stroke: command = 0.2501 m: must be within +- 0.25 m"),
    (partial(command_breach, 1e-3), "axes.a.limits.velocity: command = 1.024 m/s: must be within +- 0.76 m/s"),
    (
        partial(command_breach, 0.2400, 0.2395, deceleration=10.0),
        "axes.a.limits.stroke: command = 0.24 m at 0.512 m/s: its braking way of 0.013 m must be "
        "within the 0.01 m that are left to +- 0.25 m",
    ),
    (partial(measurement_breach, 0.26), "axes.a.limits.stroke: measured = 0.26 m: must be within +- 0.25 m"),
    (
        partial(measurement_breach, 0.0, -1.8e6),
        "axes.a.limits.force: measured = -1.8e+06 N: must be within +- 1.7e+06 N",
    ),
    (
        partial(measurement_breach, 0.1, 0.0, 0.12, tracking_error=0.01),
        "axes.a.limits.tracking_error: target - measured = 0.02 m: must be within +- 0.01 m",
    ),
    (partial(level_reason, 1.2e3), "axes.a.limits.levels.force: 1200 N: must be <= 1000 N"),
    (energy_error, "monitor.energy_error_percent: 25 %: must be within +- 10 %"),
    (partial(bridge_breach, 11, "Target"), "bridge.max_bridge: no Target for 10.7 ms: must be <= 10 ms"),
    (partial(bridge_breach, 11, "Command"), "bridge.max_bridge: no Command for 10.7 ms: must be <= 10 ms"),
    (partial(overrun_breach, 3, 1), "bridge.overruns.in_a_row: 3 periods were late in a row: must be <= 2"),
    (partial(overrun_breach, 6, 2), "bridge.overruns.in_window: 6 periods were late in 0.5 s: must be <= 5"),
    (partial(pause_breach, 0.6), "bridge.max_pause: nothing to follow for 0.601 s: must be <= 0.5 s"),
    (lost_peers, [("monitor", "heartbeat.monitor: silent for 0.2 s: must be <= 0.2 s")]),
    (
        partial(lost_peers, True),
        [
            (
                "monitor",
                "heartbeat.monitor: sends heartbeats, but has received no Measurement for 0.2 s: must be <= 0.2 s",
            )
        ],
    ),
    (
        hops_reason,
        "hops.depth = 3: the actuator node applies Command 32 at tick 32: must be Command 29; it "
        "knows nothing of hops",
    ),
    (partial(final_reason, "port.interlock=open"), "sample 1: rig: its interlock is open: no actuator follows"),
    (partial(final_reason, "port.hydraulics=off"), "sample 1: rig: its hydraulics are off: no actuator follows"),
    (lambda: DROPPED, "rig: its hydraulics have dropped from high to low: the actuators follow slowly"),
    (lambda: ANOTHER_MODE, "rig: the controller has changed its control mode"),
    (
        lambda: rejected_command(files.load("predefined_sine").axes, np.array([0.01]), np.zeros(1)),
        "axes.axis_1: the controller drives to 0.01 m, 0 m was sent last: it does not take the external command",
    ),
    (
        lambda: command_mismatch(files.load("predefined_sine").axes, np.array([0.1]), np.zeros(1)),
        "axes.axis_1: the controller drives to 0.1 m, 0 m is measured: the external command is "
        "accepted only where they differ by <= 0.005 m",
    ),
    (
        lambda: REASONS,
        {
            0: "no reason reported",
            1: "no command came in time",
            2: "the session was closed",
            3: "the interlock of the rig is open",
            4: "another session is open, or has ended: an operator must begin a new one at the rig",
            5: "it uses another version of the datagrams",
            6: "it has another number of axes",
            7: "it has another servo rate",
            8: "it does not support this transport_samples",
            9: "it has other auxiliary inputs",
            10: "its controller follows the command differently within a sample (hold)",
            11: "its tick does not wait for commands",
            12: "one end is an emulator, but the other expects a rig",
            13: "it has no digital output for other data acquisition (trigger)",
            14: "a measured force exceeds the limit of the receiver",
            15: "the difference of command and measured displacement exceeds the limit of the receiver",
            16: "the session has reached the end of its counter",
            17: "no axis accepts commands in N",
            18: "the difference of command and measured force exceeds the limit of the receiver",
            19: "a force loop has moved its axis further than stiffness and drift explain: the specimen "
            "or the load cell has failed",
            20: "a controller is not in the commanded mode",
            21: "the value of a load cell has not changed for too long",
        },
    ),
]


def prompt(question: Callable[[Console], object], answer: str = "") -> str:
    """Text that an operator reads before giving the ``answer``."""
    shown: list[str] = []

    def ask(text: str) -> str:
        shown.append(text)
        return answer

    question(Console(Answers(), ask, lambda text: shown.append(str(text))))
    return "".join(shown)


PROMPTS: dict[str, Row] = {
    "arm": (
        lambda: prompt(lambda console: arms(console, "d", "abcdef0123", "0123456789")),
        "to arm rung d, type d and the first 6 characters of the scenario's hash: ",
    ),
    "act check": (lambda: ACTS["check"].words, "a small guarded move of every axis: signs, scales, stiffness"),
    "act position": (lambda: ACTS["position"].words, "to the start of the test, by a bounded ramp"),
    "act arm": (lambda: ACTS["arm"].words, "arm a rung: its scenario and the offsets, by their hashes"),
    "act run": (lambda: ACTS["run"].words, "run the armed rung"),
    "act unload": (
        lambda: ACTS["unload"].words,
        "unload the specimen to zero force; to a place (m from the zero of the test), signed: by displacement",
    ),
    "commission": (
        lambda: prompt(lambda console: AtTerminal(console, "EMULATED", 0.0, "").ask("all axes move together")),
        "\n1. EMULATED: all axes move together.\nThen press Enter: ",
    ),
    "commission, with a motion": (
        lambda: prompt(
            lambda console: AtTerminal(console, "REAL RIG", 0.0, "").ask("all axes move together", moves=True),
            "CLEAR",
        ),
        "\n1. REAL RIG: all axes move together.\ntype CLEAR to start this motion; anything else moves nothing: ",
    ),
    "clear": (
        lambda: prompt(lambda console: console.clear("check", "the small move")),
        "MOTION: check: the small movetype CLEAR to start this motion; anything else moves nothing: ",
    ),
    "no safety function": (lambda: NO_SAFETY, "The software stop is not a safety function."),
}


IDS = [*(str(text)[:50] for _, text in TRIPS), *PROMPTS]


@pytest.mark.parametrize(("produce", "text"), [*TRIPS, *PROMPTS.values()], ids=IDS)
def test_reasons_of_trips_and_prompts_of_motions_are_pinned(produce: Callable[[], object], text: object) -> None:
    assert produce() == text


def test_statements_of_motions_are_pinned(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    step, offsets = runner.ladder.step("d"), runner.session.offsets
    assert offsets is not None
    runner.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=offsets.hash)
    rung = (
        "rung d (moves, force computed), from the zero of the test: story_1: expected up to 0.22 mm at up to "
        "10.24 mm/s; trips at 40 mm, 1200 mm/s and 1800 kN"
    )
    assert {act: runner.motion(act) for act in MOTIONS} == {
        "check": "the small move, one axis after another: story_1 by 1 mm and back, at up to 2 mm/s; ends if the "
        "force changes by 30 kN",
        "position": "to the start of the test: story_1 by 0 mm, to 0 mm, at up to 2 mm/s; trips at 1800 kN",
        "run": rung,
        "resume": rung,
        "unload": "unloading by force: story_1 until its force is zero, by at most 50 mm, at up to 5 mm/s; trips "
        "at 1800 kN",
    }
    assert runner.motion("unload", {"to": "0.001"}) == (
        "unloading by displacement: story_1 to 1 mm from the zero of the test, by at most 50 mm, at up to 5 mm/s; "
        "trips at 1800 kN"
    )
    runner.session.close()


def test_every_act_with_motion_is_pinned() -> None:
    assert {f"act {name}" for name, act in ACTS.items() if act.moves} <= PROMPTS.keys()
