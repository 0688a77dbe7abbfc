# SPDX-License-Identifier: Apache-2.0
"""``rths doctor``: measure which servo rates this computer supports."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.data import Data
from rths_nodes.core.durations import histogram, statistics
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.realtime import PRIORITY, real_time

CPUS = Path("/sys/devices/system/cpu")
ADVICE = (
    "sudo groupadd -f realtime; sudo usermod -aG realtime $USER; printf '@realtime - rtprio 98\\n@realtime - "
    "memlock unlimited\\n' | sudo tee /etc/security/limits.d/99-realtime.conf; then log in again. In a container: "
    "docker run --cap-add=SYS_NICE --ulimit rtprio=98 --ulimit memlock=-1"
)

RATES = (256.0, 512.0, 1024.0, 2048.0, 4096.0)
WORK_S = {"composed": 300e-6, "processes": 600e-6}
"""Computing time per sample (99 % quantile) by host, s, for one axis with a recorder and a monitor."""
PYTHON_STEP_S = 37e-9
"""Time per oscillator step in plain Python (``benchmarks/latency.py``) on the computer of ``WORK_S``, s."""
MARGINAL = 0.01
"""Largest fraction of late ticks for the verdict ``marginal``, which is only for simulators."""
LONGEST_GAP_S = 0.010
"""Longest gap between samples that the default ``bridge.max_bridge`` bridges, s."""
UNSUITABLE = "not for a rig"
BOUNDS = {"--rate": ("Hz", 1.0, 100e3), "--seconds": ("s", 0.1, 3600.0)}
MOST_TICKS = 20_000_000


@dataclass(frozen=True)
class Fact:
    name: str
    value: Data | None
    text: str
    advice: str = ""

    @property
    def verdict(self) -> str:
        return "unknown" if self.value is None else "advice" if self.advice else "good"

    def data(self) -> Data:
        return {"value": self.value, "words": self.text, "verdict": self.verdict, "advice": self.advice}


def scheduler() -> Fact:
    refused = ""
    policy, before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        os.sched_setscheduler(0, policy, before)
    except OSError as error:
        refused = error.strerror or str(error)
    preempt_rt = "PREEMPT_RT" in os.uname().version
    value = {"fifo": not refused, "priority": PRIORITY, "kernel": os.uname().release, "preempt_rt": preempt_rt}
    text = f"SCHED_FIFO {PRIORITY} is {f'refused ({refused})' if refused else 'granted'}"
    text += f"; kernel {os.uname().release} {'with' if preempt_rt else 'without'} PREEMPT_RT"
    return Fact("scheduler", value, text, ADVICE if refused else "")


def governor() -> Fact:
    files = sorted(CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    try:
        governors = sorted({file.read_text(encoding="utf-8").strip() for file in files})
    except OSError as error:
        return Fact("governor", None, f"unknown ({error.filename}: {error.strerror})")
    if not governors:
        text = "unknown (cpufreq is missing; the host of a virtual machine sets the governor)"
        return Fact("governor", None, text)
    advice = "" if governors == ["performance"] else "sudo cpupower frequency-set -g performance"
    return Fact("governor", {"governors": governors}, ", ".join(governors), advice)


def memlock() -> Fact:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Fact("memlock", {"limit_bytes": None}, "all memory may be locked")
    return Fact("memlock", {"limit_bytes": limit}, f"{limit / 2**20:g} MiB may be locked", ADVICE)


def check(rate: float, seconds: float) -> None:
    for name, value in (("--rate", rate), ("--seconds", seconds)):
        unit, least, most = BOUNDS[name]
        if not least <= value <= most:  # also refuses NaN
            raise ConfigError(f"{name} = {value:g} {unit}: must be >= {least:g} and <= {most:g} {unit}")
    if not 1.0 <= rate * seconds <= MOST_TICKS:
        raise ConfigError(
            f"--seconds = {seconds:g} s at --rate = {rate:g} Hz: must be >= 1 and <= {MOST_TICKS} ticks"
        )


def wake_up(rate: float, seconds: float) -> tuple[Data, Array]:
    """Run a loop at ``rate``, Hz, scheduled like the nodes. Return statistics and the lateness of each tick, s."""
    ticks = max(1, round(rate * seconds))
    pacer = Pacer(1.0 / rate, ticks)
    with real_time(True) as refused:
        pacer.start()
        while len(pacer.lateness) + pacer.missed < ticks:  # missed ticks must not extend the measurement
            pacer()
    lateness = pacer.lateness.seconds
    figures = {
        "rate_hz": rate,
        "ticks": ticks,
        "missed": pacer.missed,
        "missed_share": pacer.missed / (len(lateness) + pacer.missed),
        "lateness": statistics(lateness),
        "lateness_histogram": histogram(lateness),
        "refused": list(refused),
    }
    return figures, lateness


def python_step(count: int = 40_000, rounds: int = 5) -> float:
    return min(oscillate(count) for _ in range(rounds)) / count


def oscillate(count: int) -> float:
    x, v, started = 1.0, 0.0, time.perf_counter()
    for _ in range(count):
        v -= 0.01 * x
        x += 0.01 * v
    return time.perf_counter() - started


def forecast(lateness: Array, python_step_s: float) -> list[Data]:
    longest = float(lateness.max())
    forecasts = []
    for host, rate in product(WORK_S, RATES):
        margin = 1.0 / rate - WORK_S[host] * python_step_s / PYTHON_STEP_S
        share = 1.0 if margin <= 0.0 else float(np.mean(lateness >= margin))
        usable = share <= MARGINAL and longest <= LONGEST_GAP_S
        verdict = "good" if usable and not share else "marginal" if usable else UNSUITABLE
        forecasts.append({"rate_hz": rate, "host": host, "late_share": share, "verdict": verdict})
    return forecasts


def summary(forecasts: Sequence[Data]) -> list[str]:
    lines = []
    for host in WORK_S:
        # rates ascend, so the dict keeps the highest rate of each verdict
        rates = {entry["verdict"]: entry["rate_hz"] for entry in forecasts if entry["host"] == host}
        parts = [f"{verdict} up to {rates[verdict]:g} Hz" for verdict in ("good", "marginal") if verdict in rates]
        lines.append(f"{host}: {', '.join(parts) or f'{UNSUITABLE} at any of these rates'}")
    return lines


def facts() -> tuple[Fact, ...]:
    return scheduler(), governor(), memlock()


def diagnose(rate: float, seconds: float) -> tuple[Data, list[str]]:
    check(rate, seconds)
    findings = facts()
    paced, lateness = wake_up(rate, seconds)
    step = python_step()
    forecasts = forecast(lateness, step)
    lines = [
        f"{fact.name:11}{fact.text}" + (f"\n{'':11}-> {fact.advice}" if fact.advice else "") for fact in findings
    ]
    late = {name: f"{value * 1e6:.4g} µs" for name, value in paced["lateness"].items()}
    lines += [
        f"wake-up    {late['median_s']} median, {late['p99_s']} p99, {late['max_s']} worst; "
        f"{paced['missed']} of {paced['ticks']} ticks at {rate:g} Hz missed",
        *(f"{'':11}{refusal}" for refusal in paced["refused"]),
        f"Python     {step * 1e9:.3g} ns per step of an oscillator",
        *summary(forecasts),
        f"good: no tick is late in {seconds:g} s; marginal (simulators only): at most {MARGINAL:.0%} of the ticks "
        f"are late, and no gap is longer than {LONGEST_GAP_S * 1e3:g} ms",
    ]
    data = {
        "facts": {fact.name: fact.data() for fact in findings},
        "paced": paced,
        "python_step_s": step,
        "outlook": forecasts,
        "summary": summary(forecasts),
    }
    return data, lines


def doctor_arguments(add: arguments.Arguments) -> None:
    add("--seconds", "duration of the measurement, s", 5.0)
    add("--rate HZ", "rate of the measured loop, Hz", 1024.0)
    add.json()


def doctor_command(options: arguments.Options) -> None:
    data, lines = diagnose(options.rate, options.seconds)
    if options.json:
        terminal.print_json(data)
    else:
        for line in "\n".join(lines).splitlines():
            terminal.say(line)
