# SPDX-License-Identifier: Apache-2.0
"""Other load on the machine, beside the loop: a hypervisor, a quota, other programs. Read from /proc and /sys."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

Look = tuple[object, str, str]
"""Plain value, the same in words, advice (empty: none is needed)."""


def read(root: Path, name: str) -> str:
    """Text of a file under ``root``, stripped."""
    return (root / name).read_text(encoding="utf-8", errors="replace").strip()


def numbers_of_cpus(words: str) -> list[int]:
    """``0-2,5`` -> ``[0, 1, 2, 5]``."""
    found: list[int] = []
    for part in filter(None, words.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


MOST_STEAL = 0.001
"""Share of the time that others may have stolen from a virtual machine."""
MOST_LOAD = 0.25
"""Load per processor that is quiet."""


def virtualisation(root: Path) -> Look:
    """A hypervisor below, a container around."""
    cpuinfo = read(root, "proc/cpuinfo")
    names = []
    for file in ("sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/hypervisor/type"):
        with suppress(OSError):
            names.append(read(root, file))
    virtual = any(line.startswith("flags") and " hypervisor" in line for line in cpuinfo.splitlines())
    kind = container(root)
    value = {"virtual": virtual, "machine": " ".join(names), "container": kind}
    words = "a virtual machine" if virtual else "no hypervisor seen"
    words += f" ({' '.join(names)})" if names else ""
    words += f", in a container ({kind})" if kind else ""
    advice = "a hypervisor may stop the loop at any time: a rig needs a machine of its own" if virtual else ""
    return value, words, advice


def container(root: Path) -> str:
    """The kind of container around this process; empty without one."""
    marks = (("docker", ".dockerenv"), ("podman", "run/.containerenv"), ("systemd", "run/systemd/container"))
    return next((kind for kind, file in marks if (root / file).exists()), "")


def quota(root: Path) -> Look:
    """The smallest share of a processor that a control group leaves to this process."""
    shares = [share for group in _groups(root) if (share := _share(*group)) is not None]
    if not shares:
        return {"processors": None}, "none", ""
    share = min(shares)
    advice = "a quota stops the loop until its period is over: remove --cpus (docker), CPUQuota= (systemd)"
    return {"processors": share}, f"{share:g} processors by a control group", advice


def _groups(root: Path) -> list[tuple[Path, str]]:
    """Folders of the control groups of this process, up to the outermost, with the file of the quota."""
    found = []
    for line in read(root, "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            heads, file = ("sys/fs/cgroup", "sys/fs/cgroup/unified"), "cpu.max"
        elif "cpu" in controllers.split(","):
            heads, file = ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "cpu.cfs_quota_us"
        else:
            continue
        for head in heads:
            inner = Path(path.lstrip("/"))
            found += [(root / head / place, file) for place in (inner, *inner.parents)]
    return found


def _share(group: Path, file: str) -> float | None:
    """Processors that the quota of ``group`` gives; None without one."""
    if not (group / file).is_file():
        return None
    first, *rest = read(group, file).split()
    if first in ("max", "-1"):
        return None
    return int(first) / int(rest[0] if rest else read(group, "cpu.cfs_period_us"))


def processor_times(root: Path = Path("/")) -> tuple[int, int]:
    """Time stolen by the hypervisor, and all time, of all processors since the start, in ticks."""
    values = [int(word) for word in read(root, "proc/stat").splitlines()[0].split()[1:9]]
    return values[7], sum(values)


def steal(root: Path) -> Look:
    """Share of the time since the start that a hypervisor gave to others."""
    stolen, total = processor_times(root)
    share = stolen / total
    advice = "others use this processor: a rig needs a machine of its own" if share > MOST_STEAL else ""
    return share, f"{100.0 * share:.2g} % of the time since the start", advice


def real_time_tasks(root: Path) -> Look:
    """Other programs under real-time scheduling, ready to run now: they stop ours for as long as they like."""
    found = []
    for folder in (root / "proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # a process that has ended meanwhile
            words = read(folder, "stat").rpartition(")")[2].split()
            state, policy = words[0], int(words[38])
            kernel_thread = not (folder / "cmdline").read_bytes()
            if policy in (os.SCHED_FIFO, os.SCHED_RR) and state == "R" and not kernel_thread:
                found.append(int(folder.name))
    found = sorted(set(found) - {os.getpid()})
    if not found:
        return [], "no other program runs under it now", ""
    shown = ", ".join(map(str, found))
    return (
        found,
        f"processes {shown} run under it now",
        f"end them if they are left over: ps -p {shown.replace(' ', '')}",
    )


def load(root: Path) -> Look:
    """Tasks that were ready to run in the last minute."""
    tasks = float(read(root, "proc/loadavg").split()[0])
    count = len(numbers_of_cpus(read(root, "sys/devices/system/cpu/online")))
    advice = "others are at work here; stop them before a test (top)" if tasks > MOST_LOAD * count else ""
    return tasks, f"{tasks:g} tasks on {count} processors in the last minute", advice
