# SPDX-License-Identifier: Apache-2.0
"""``rths doctor``: findings, measured wake-up, and verdicts."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.app.cli import main
from rths_nodes.app.commands import doctor
from rths_nodes.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def refuse(*_: Any) -> None:
    raise PermissionError(1, "Operation not permitted")


# -- facts ------------------------------------------------------------------------------------------------


def test_a_refused_scheduler_advises_how_to_raise_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    fact = doctor.scheduler()
    assert (fact.value["fifo"], fact.verdict) == (False, "advice")
    assert mentions(fact.text, "60", "refused", "Operation not permitted")
    assert all(part in fact.advice for part in ("limits.d", "docker run"))


def test_a_granted_scheduler_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    fact = doctor.scheduler()
    assert (fact.value["fifo"], fact.verdict) == (True, "good")
    assert mentions(fact.text, "granted", os.uname().release)


def test_the_trial_leaves_the_scheduling_as_it_was() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    doctor.facts()
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
def test_the_governor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    governors: list[str | None],
    verdict: str,
    advice: tuple[str, ...],
) -> None:
    for number, name in enumerate(governors):
        file = tmp_path / f"cpu{number}/cpufreq/scaling_governor"
        if name is None:
            file.mkdir(parents=True)  # cannot be read
        else:
            file.parent.mkdir(parents=True)
            file.write_text(f"{name}\n")
    monkeypatch.setattr(doctor, "CPUS", tmp_path)
    fact = doctor.governor()
    assert fact.verdict == verdict
    assert mentions(fact.advice, *advice)


@pytest.mark.parametrize(
    ("limit", "user", "verdict"),
    [(8 * 2**20, 1000, "advice"), (8 * 2**20, 0, "good"), (resource.RLIM_INFINITY, 1000, "good")],
)
def test_the_limit_of_locked_memory(monkeypatch: pytest.MonkeyPatch, limit: int, user: int, verdict: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    fact = doctor.memlock()
    assert fact.verdict == verdict
    assert ("8 MiB" in fact.text) == (verdict == "advice") == ("limits.d" in fact.advice)


# -- measurements -----------------------------------------------------------------------------------------


def test_the_paced_loop_counts_every_tick() -> None:
    figures, lateness = doctor.wake_up(2000.0, 0.1)
    assert len(lateness) + figures["missed"] >= figures["ticks"] == 200
    assert figures["missed"] == np.floor(lateness / 5e-4).sum()
    assert figures["lateness"]["max_s"] == lateness.max()
    assert sum(figures["lateness_histogram"]["counts"]) == len(lateness)


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import floor

    return floor


def _settle() -> None:
    """Wait until what earlier tests have left open is closed, by the collector or by a server that ends."""
    until, before = time.monotonic() + 10.0, [""]
    while time.monotonic() < until and before != (before := sorted(os.listdir("/proc/self/fd"))):
        gc.collect()
        time.sleep(0.2)


@pytest.mark.parametrize("in_real_time", [True, False])
def test_the_ping_pong_leaves_nothing_behind(floor: Any, in_real_time: bool) -> None:
    _settle()
    before = os.sched_getaffinity(0), os.sched_getscheduler(0), sorted(os.listdir("/proc/self/fd"))
    found = floor.ping_pong(200, in_real_time)
    assert 0.0 < found["median_s"] <= found["p99_s"] <= found["max_s"]
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0), sorted(os.listdir("/proc/self/fd"))) == before


def test_a_ping_pong_without_an_answer_ends_with_a_reason(floor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "ECHO", "pass # {end}")
    with pytest.raises(OSError, match="answered 0 times"):
        floor.ping_pong()


# -- verdicts ---------------------------------------------------------------------------------------------


def verdicts(lateness: np.ndarray, host: str, slower: float = 1.0) -> list[str]:
    forecasts = doctor.forecast(lateness, slower * doctor.PYTHON_STEP_S)
    return [entry["verdict"] for entry in forecasts if entry["host"] == host]


def test_a_quiet_computer_is_good_where_the_computing_time_fits() -> None:
    quiet = np.zeros(1000)
    lines = doctor.summary(doctor.forecast(quiet, doctor.PYTHON_STEP_S))
    assert each_mentions(lines, ("composed", "good", "2048 Hz"), ("processes", "good", "1024 Hz"))
    assert verdicts(quiet, "composed", slower=4.0) == ["good", "good", *3 * [doctor.UNSUITABLE]]


def test_one_late_tick_is_marginal_and_many_are_not_for_a_rig() -> None:
    """3 ms leave 0.9 ms of a period at 256 Hz, and nothing at 512 Hz."""
    lateness = np.zeros(1000)
    lateness[:10] = 3e-3
    assert verdicts(lateness, "processes") == [
        "good",
        "marginal",
        "marginal",
        doctor.UNSUITABLE,
        doctor.UNSUITABLE,
    ]
    lateness[10] = 3e-3
    assert verdicts(lateness, "processes") == ["good", *4 * [doctor.UNSUITABLE]]


def test_a_gap_that_cannot_be_bridged_is_not_for_a_rig() -> None:
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
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(
    rate: float, seconds: float, message: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        doctor.check(rate, seconds)
    assert mentions(str(refused.value), *message)


# -- the command ------------------------------------------------------------------------------------------


def test_the_command_prints_facts_wake_up_and_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", "0.1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    heads = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == ["scheduler", "governor", "memlock", "wake-up", "Python", "composed:", "processes:", "good:"]


def test_the_command_prints_one_json_object_and_loads_no_ros() -> None:
    program = (
        "import sys; from rths_nodes.app.cli import main; code = main(['doctor', '--seconds', '0.1', '--json'])\n"
        "sys.exit(code or 10 * ('rclpy' in sys.modules))"
    )
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert set(found) == {"facts", "paced", "python_step_s", "outlook", "summary"}
    assert set(found["facts"]) == {"scheduler", "governor", "memlock"}
    assert len(found["outlook"]) == 2 * len(doctor.RATES)


def test_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rate", "0"]) == 2
    assert mentions(capsys.readouterr().err, "rths", "--rate", "0 Hz", ">= 1", "<= 100000 Hz")
