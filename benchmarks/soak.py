# SPDX-License-Identifier: Apache-2.0
"""Random faults in the node hosts: python benchmarks/soak.py --runs 200 --seed 1

Each run is `rths run` on a random host, pace and transport, with one fault of random kind, time and arguments.
Checks: commands within stroke and velocity limits, bridging no longer than `bridge.max_bridge`, then braking with
the deceleration of the safe stop, a reason if the run stopped, a documented exit code, and no remaining process,
socket or file. Each violation is printed with the command that repeats it. The exit code is 1 if there was one.

Some faults are signals: a node of the host processes receives SIGKILL, SIGSTOP, or SIGSTOP and SIGCONT at any
time, also before the test begins. `--signals` uses only these faults.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from faults import nodes_of, running

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.loop.supervision.safe_stop import excess_travel
from rths_nodes.recording import bag
from rths_nodes.ros.transport import line

SCENARIO, DURATION = "chen_ricles_2010", 1.0
ROOT = str(Path(__file__).resolve().parents[1])
LONGEST_S = 60.0
"""Time after which a run counts as hung, s."""
OUTCOMES = {0: "finished", 1: "failed", 3: "tripped"}
STRUCK = {"realtime": 3.0, "lockstep": 9.0}
"""Duration of a test whose fault is a signal, s; in lockstep it takes a third of that time."""
LATEST_S = 2.8
"""Latest time of a signal after the first samples are in the recording, s. Negative times count from the start of
the node."""
BEGUN = 100_000
"""Size of a recording with first samples, bytes."""
SIGNALS = {"SIGKILL": 20.0, "SIGSTOP": 40.0, "SIGCONT": 40.0}
"""Longest time from the signal to the end of the run on a busy machine, s. Before the test, nodes wait 30 s for a
frozen peer; during the test, the runner waits 20 s for the actuator node."""

STREAMS = ("target", "command", "measurement")
LOOP = ("integrator", "compensator", "actuator")
NODES = (*LOOP, "monitor", "recorder")


@dataclass(frozen=True)
class Trial:
    """One run with one fault, as KIND@TIME:ARGUMENTS."""

    host: str
    pace: str
    transport: str
    kind: str
    fault: str
    seed: int

    @property
    def arguments(self) -> list[str]:
        """Arguments of `rths`, without the recording."""
        arguments = ["run", SCENARIO, "--host", self.host, "--pace", self.pace, "--transport", self.transport]
        arguments += [] if self.kind in SIGNALS else ["--fault", self.fault]
        duration = STRUCK[self.pace] if self.kind in SIGNALS else DURATION
        for value in (f"duration={duration:g}", f"seed={self.seed}", "port.longest_wait=1"):
            arguments += ["--set", value]
        return arguments

    @property
    def loses_recording(self) -> bool:
        """True if the recorder cannot close its file."""
        return self.kind == "disk_full" or self.fault.endswith(":recorder")


def random_trial(chance: random.Random, signals: bool) -> Trial:
    """Draw a run with a fault; only a signal if ``signals`` is true."""
    while True:
        host, pace = chance.choice(("composed", "processes")), chance.choice(("realtime", "realtime", "lockstep"))
        kind, fault = fault_of(chance, host, pace)
        transport = chance.choice(("sockets", "sockets", "topics"))
        if kind in SIGNALS or not signals:
            return Trial(host, pace, transport, kind, fault, chance.randint(1, 1000))


def fault_of(chance: random.Random, host: str, pace: str) -> tuple[str, str]:
    """Draw kind and text of a fault that is possible on ``host`` at ``pace``."""
    count, every = chance.randint(1, 5), chance.randint(20, 200)
    stream, node = chance.choice(STREAMS), chance.choice(NODES)
    channel = chance.choice(("displacement", "force"))
    kinds = {
        "drop": f"{stream},{count},{every}",
        "duplicate": f"{stream},{count},{every}",
        "corrupt": f"{stream},{count},{every}",
        "nan": f"{stream},{chance.choice(('nan', 'inf', '-inf'))}",
        "sensor_stuck": f"story_1,{channel},{chance.uniform(0.002, 0.3):.3f}",
        "sensor_spike": f"story_1,{channel},{chance.choice((1e-3, 1e-1, 1e5, 1e8)):g}",
        "kill": node,
        "freeze": f"{node},{chance.choice((0.002, 0.008, 0.02, 0.2)):g}",
        "disk_full": "",
    }
    if pace == "realtime":
        kinds |= {
            "delay": f"{stream},{chance.randint(1, 60)},{count},{every}",
            "late": f"{stream},{chance.uniform(0.01, 0.3):.2f},{chance.randint(1, 4)}",
            "reorder": f"{stream},{count},{every}",
            "slow": f"{chance.choice(LOOP)},{chance.choice((0.001, 0.005, 0.03)):g},{count}",
        }
    if host == "processes":
        kinds |= {
            "SIGKILL": node,
            "SIGSTOP": node,
            "SIGCONT": f"{node},{chance.choice((0.002, 0.02, 0.2, 1.0)):g}",
        }
    kind = chance.choice(sorted(kinds))
    if kind in SIGNALS:
        return kind, f"{kind}@{chance.uniform(-0.3 * LATEST_S, LATEST_S):.3f}:{kinds[kind]}"
    return kind, f"{kind}@{chance.uniform(0.0, 0.9 * DURATION):.3f}:{kinds[kind]}".rstrip(":")


@dataclass
class Judgement:
    """Findings on one run."""

    outcome: str = ""
    violations: list[str] = field(default_factory=list)
    jump: float = 0.0
    """Largest step of a command, as a fraction of the velocity limit."""
    safe: float = 0.0
    """Time to rest, s."""
    end: float = 0.0
    """Time from a signal to the end of the run, s."""

    def check(self, met: bool, violation: str) -> None:
        if not met:
            self.violations.append(violation)


def judge(record: Path, code: int, output: str, trial: Trial) -> Judgement:
    """Check the exit code, output and recording of a run."""
    struck, cut = trial.kind in SIGNALS, trial.loses_recording
    outcomes = OUTCOMES | ({2: "refused"} if struck else {})
    result = Judgement(outcomes.get(code, f"exit code {code}"))
    result.check(code in outcomes, f"exit code {code}")
    result.check("Traceback" not in output, "traceback in the output")
    result.check(code == 0 or "reason:" in output, "no reason in the output")
    samples = re.search(r"after (\d+) samples", output)  # a busy machine may end the test before the fault
    if struck and not (samples and int(samples[1])):
        result.outcome += " before it began"
        return result
    try:
        if cut:
            bag.recover(record)
        run = rths_nodes.read(record)
    except (ConfigError, OSError, ValueError) as error:
        result.check(False, f"cannot read the recording: {error}")
        return result
    limits, dt = next(iter(run.scenario.limits.values())), run.scenario.dt
    command, flags = run.command[:, 0], run.flags
    steps = np.abs(np.diff(command, prepend=0.0))
    result.check(bool(np.isfinite(command).all()), "a command is not finite")
    result.check(bool(np.abs(command).max(initial=0.0) <= limits.stroke), "a command exceeds the stroke")
    result.jump = float(steps.max(initial=0.0) / (limits.velocity * dt))
    result.check(result.jump <= 1.0 + 1e-9, f"a command jumps by {result.jump:.3f} of the velocity limit")
    edges = np.flatnonzero(np.diff((flags & FLAG_BRIDGED) > 0, prepend=False, append=False))
    longest = int(np.diff(edges)[::2].max(initial=0))
    result.check(longest <= run.scenario.bridge.longest(dt), f"{longest} consecutive samples bridged")
    tripped = np.flatnonzero(flags & FLAG_TRIPPED)
    if len(tripped) and not cut:
        first = int(tripped[0])
        while first and flags[first - 1] & FLAG_BRIDGED:
            first -= 1
        result.safe = (len(command) - first) * dt
        travel = float(np.abs(command[first:] - command[max(first - 1, 0)]).max())
        speed = float(steps[max(first - 1, 0)]) / dt
        stop = run.scenario.bridge.max_bridge + speed / limits.deceleration + 2 * dt
        farthest = excess_travel(limits, run.scenario.bridge.max_bridge)
        result.check(result.safe <= stop, f"at rest after {1e3 * result.safe:.0f} ms, stated {1e3 * stop:.0f} ms")
        result.check(travel <= farthest, f"moved {1e3 * travel:.1f} mm further, stated {1e3 * farthest:.1f} mm")
        result.check(bool(run.information.get("reason")), "no reason in the recording")
    end = dt * int(samples[1]) if samples else math.inf
    fault = math.inf if struck else float(trial.fault.partition("@")[2].partition(":")[0])
    if end < fault < math.inf:
        result.outcome += " before the fault"
    lost = min(fault, end) - len(flags) * dt
    # the recorder writes at intervals of the clock; in lockstep any number of samples may pass between them
    allowed = 0.2 if trial.pace == "realtime" else DURATION
    if not (cut and struck):  # the sample of a signal is not known
        result.check(lost <= (allowed if cut else 2 * dt), f"{1e3 * lost:.0f} ms before the fault are missing")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="default: %(default)d")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)d")
    parser.add_argument("--minutes", type=float, default=60.0, help="latest start of a run; default: %(default)g")
    parser.add_argument("--signals", action="store_true", help="only signals")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    end = time.monotonic() + 60.0 * options.minutes
    judgements: dict[str, list[Judgement]] = defaultdict(list)
    for _ in range(options.runs):
        if time.monotonic() > end:
            print(f"stopped after {options.minutes:g} minutes")
            break
        trial = random_trial(chance, options.signals)
        judgements[trial.kind].append(run_one(trial))
    return print_table(judgements)


def run_one(trial: Trial) -> Judgement:
    """Make a run, check it, and print its violations."""
    with tempfile.TemporaryDirectory(prefix="rths_soak_") as folder:
        record = Path(folder) / "run"
        command = [sys.executable, "-m", "rths_nodes.app.cli", *trial.arguments, "--record", str(record)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)]),
            "TMPDIR": folder,
        }
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment
        ) as runner:
            try:
                struck = strike(runner, record, trial.fault) if trial.kind in SIGNALS else math.inf
                output, _ = runner.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                judgement = Judgement("hangs", [f"takes longer than {LONGEST_S:g} s"])
                runner.kill()
            else:
                judgement = judge(record, runner.returncode, output, trial)
                if trial.kind in SIGNALS:
                    judgement.end = max(0.0, time.monotonic() - struck)
                    in_time = judgement.end < SIGNALS[trial.kind]
                    judgement.check(in_time, f"ended {judgement.end:.1f} s after the signal")
        judgement.violations += left_behind(runner.pid, Path(folder))
    for violation in judgement.violations:
        print(f"{violation}:  rths {' '.join(trial.arguments)}  # {trial.fault}", flush=True)
    return judgement


def strike(runner: subprocess.Popen[str], record: Path, fault: str) -> float:
    """Send the signal of ``fault`` to a node. Return the time, s; infinite if the node had ended before."""
    kind, moment, role, hold = re.fullmatch(r"(\w+)@([^:]+):(\w+),?(.*)", fault).groups()
    after, journal = float(moment), record / "run_0.mcap"
    while runner.poll() is None and role not in nodes_of(runner.pid):
        time.sleep(0.02)
    while after >= 0.0 and runner.poll() is None and not (journal.exists() and journal.stat().st_size > BEGUN):
        time.sleep(0.02)
    time.sleep(abs(after))
    node = nodes_of(runner.pid).get(role)
    if node is None:
        return math.inf
    with suppress(ProcessLookupError):
        os.kill(node, signal.SIGKILL if kind == "SIGKILL" else signal.SIGSTOP)
        if kind == "SIGCONT":
            time.sleep(float(hold))
            os.kill(node, signal.SIGCONT)
    return time.monotonic()


def left_behind(runner: int, folder: Path) -> list[str]:
    """Describe the processes, sockets and files that remain after a run."""
    name = line.address("/", int(os.environ.get("ROS_DOMAIN_ID", "0"))).decode().replace("\0", "@")
    nodes = [f"the {role} node still runs" for role, node in nodes_of(runner).items() if running(node)]
    sockets = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if name in line]
    files = [path.name for path in folder.iterdir() if path.name != "run"]
    return nodes + [f"left {item}" for item in sockets + files]


def print_table(judgements: dict[str, list[Judgement]]) -> int:
    """Print the results by kind of fault and return the exit code."""
    print(
        f"{'fault':15}{'runs':>5}  {'outcomes':60}{'worst step/limit':>17}{'to rest, ms':>13}{'to end, s':>11}"
        f"{'violations':>12}"
    )
    runs = list(chain(*judgements.values()))
    for kind, rows in [*sorted(judgements.items()), ("all", runs)]:
        outcomes = ", ".join(f"{count} {name}" for name, count in Counter(row.outcome for row in rows).items())
        largest = (max((getattr(row, name) for row in rows), default=0.0) for name in ("jump", "safe", "end"))
        jump, safe, end = largest
        violated = sum(bool(row.violations) for row in rows)
        print(f"{kind:15}{len(rows):5}  {outcomes:60}{jump:17.3f}{1e3 * safe:13.0f}{end:11.1f}{violated:12}")
    return int(any(row.violations for row in runs))


if __name__ == "__main__":
    sys.exit(main())
