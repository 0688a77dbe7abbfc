# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths doctor``: facts, measured wake-up, and verdicts."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import each_mentions, mentions
from programs import child_environment

from rths_nodes.app.commands import doctor

# Facts


def test_refused_scheduler_has_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    fact = doctor.scheduler()
    assert (fact.value["fifo"], fact.verdict) == (False, "advice")
    assert mentions(fact.text, "60", "refused", "Operation not permitted")
    assert all(part in fact.advice for part in ("limits.d", "docker run"))


def test_granted_scheduler_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    fact = doctor.scheduler()
    assert (fact.value["fifo"], fact.verdict) == (True, "good")
    assert mentions(fact.text, "granted", os.uname().release)


def test_fact_restores_the_scheduling() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    doctor.scheduler()
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) == before


@pytest.mark.parametrize(
    ("governors", "verdict", "advice"),
    [
        (["performance", "performance"], "good", ()),
        (["performance", "powersave"], "advice", ("cpupower", "performance")),
        ([], "unknown", ()),
        ([None], "unknown", ()),
    ],
)
def test_governor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    governors: list[str | None],
    verdict: str,
    advice: tuple[str, ...],
) -> None:
    for number, name in enumerate(governors):
        file = tmp_path / f"cpu{number}/cpufreq/scaling_governor"
        (file.parent if name else file).mkdir(parents=True)  # a folder cannot be read
        if name:
            file.write_text(f"{name}\n")
    monkeypatch.setattr(doctor, "CPUS", tmp_path)
    fact = doctor.governor()
    assert fact.verdict == verdict
    assert mentions(fact.advice, *advice)


@pytest.mark.parametrize(
    ("limit", "user", "verdict"),
    [(8 * 2**20, 1000, "advice"), (8 * 2**20, 0, "good"), (resource.RLIM_INFINITY, 1000, "good")],
)
def test_limit_of_locked_memory(monkeypatch: pytest.MonkeyPatch, limit: int, user: int, verdict: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    fact = doctor.memlock()
    assert fact.verdict == verdict
    assert ("8 MiB" in fact.text) == (verdict == "advice") == ("limits.d" in fact.advice)


# Measurements


def test_paced_loop_counts_every_tick() -> None:
    figures, lateness = doctor.wake_up(2000.0, 0.1)
    assert len(lateness) + figures["missed"] >= figures["ticks"] == 200
    assert figures["missed"] == np.floor(lateness / 5e-4).sum()
    assert figures["lateness"]["max_s"] == lateness.max()
    assert sum(figures["lateness_histogram"]["counts"]) == len(lateness)


@pytest.fixture
def floor(load_benchmark: Callable[[str], Any]) -> Any:
    return load_benchmark("floor")


def resources() -> tuple[set[int], int, list[str]]:
    return os.sched_getaffinity(0), os.sched_getscheduler(0), sorted(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("in_real_time", [True, False])
def test_ping_pong_releases_its_resources(floor: Any, in_real_time: bool) -> None:
    deadline, before = time.monotonic() + 10.0, None
    while time.monotonic() < deadline and before != (before := resources()):
        gc.collect()  # closes files of earlier tests
        time.sleep(0.2)
    figures = floor.ping_pong(200, in_real_time)
    assert 0.0 < figures["median_s"] <= figures["p99_s"] <= figures["max_s"]
    assert resources() == before


def test_ping_pong_without_answer_raises(floor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "ECHO", "pass # {end}")
    with pytest.raises(OSError, match="answered 0 times"):
        floor.ping_pong()


# Verdicts


def verdicts(lateness: np.ndarray, host: str, slower: float = 1.0) -> list[str]:
    forecasts = doctor.forecast(lateness, slower * doctor.PYTHON_STEP_S)
    return [entry["verdict"] for entry in forecasts if entry["host"] == host]


def test_quiet_computer_is_good_if_computing_time_fits() -> None:
    quiet = np.zeros(1000)
    lines = doctor.summary(doctor.forecast(quiet, doctor.PYTHON_STEP_S))
    assert each_mentions(lines, ("composed", "good", "2048 Hz"), ("processes", "good", "1024 Hz"))
    assert verdicts(quiet, "composed", slower=4.0) == ["good", "good", *3 * [doctor.UNSUITABLE]]


def test_verdict_depends_on_share_of_late_ticks() -> None:
    """A lateness of 3 ms leaves 0.9 ms of a period at 256 Hz, and nothing at 512 Hz."""
    lateness = np.zeros(1000)
    lateness[:10] = 3e-3
    assert verdicts(lateness, "processes") == ["good", "marginal", "marginal", *2 * [doctor.UNSUITABLE]]
    lateness[10] = 3e-3
    assert verdicts(lateness, "processes") == ["good", *4 * [doctor.UNSUITABLE]]


def test_gap_beyond_the_bridge_is_unsuitable() -> None:
    lateness = np.zeros(100_000)
    lateness[5] = 0.011
    assert verdicts(lateness, "composed") == 5 * [doctor.UNSUITABLE]
    assert doctor.UNSUITABLE in doctor.summary(doctor.forecast(lateness, 37e-9))[0]


@pytest.mark.parametrize(
    ("rate", "seconds", "message"),
    [
        (0.5, 5.0, ("--rate", "0.5 Hz", ">= 1", "<= 100000 Hz")),
        (float("nan"), 5.0, ("--rate", "nan Hz")),
        (1024.0, 0.0, ("--seconds", "0 s", ">= 0.1", "<= 3600 s")),
        (1024.0, float("inf"), ("--seconds", "inf s")),
        (1.0, 0.5, (">= 1", "<= 20000000")),
        (1e5, 3600.0, (">= 1", "<= 20000000")),
        (0.0, 5.0, ("rths", "--rate", "0 Hz", ">= 1", "<= 100000 Hz")),
    ],
)
def test_invalid_rate_or_duration_is_refused(
    rate: float, seconds: float, message: tuple[str, ...], refusal: RunCommand
) -> None:
    assert mentions(refusal("doctor", "--rate", str(rate), "--seconds", str(seconds)), *message)


def test_doctor_prints_facts_wake_up_and_verdicts(output: RunCommand) -> None:
    lines = output("doctor", "--seconds", "0.1").splitlines()
    heads = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert heads == ["scheduler", "governor", "memlock", "wake-up", "Python", "composed:", "processes:", "good:"]


def test_doctor_prints_json_without_loading_ros() -> None:
    program = (
        "import sys; from rths_nodes.app.cli import main; code = main(['doctor', '--seconds', '0.1', '--json'])\n"
        "sys.exit(code or 10 * ('rclpy' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=child_environment())
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert set(report) == {"facts", "paced", "python_step_s", "outlook", "summary"}
    assert set(report["facts"]) == {"scheduler", "governor", "memlock"}
    assert len(report["outlook"]) == 2 * len(doctor.RATES)
