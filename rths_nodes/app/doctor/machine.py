# SPDX-License-Identifier: Apache-2.0
"""Facts about what a machine grants to a real-time loop: from /proc, /sys and the limits of this process.

Each fact is one look; one that cannot be read is unknown, with the reason. An advice is one line: what to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rths_nodes.app.doctor.background_load import (
    Look,
    container,
    load,
    numbers_of_cpus,
    quota,
    read,
    real_time_tasks,
    steal,
    virtualisation,
)
from rths_nodes.core.data import Data
from rths_nodes.loop.realtime import IDLE_LATENCY
from rths_nodes.ros import environment

JOIN_GROUP = "sudo groupadd -f realtime; sudo usermod -aG realtime $USER"
RAISE_LIMITS = (
    f"{JOIN_GROUP}; printf '@realtime - rtprio 98\\n@realtime - "
    "memlock unlimited\\n' | sudo tee /etc/security/limits.d/99-realtime.conf; then log in again"
)
IN_CONTAINER = "start the container with: docker run --cap-add=SYS_NICE --ulimit rtprio=98 --ulimit memlock=-1"
ALLOW_DEVICE = (
    f'{JOIN_GROUP}; echo \'KERNEL=="cpu_dma_latency", '
    'GROUP="realtime", MODE="0660"\' | sudo tee /etc/udev/rules.d/99-cpu-dma-latency.rules; sudo udevadm '
    "control --reload; sudo udevadm trigger /dev/cpu_dma_latency; then log in again"
)
LEND_DEVICE = f"start the container with: docker run --device {IDLE_LATENCY}"
UNLIMITED = "unlimited"
GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
"""Read without a system call, in some 30 ns; the others (hpet, acpi_pm) take a microsecond and more."""

MOST_SLACK_NS = 100_000
"""Timer slack that the busy wait of the pacing still covers."""
ENOUGH_FOR_ISOLATION = 4
"""Processors from which on one may be kept for the loop alone."""


@dataclass(frozen=True)
class Fact:
    """One finding; ``value`` is None when it could not be read, and ``words`` say why."""

    name: str
    value: object
    words: str
    advice: str = ""

    @property
    def verdict(self) -> str:
        """``unknown``, ``advice`` or ``good``."""
        return "unknown" if self.value is None else "advice" if self.advice else "good"

    def data(self) -> Data:
        return {"value": self.value, "words": self.words, "verdict": self.verdict, "advice": self.advice}


def facts(priority: int, root: Path = Path("/")) -> list[Fact]:
    """All facts. The loop wants SCHED_FIFO at ``priority``; tests give another ``root``."""
    looks = {"scheduler": lambda place: scheduler(place, priority)} | LOOKS
    return [fact(name, look, root) for name, look in looks.items()]


def fact(name: str, look: Callable[[Path], Look], root: Path) -> Fact:
    """Return the fact that ``look`` finds under ``root``; whatever goes wrong is told as unknown."""
    try:
        return Fact(name, *look(root))
    except FileNotFoundError as error:
        return Fact(name, None, f"unknown ({error.filename}: not there)")
    except OSError as error:
        return Fact(name, None, f"unknown ({error.filename or name}: {error.strerror})")
    except Exception as error:  # a kernel that writes its files in another way must not stop the others
        return Fact(name, None, f"unknown ({type(error).__name__}: {error})")


def _limit(root: Path, title: str) -> int | str:
    """The soft limit ``title`` of this process, or ``unlimited``."""
    line = next(line for line in read(root, "proc/self/limits").splitlines() if line.startswith(title))
    word = line[len(title) :].split()[0]
    return UNLIMITED if word == UNLIMITED else int(word)


# -- what may be scheduled how ----------------------------------------------------------------------------


def kernel(root: Path) -> Look:
    """Release and preemption."""
    release, version = (read(root, f"proc/sys/kernel/{name}") for name in ("osrelease", "version"))
    preempt_rt = "PREEMPT_RT" in version
    with suppress(OSError):
        preempt_rt = preempt_rt or read(root, "sys/kernel/realtime") == "1"
    kind = "PREEMPT_RT" if preempt_rt else "without PREEMPT_RT"
    advice = "a kernel with PREEMPT_RT shortens the tail: sudo apt install linux-image-rt-amd64 (Debian)"
    return {"release": release, "preempt_rt": preempt_rt}, f"{release}, {kind}", "" if preempt_rt else advice


def scheduler(root: Path, priority: int) -> Look:
    """Try on this thread whether SCHED_FIFO at ``priority`` is granted, and take it back at once."""
    limit = _limit(root, "Max realtime priority")
    refused = ""
    policy, before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        os.sched_setscheduler(0, policy, before)
    except OSError as error:
        refused = error.strerror or str(error)
    value = {"fifo": not refused, "priority": priority, "rtprio_limit": limit}
    if not refused:
        return value, f"SCHED_FIFO {priority} is granted (rtprio limit {limit})", ""
    enough = limit == UNLIMITED or int(limit) >= priority
    advice = IN_CONTAINER if enough or container(root) else RAISE_LIMITS
    return value, f"SCHED_FIFO {priority} is refused ({refused}; rtprio limit {limit})", advice


def throttling(root: Path) -> Look:
    """The share of the time that real-time tasks may use; the rest is kept for everything else."""
    runtime, period = (int(read(root, f"proc/sys/kernel/sched_rt_{name}_us")) for name in ("runtime", "period"))
    value = {"runtime_us": runtime, "period_us": period}
    if runtime < 0:
        keep = "a loop that hangs would freeze the machine: sudo sysctl kernel.sched_rt_runtime_us=950000"
        return value, "off", keep
    advice = "" if runtime >= 0.9 * period else "sudo sysctl kernel.sched_rt_runtime_us=950000"
    return value, f"real-time tasks get {runtime / 1e3:g} of {period / 1e3:g} ms; a paced loop stays below", advice


def memory(root: Path) -> Look:
    """Find out how much memory may be locked, and whether any can be swapped out."""
    limit = _limit(root, "Max locked memory")
    swap_kb = sum(int(line.split()[2]) for line in read(root, "proc/swaps").splitlines()[1:])
    value = {"lock_limit_bytes": limit, "swap_bytes": swap_kb * 1024}
    may = "all memory" if limit == UNLIMITED else f"{int(limit) / 2**20:g} MiB"
    may += " may be locked"
    if not swap_kb:
        return value, f"{may}; no swap", ""
    return value, f"{may}; {swap_kb / 2**20:.3g} GiB of swap", "for the time of a test: sudo swapoff -a"


# -- processors -------------------------------------------------------------------------------------------


def processors(root: Path) -> Look:
    """Model and number, and those that this process may use."""
    online = numbers_of_cpus(read(root, "sys/devices/system/cpu/online"))
    lines = [line.partition(":") for line in read(root, "proc/cpuinfo").splitlines()]
    model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "model unknown")
    status = dict(line.split(":", 1) for line in read(root, "proc/self/status").splitlines() if ":" in line)
    allowed = numbers_of_cpus(status["Cpus_allowed_list"].strip())
    usable = sorted(set(allowed) & set(online))
    words = f"{len(online)} of {model}; this process may use {', '.join(map(str, usable))}"
    advice = "" if len(usable) > 1 else "two are needed: one for the loop, one for recorder and monitor (taskset)"
    return {"model": model, "online": online, "allowed": usable}, words, advice


def isolation(root: Path) -> Look:
    """Processors that the kernel keeps free of ordinary work."""
    isolated = numbers_of_cpus(read(root, "sys/devices/system/cpu/isolated"))
    online = numbers_of_cpus(read(root, "sys/devices/system/cpu/online"))
    if isolated:
        return isolated, f"isolated: {', '.join(map(str, isolated))}", ""
    last = online[-1]
    keep = (
        f"keep one for the loop: isolcpus={last} nohz_full={last} on the kernel's command line, then "
        f"taskset -c 0-{last} rths run ... --host processes (the loop takes the last one)"
    )
    return [], "no processor is isolated", keep if len(online) >= ENOUGH_FOR_ISOLATION else ""


def frequency(root: Path) -> Look:
    """Return who sets the frequency of the processors."""
    files = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = sorted({file.read_text(encoding="utf-8").strip() for file in files})
    if not governors:
        return None, "unknown (no cpufreq here: a virtual machine leaves it to its host)", ""
    advice = "" if governors == ["performance"] else "sudo cpupower frequency-set -g performance"
    return governors, f"governor {', '.join(governors)}", advice


def idle(root: Path) -> Look:
    """The longest time to wake from a state of rest that is allowed, us; whether a run may keep them from it."""
    latencies = []
    for state in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        if read(state, "disable") == "0":
            latencies.append(int(read(state, "latency")))
    if not latencies:
        return None, "unknown (no cpuidle here)", ""
    deepest = max(latencies)
    value = {"deepest_us": deepest, "kept_awake": os.access(root / IDLE_LATENCY.lstrip("/"), os.W_OK)}
    words = f"waking from the deepest state of rest takes {deepest} µs"
    if value["kept_awake"]:
        return value, f"{words}; in real time processors are kept awake", ""
    return value, f"{words}, and {IDLE_LATENCY} is refused", LEND_DEVICE if container(root) else ALLOW_DEVICE


# -- clocks -----------------------------------------------------------------------------------------------


def timer(root: Path) -> Look:
    """Slack of sleeps and resolution of the monotonic clock."""
    slack = int(read(root, "proc/self/timerslack_ns"))
    resolution = round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9)
    words = f"slack {slack / 1e3:g} µs (none under SCHED_FIFO), resolution {resolution} ns"
    advice = "boot without highres=off" if resolution > 1000 else ""
    if slack > MOST_SLACK_NS:
        advice = "start from a shell with the usual slack of 50 µs (a service: TimerSlackNSec=50us)"
    return {"slack_ns": slack, "resolution_ns": resolution}, words, advice


def clock_source(root: Path) -> Look:
    """Where the kernel gets its time."""
    folder = "sys/devices/system/clocksource/clocksource0"
    current = read(root, f"{folder}/current_clocksource")
    others = read(root, f"{folder}/available_clocksource").split()
    better = next((name for name in GOOD_CLOCKS if name in others), None)
    if current in GOOD_CLOCKS:
        return current, current, ""
    what = f"echo {better} | sudo tee /{folder}/current_clocksource" if better else "see `dmesg | grep -i tsc`"
    return current, f"{current}: slow to read", what


def ros(_: Path) -> Look:
    """Findings of the environment: what keeps nodes from starting, or from finding each other."""
    if words := environment.missing():
        advice = "until it is, composed and processes below are what this machine could do, and cannot run"
        return {"missing": words}, words, advice
    found = environment.findings()
    words = "; ".join(f"{each.variable}: {each.problem}" for each in found)
    told = words or "the environment lets nodes start and find each other"
    advice = "; ".join(f"{each.variable}: {each.advice}" for each in found)
    return {each.variable: each.problem for each in found}, told, advice


LOOKS: dict[str, Callable[[Path], Look]] = {
    "kernel": kernel,
    "throttling": throttling,
    "memory": memory,
    "processors": processors,
    "isolation": isolation,
    "frequency": frequency,
    "idle": idle,
    "timer": timer,
    "clock source": clock_source,
    "virtualisation": virtualisation,
    "quota": quota,
    "steal": steal,
    "real-time tasks": real_time_tasks,
    "load": load,
    "ROS 2": ros,
}
