# SPDX-License-Identifier: Apache-2.0
"""Random faults in the node hosts, run after run: python benchmarks/soak.py --runs 200 --seed 1

Every run is `rths run` in separate processes, with one fault of random kind, time, arguments, host, pace and
transport. The recording is checked: commands within stroke and velocity limits, bridging no longer than
`bridge.max_bridge`, then braking with the deceleration of the safe stop, a reason if the run stopped, a documented
exit code, and no remaining process, socket or file. Each violation is printed with the command that repeats it.
The exit code is 1 if there was a violation.

Some faults come from outside: a node of the host processes receives SIGKILL, SIGSTOP, or SIGSTOP and SIGCONT at
any time, also before the test begins. `--signals` uses only these faults.
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
from pathlib import Path

import numpy as np
from faults import nodes_of, running

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.loop.supervision.safe_stop import excess_travel
from rths_nodes.recording import bag
from rths_nodes.ros.transport import greeting

SCENARIO, DURATION = "chen_ricles_2010", 1.0
ROOT = str(Path(__file__).resolve().parents[1])
LONGEST_S = 60.0
"""A run that takes longer hangs."""
OUTCOMES = {0: "finished", 1: "failed", 3: "tripped"}
STRUCK = {"realtime": 3.0, "lockstep": 9.0}
"""Length of a test that is struck by a signal, s; in lockstep it takes a third of that."""
LATEST_S = 2.8
"""A signal comes so long after the first samples are in the recording; where its time is negative, so long after
the start of the node."""
BEGUN = 100_000
"""Bytes of a recording that has begun."""
SIGNALS = {"SIGKILL": 20.0, "SIGSTOP": 40.0, "SIGCONT": 40.0}
"""From outside, and how long after it all must have ended, s, also on a busy machine: before the test its peers
wait 30 s for a node that stands still, and under way the runner 20 s for the actuator node."""

STREAMS = ("target", "command", "measurement")
LOOP = ("integrator", "compensator", "actuator")
NODES = (*LOOP, "monitor", "recorder")


@dataclass(frozen=True)
class Trial:
    """One run, with one fault."""

    host: str
    pace: str
    transport: str
    kind: str
    words: str
    seed: int

    @property
    def arguments(self) -> list[str]:
        """Arguments of `rths`, without the recording."""
        words = ["run", SCENARIO, "--host", self.host, "--pace", self.pace, "--transport", self.transport]
        words += [] if self.kind in SIGNALS else ["--fault", self.words]
        duration = STRUCK[self.pace] if self.kind in SIGNALS else DURATION
        for value in (f"duration={duration:g}", f"seed={self.seed}", "port.longest_wait=1"):
            words += ["--set", value]
        return words

    @property
    def loses_recording(self) -> bool:
        """True where the recorder cannot close what it writes."""
        return self.kind == "disk_full" or self.words.endswith(":recorder")


def trial(chance: random.Random, signals: bool) -> Trial:
    """A run with a fault, which comes from outside where only ``signals`` are wanted."""
    while True:
        host, pace = chance.choice(("composed", "processes")), chance.choice(("realtime", "realtime", "lockstep"))
        kind, words = fault_of(chance, host, pace)
        transport = chance.choice(("sockets", "sockets", "topics"))
        if kind in SIGNALS or not signals:
            return Trial(host, pace, transport, kind, words, chance.randint(1, 1000))


def fault_of(chance: random.Random, host: str, pace: str) -> tuple[str, str]:
    """Kind and words of a fault that has a meaning on ``host`` at ``pace``."""
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
    """Findings on one run: what was violated, the largest step as a share of the limit, the time to rest, s."""

    outcome: str = ""
    violations: list[str] = field(default_factory=list)
    jump: float = 0.0
    safe: float = 0.0
    end: float = 0.0
    """Until everything had ended after a signal, s."""

    def add(self, right: bool, violation: str) -> None:
        if not right:
            self.violations.append(violation)


def judge(record: Path, code: int, output: str, tried: Trial) -> Judgement:
    struck, gone = tried.kind in SIGNALS, tried.loses_recording
    outcomes = OUTCOMES | ({2: "refused"} if struck else {})
    found = Judgement(outcomes.get(code, f"exit code {code}"))
    found.add(code in outcomes, f"exit code {code}")
    found.add("Traceback" not in output, "a traceback")
    found.add(code == 0 or "reason:" in output, "no reason is told")
    told = re.search(r"after (\d+) samples", output)  # a busy machine may end the test before the fault
    if struck and not (told and int(told[1])):
        found.outcome += " before it began"
        return found
    try:
        if gone:
            bag.recover(record)
        run = rths_nodes.read(record)
    except (ConfigError, OSError, ValueError) as error:
        found.add(False, f"the recording cannot be read: {error}")
        return found
    limits, dt = next(iter(run.scenario.limits.values())), run.scenario.dt
    sent, flags = run.command[:, 0], run.flags
    found.add(bool(np.isfinite(sent).all()), "a command is no number")
    found.add(bool(np.abs(sent).max(initial=0.0) <= limits.stroke), "a command leaves the stroke")
    found.jump = float(np.abs(np.diff(sent, prepend=0.0)).max(initial=0.0) / (limits.velocity * dt))
    found.add(found.jump <= 1.0 + 1e-9, f"a command jumps: {found.jump:.3f} of the limit")
    edges = np.flatnonzero(np.diff((flags & FLAG_BRIDGED) > 0, prepend=False, append=False))
    longest = int(np.diff(edges)[::2].max(initial=0))
    found.add(longest <= run.scenario.bridge.longest(dt), f"{longest} samples bridged in a row")
    tripped = np.flatnonzero(flags & FLAG_TRIPPED)
    if len(tripped) and not gone:
        first = int(tripped[0])
        while first and flags[first - 1] & FLAG_BRIDGED:
            first -= 1
        found.safe = (len(sent) - first) * dt
        travel = float(np.abs(sent[first:] - sent[max(first - 1, 0)]).max())
        speed = float(np.abs(np.diff(sent, prepend=0.0))[max(first - 1, 0)]) / dt
        stop = run.scenario.bridge.max_bridge + speed / limits.deceleration + 2 * dt
        found.add(found.safe <= stop, f"at rest only after {1e3 * found.safe:.0f} ms of {1e3 * stop:.0f}")
        found.add(
            travel <= excess_travel(limits, run.scenario.bridge.max_bridge), f"{1e3 * travel:.1f} mm further"
        )
        found.add(bool(run.information.get("reason")), "no reason in the recording")
    until = dt * int(told[1]) if told else math.inf
    fault = math.inf if struck else float(tried.words.partition("@")[2].partition(":")[0])
    if until < fault < math.inf:
        found.outcome += " before the fault"
    lost = min(fault, until) - len(flags) * dt
    # what waits to be written is a matter of the clock, which samples in lockstep know nothing of
    allowed = 0.2 if tried.pace == "realtime" else DURATION
    if not (gone and struck):  # when that came is not known in samples
        found.add(lost <= (allowed if gone else 2 * dt), f"{1e3 * lost:.0f} ms before the fault are missing")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="then no further run begins; default: %(default)g"
    )
    parser.add_argument("--signals", action="store_true", help="only faults from outside")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    end = time.monotonic() + 60.0 * options.minutes
    judgements: dict[str, list[Judgement]] = defaultdict(list)
    for _ in range(options.runs):
        if time.monotonic() > end:
            print(f"{options.minutes:g} minutes are over")
            break
        tried = trial(chance, options.signals)
        judgements[tried.kind].append(run_one(tried))
    return tell(judgements)


def run_one(tried: Trial) -> Judgement:
    with tempfile.TemporaryDirectory(prefix="rths_soak_") as folder:
        record = Path(folder) / "run"
        command = [sys.executable, "-m", "rths_nodes.app.cli", *tried.arguments, "--record", str(record)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)]),
            "TMPDIR": folder,
        }
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment
        ) as runner:
            try:
                struck = strike(runner, record, tried.words) if tried.kind in SIGNALS else math.inf
                output, _ = runner.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                judgement = Judgement("hangs", [f"takes longer than {LONGEST_S:g} s"])
                runner.kill()
            else:
                judgement = judge(record, runner.returncode, output, tried)
                if tried.kind in SIGNALS:
                    judgement.end = max(0.0, time.monotonic() - struck)
                    in_time = judgement.end < SIGNALS[tried.kind]
                    judgement.add(in_time, f"ended only {judgement.end:.1f} s after the signal")
        judgement.violations += left_behind(runner.pid, Path(folder))
    for violation in judgement.violations:
        print(f"{violation}:  rths {' '.join(tried.arguments)}  # {tried.words}", flush=True)
    return judgement


def strike(runner: subprocess.Popen[str], record: Path, words: str) -> float:
    """Send a node of ``runner`` the signal that ``words`` name; when, s. Infinite where it had ended before."""
    kind, _, rest = words.partition("@")
    moment, _, rest = rest.partition(":")
    role, _, hold = rest.partition(",")
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
    """Processes, names of sockets and files that a run has left, in words."""
    names = greeting.address("/", int(os.environ.get("ROS_DOMAIN_ID", "0"))).decode().replace("\0", "@")
    found = [f"the {role} node still runs" for role, node in nodes_of(runner).items() if running(node)]
    there = Path("/proc/net/unix").read_text().splitlines()
    found += [f"left {line.split()[-1]}" for line in there if names in line]
    return found + [f"left {path.name}" for path in folder.iterdir() if path.name != "run"]


def tell(judgements: dict[str, list[Judgement]]) -> int:
    print(
        f"{'fault':15}{'runs':>5}  {'outcomes':60}{'worst step/limit':>17}{'to rest, ms':>13}{'to end, s':>11}"
        f"{'violations':>12}"
    )
    everything = [judgement for found in judgements.values() for judgement in found]
    for kind, found in [*sorted(judgements.items()), ("all", everything)]:
        outcomes = ", ".join(f"{count} {name}" for name, count in Counter(j.outcome for j in found).items())
        worst, safe, end = (
            max((getattr(j, name) for j in found), default=0.0) for name in ("jump", "safe", "end")
        )
        violated = sum(bool(j.violations) for j in found)
        print(f"{kind:15}{len(found):5}  {outcomes:60}{worst:17.3f}{1e3 * safe:13.0f}{end:11.1f}{violated:12}")
    return int(any(judgement.violations for judgement in everything))


if __name__ == "__main__":
    sys.exit(main())
