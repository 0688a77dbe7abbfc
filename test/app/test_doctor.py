# SPDX-License-Identifier: Apache-2.0
"""What the machine grants, the floors, and what is expected of them; no result depends on the machine's mood."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import each_mentions, mentions

from rths_nodes.app.cli import main
from rths_nodes.app.doctor import background_load, floor, machine, timing_forecast
from rths_nodes.core.errors import ConfigError
from rths_nodes.ros import environment

PERIOD = 1.0 / 1024.0

FILES = {
    "proc/sys/kernel/osrelease": "6.1.0-rt",
    "proc/sys/kernel/version": "#1 SMP PREEMPT_RT",
    "proc/sys/kernel/sched_rt_runtime_us": "950000",
    "proc/sys/kernel/sched_rt_period_us": "1000000",
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max locked memory         unlimited            unlimited            bytes\n"
        "Max realtime priority     98                   98                   \n"
    ),
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3\n",
    "proc/self/timerslack_ns": "50000",
    "proc/self/cgroup": "0::/user.slice/a.scope\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast 9000\nflags\t\t: fpu sse\n",
    "proc/loadavg": "0.10 0.20 0.30 1/100 1234",
    "proc/stat": "cpu  1000 0 500 8500 0 0 0 0 0 0\ncpu0 1000 0 500 8500 0 0 0 0 0 0\n",
    "proc/swaps": "Filename Type Size Used Priority\n",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/cpu/isolated": "3",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/latency": "2",
    "sys/devices/system/cpu/cpu0/cpuidle/state0/disable": "0",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/latency": "400",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "1",
    "dev/cpu_dma_latency": "",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet",
}
"""A machine on which nothing is left to be wished for."""


def tree(folder: Path, **changes: str | None) -> Path:
    """The files below ``folder``; in a changed name `__` stands for `/`."""
    for name, words in (FILES | {key.replace("__", "/"): value for key, value in changes.items()}).items():
        if words is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(words)
    return folder


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)


def facts(root: Path) -> dict[str, machine.Fact]:
    return {fact.name: fact for fact in machine.facts(60, root)}


# -- facts ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("granted")
def test_a_machine_made_for_it_is_good_in_everything(tmp_path: Path) -> None:
    found = facts(tree(tmp_path))
    assert {name: fact.words for name, fact in found.items() if fact.verdict != "good"} == {}
    assert found["processors"].value == {"model": "Fast 9000", "online": [0, 1, 2, 3], "allowed": [0, 1, 2, 3]}
    assert found["idle"].value == {"deepest_us": 2, "kept_awake": True}  # the deeper state is disabled
    assert found["memory"].value["lock_limit_bytes"] == "unlimited"
    assert found["isolation"].value == [3]


def test_without_ros_2_it_says_which_hosts_are_only_a_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment.MODULES, "no_such_module", "no_such_module is not here")
    found = facts(tree(tmp_path))["ROS 2"]
    assert each_mentions((found.words, found.verdict), ("no_such_module",), ("advice",))
    assert mentions(found.advice, "composed", "processes")


@pytest.mark.usefixtures("granted")
@pytest.mark.parametrize(
    ("name", "changes", "value", "advice"),
    [
        (
            "kernel",
            {"proc__sys__kernel__version": "#1 SMP"},
            {"release": "6.1.0-rt", "preempt_rt": False},
            ("apt",),
        ),
        (
            "throttling",
            {"proc__sys__kernel__sched_rt_runtime_us": "-1"},
            {"runtime_us": -1, "period_us": 1_000_000},
            ("sysctl",),
        ),
        (
            "memory",
            {"proc__swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n"},
            {"lock_limit_bytes": "unlimited", "swap_bytes": 2**20},
            ("swapoff",),
        ),
        (
            "processors",
            {"proc__self__status": "Cpus_allowed_list:\t2\n"},
            {"model": "Fast 9000", "online": [0, 1, 2, 3], "allowed": [2]},
            ("taskset",),
        ),
        ("isolation", {"sys__devices__system__cpu__isolated": ""}, [], ("isolcpus", "3")),
        (
            "frequency",
            {"sys__devices__system__cpu__cpu1__cpufreq__scaling_governor": "powersave"},
            ["performance", "powersave"],
            ("cpupower", "frequency-set"),
        ),
        ("idle", {"dev__cpu_dma_latency": None}, {"deepest_us": 2, "kept_awake": False}, ("udevadm",)),
        (
            "idle",
            {"dev__cpu_dma_latency": None, ".dockerenv": ""},
            {"deepest_us": 2, "kept_awake": False},
            ("--device", "/dev/cpu_dma_latency"),
        ),
        (
            "clock source",
            {"sys__devices__system__clocksource__clocksource0__current_clocksource": "hpet"},
            "hpet",
            ("echo", "tsc"),
        ),
        (
            "virtualisation",
            {"proc__cpuinfo": "flags\t\t: fpu hypervisor\n", "sys__class__dmi__id__sys_vendor": "QEMU"},
            {"virtual": True, "machine": "QEMU", "container": ""},
            ("of its own",),
        ),
        ("steal", {"proc__stat": "cpu  1000 0 500 8300 0 0 0 200 0 0\n"}, 0.02, ("of its own",)),
        ("load", {"proc__loadavg": "2.50 0 0 1/1 1"}, 2.5, ("others",)),
        ("quota", {"sys__fs__cgroup__user.slice__cpu.max": "50000 100000"}, {"processors": 0.5}, ("CPUQuota",)),
        (
            "quota",
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/docker/1\n0::/\n",
                "sys__fs__cgroup__cpu,cpuacct__docker__1__cpu.cfs_quota_us": "150000",
                "sys__fs__cgroup__cpu,cpuacct__docker__1__cpu.cfs_period_us": "100000",
            },
            {"processors": 1.5},
            ("--cpus",),
        ),
        (
            "real-time tasks",
            {"proc__77__stat": "77 (a (b) c) R" + 37 * " 0" + " 1 0", "proc__77__cmdline": "hog"},
            [77],
            ("-p", "77"),
        ),
    ],
)
def test_each_look_finds_and_advises(
    tmp_path: Path, name: str, changes: dict[str, str], value: Any, advice: tuple[str, ...]
) -> None:
    found = facts(tree(tmp_path, **changes))[name]
    assert found.value == value
    assert mentions(found.advice, *advice)
    assert found.verdict == "advice"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"proc__self__limits": FILES["proc/self/limits"].replace("98", "0 ")}, "limits.d"),
        ({"proc__self__limits": FILES["proc/self/limits"].replace("98", "0 "), ".dockerenv": ""}, "docker run"),
        ({}, "docker run"),  # allowed by the limit, refused all the same: by a container or a control group
    ],
)
def test_a_refused_scheduler_says_how_to_raise_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], advice: str
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    found = facts(tree(tmp_path, **changes))["scheduler"]
    assert found.value["fifo"] is False
    assert mentions(found.words, "Operation", "permitted")
    assert advice in found.advice


def test_the_trial_leaves_the_scheduling_as_it_was() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    machine.facts(60)
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) == before


@pytest.mark.parametrize("words", [None, "", "garbage", "a: b: c\n1 2 3", "\x00\xff"])
def test_what_cannot_be_read_is_unknown_with_a_reason(tmp_path: Path, words: str | None) -> None:
    root = tree(tmp_path, **dict.fromkeys((name.replace("/", "__") for name in FILES), words))
    for fact in machine.facts(60, root):
        if fact.value is None:
            assert fact.words.startswith("unknown (")
            assert (fact.verdict, fact.advice) == ("unknown", "")
        json.dumps(fact.data())
    assert facts(root)["steal"].verdict == "unknown"


@pytest.mark.parametrize(("words", "numbers"), [("", []), ("3", [3]), ("0-2,5", [0, 1, 2, 5])])
def test_lists_of_processors(words: str, numbers: list[int]) -> None:
    assert background_load.numbers_of_cpus(words) == numbers


# -- floors -----------------------------------------------------------------------------------------------


def test_the_paced_loop_counts_every_tick() -> None:
    figures, lateness = floor.paced(2000.0, 0.1)
    assert len(lateness) + figures["missed"] >= figures["ticks"] == 200
    assert figures["missed"] == np.floor(lateness / 5e-4).sum()
    assert figures["missed_share"] == timing_forecast.missed_share(lateness, 5e-4, 5e-4)
    assert sum(figures["lateness_histogram"]["counts"]) == len(lateness)


def _settle() -> None:
    """Wait until what earlier tests have left open is closed, by the collector or by a server that ends."""
    until, before = time.monotonic() + 10.0, [""]
    while time.monotonic() < until and before != (before := sorted(os.listdir("/proc/self/fd"))):
        gc.collect()
        time.sleep(0.2)


@pytest.mark.parametrize("in_real_time", [True, False])
@pytest.mark.long
def test_the_ping_pong_leaves_nothing_behind(in_real_time: bool) -> None:
    _settle()
    before = os.sched_getaffinity(0), os.sched_getscheduler(0), sorted(os.listdir("/proc/self/fd"))
    found = floor.ping_pong(200, in_real_time)
    assert 0.0 < found["median_s"] <= found["p99_s"] <= found["max_s"]
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0), sorted(os.listdir("/proc/self/fd"))) == before


def test_a_ping_pong_without_an_answer_ends_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "ECHO", "pass # {end}")
    assert "answered 0 times" in str(floor.try_ping_pong())


# -- what is to be expected -------------------------------------------------------------------------------


def paced_through(stalls: list[tuple[float, float]], period: float, seconds: float) -> tuple[np.ndarray, int]:
    """Lateness and missed ticks of a paced loop that cannot run during ``stalls`` (start, end), in their order."""
    due, lateness, missed, ahead = period, [], 0, iter([*stalls, (np.inf, np.inf)])
    start, end = next(ahead)
    while due < seconds:
        while end <= due:
            start, end = next(ahead)
        late = end - due if start <= due else 0.0
        slipped = int(late // period)
        lateness.append(late)
        missed += slipped
        due += (1 + slipped) * period
    return np.array(lateness), missed


def stalls(seconds: float) -> list[tuple[float, float]]:
    """Stalls of 0.3 to 9 ms, some 30 in a second."""
    generator = np.random.default_rng(3)
    starts = np.cumsum(generator.exponential(0.025, round(40 * seconds)) + 0.009)
    return [
        (start, start + length)
        for start, length in zip(starts, generator.uniform(3e-4, 9e-3, len(starts)), strict=True)
    ]


@pytest.mark.parametrize("rate", timing_forecast.RATES)
def test_the_share_at_another_rate_is_that_of_a_loop_at_that_rate(rate: float) -> None:
    """Two routes: predicted from one loop at 1024 Hz, and a loop at the other rate through the same stalls."""
    seconds = 40.0
    disturbed = stalls(seconds)
    lateness, missed = paced_through(disturbed, PERIOD, seconds)
    predicted = timing_forecast.missed_share(lateness, PERIOD, 1.0 / rate)
    own, own_missed = paced_through(disturbed, 1.0 / rate, seconds)
    assert predicted == pytest.approx(own_missed / (len(own) + own_missed), rel=0.1)
    assert missed > 0


def test_the_share_at_the_same_rate_is_what_was_counted() -> None:
    lateness, missed = paced_through(stalls(10.0), PERIOD, 10.0)
    assert timing_forecast.missed_share(lateness, PERIOD, PERIOD) == pytest.approx(
        missed / (len(lateness) + missed)
    )


def test_one_long_stall_in_closed_form() -> None:
    """A stall of 10.5 periods in a time of 100: 10 ticks missed, 11 with work of 0.6; at half the period 20."""
    lateness = np.zeros(90)
    lateness[40] = 10.5
    assert timing_forecast.missed_share(lateness, 1.0, 1.0) == pytest.approx(10 / 100)
    assert timing_forecast.missed_share(lateness, 1.0, 1.0, work=0.6) == pytest.approx(11 / 100)
    # from 1 of 11 phases: 20 or 21
    assert timing_forecast.missed_share(lateness, 1.0, 0.5) == pytest.approx(11 / 100)
    assert timing_forecast.missed_share(lateness, 1.0, 11.0) == 0.0


def test_work_longer_than_the_period_misses_everything() -> None:
    assert timing_forecast.missed_share(np.zeros(10), 1.0, 1.0, work=1.0) == 1.0


@pytest.mark.parametrize(
    ("share", "gap", "verdict"),
    [
        (0.0, 0.0, "good"),
        (1e-4, 0.01, "good"),
        (2e-4, 0.0, "marginal"),
        (0.02, 0.0, "not for a rig"),
        (0.0, 0.011, "not for a rig"),
    ],
)
def test_verdicts(share: float, gap: float, verdict: str) -> None:
    assert timing_forecast.verdict(share, gap) == verdict


def diagnosis(lateness: np.ndarray, slower: float = 1.0) -> timing_forecast.Diagnosis:
    paced = {
        "rate_hz": 1024.0,
        "ticks": len(lateness),
        "missed": 0,
        "lateness": dict.fromkeys(("median_s", "p99_s", "p999_s", "max_s"), 1e-6),
        "stolen_share": None,
        "refused": ["SCHED_FIFO refused"],
    }
    fact = machine.Fact("kernel", None, "unknown (here)")
    return timing_forecast.diagnose([fact], paced, lateness, "no process", slower * timing_forecast.PYTHON_STEP_S)


def test_a_quiet_machine_is_good_as_far_as_the_work_fits() -> None:
    found = diagnosis(np.zeros(100_000))
    assert each_mentions(found.summary(), ("composed", "2048 Hz"), ("processes", "1024 Hz"))
    slow = diagnosis(np.zeros(100_000), slower=4.0)
    assert each_mentions(slow.summary(), ("composed", "512 Hz"), ("processes", "256 Hz"))


def test_a_long_gap_is_told() -> None:
    lateness = np.zeros(1000)
    lateness[5] = 0.05
    found = diagnosis(lateness)
    assert mentions(found.summary()[0], "composed", "rates")
    text = timing_forecast.text(found)
    for words in ("a gap of 50 ms", "unknown (here)", "unknown (no process)", "SCHED_FIFO refused", "too slow"):
        assert words in text


def test_few_ticks_say_how_little_they_tell() -> None:
    assert mentions(timing_forecast.text(diagnosis(np.zeros(1000))), "1000", "0.3 %", "--seconds", "30")
    assert "--seconds" not in timing_forecast.text(diagnosis(np.zeros(30_000)))


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
        timing_forecast.check(rate, seconds)
    assert mentions(str(refused.value), *message)


# -- the command ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_command_prints_findings_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", "0.1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "scheduler" in out
    assert all(f"{rate:g} Hz" in out for rate in timing_forecast.RATES)
    assert out.splitlines()[-2].startswith("composed: ")


def test_the_command_prints_one_json_object_and_loads_no_ros() -> None:
    program = (
        "import sys; from rths_nodes.app.cli import main; code = main(['doctor', '--seconds', '0.1', '--json'])\n"
        "sys.exit(code or 10 * ('rclpy' in sys.modules))"
    )
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert set(found) == {"facts", "paced", "ping_pong", "python_step_s", "outlook", "summary"}
    assert set(found["facts"]) == {"scheduler", *machine.LOOKS}
    assert len(found["outlook"]) == 3 * len(timing_forecast.RATES)


def test_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--rate", "0"]) == 2
    assert mentions(capsys.readouterr().err, "rths", "--rate", "0 Hz", ">= 1", "<= 100000 Hz")
