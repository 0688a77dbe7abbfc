"""Random faults in the node hosts, run after run: python benchmarks/soak.py --runs 200 --seed 1

Every run is `rths run` with one fault, at random in kind, time, arguments, host and pace, in processes of its own.
Its recording is judged: commands within stroke and velocity limit, bridged no longer than `bridge.max_bridge`, at
rest 50 ms after the last sample with all it needs, a reason where it stopped, an exit code that is documented.
Each violation is told with the command that repeats it; exit code 1 when there was one.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.loop.supervision.safe_stop import excess_travel
from rths_nodes.recording import bag

SCENARIO, DURATION = "chen_ricles_2010", 1.0
LONGEST_S = 60.0
"""A run that takes longer hangs."""
SAFE_S = 0.050
OUTCOMES = {0: "finished", 1: "failed", 3: "tripped"}

STREAMS = ("target", "command", "measurement")
LOOP = ("integrator", "compensator", "actuator")
NODES = (*LOOP, "monitor", "recorder")


def fault_of(chance: random.Random, pace: str) -> tuple[str, str]:
    """Kind and words of a fault that has a meaning at ``pace``."""
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
        "monitor_dead": "",
        "recorder_dead": "",
        "disk_full": "",
    }
    if pace == "realtime":
        kinds |= {
            "delay": f"{stream},{chance.randint(1, 60)},{count},{every}",
            "late": f"{stream},{chance.uniform(0.01, 0.3):.2f},{chance.randint(1, 4)}",
            "reorder": f"{stream},{count},{every}",
            "slow": f"{chance.choice(LOOP)},{chance.choice((0.001, 0.005, 0.03)):g},{count}",
        }
    kind = chance.choice(sorted(kinds))
    return kind, f"{kind}@{chance.uniform(0.0, 0.9 * DURATION):.3f}:{kinds[kind]}".rstrip(":")


@dataclass
class Judgement:
    """Of one run: what was violated, the largest step as a share of the limit, the time to rest, s."""

    outcome: str = ""
    violations: list[str] = field(default_factory=list)
    jump: float = 0.0
    safe: float = 0.0

    def add(self, right: bool, violation: str) -> None:
        if not right:
            self.violations.append(violation)


def judge(record: Path, code: int, output: str, pace: str, kind: str, words: str) -> Judgement:
    found = Judgement(OUTCOMES.get(code, f"exit code {code}"))
    found.add(code in OUTCOMES, f"exit code {code}")
    found.add("Traceback" not in output, "a traceback")
    found.add(code == 0 or "reason:" in output, "no reason is told")
    gone = kind in ("disk_full", "recorder_dead") or words.endswith((":recorder",))
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
        found.add(found.safe <= SAFE_S, f"at rest only after {1e3 * found.safe:.0f} ms")
        found.add(
            travel <= excess_travel(limits, run.scenario.bridge.max_bridge), f"{1e3 * travel:.1f} mm further"
        )
        found.add(bool(run.information.get("reason")), "no reason in the recording")
    told = re.search(r"after (\d+) samples", output)  # a busy machine may end the test before the fault
    fault = float(words.partition("@")[2].partition(":")[0])
    until = min(fault, dt * int(told[1]) if told else math.inf)
    if until < fault:
        found.outcome += " before the fault"
    lost = until - len(flags) * dt
    # what waits to be written is a matter of the clock, which samples in lockstep know nothing of
    allowed = 0.2 if pace == "realtime" else DURATION
    found.add(lost <= (allowed if gone else 2 * dt), f"{1e3 * lost:.0f} ms before the fault are missing")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="then no further run begins; default: %(default)g"
    )
    options = parser.parse_args()
    chance = random.Random(options.seed)
    end = time.monotonic() + 60.0 * options.minutes
    judgements: dict[str, list[Judgement]] = defaultdict(list)
    for _ in range(options.runs):
        if time.monotonic() > end:
            print(f"{options.minutes:g} minutes are over")
            break
        host, pace = chance.choice(("composed", "processes")), chance.choice(("realtime", "realtime", "lockstep"))
        kind, words = fault_of(chance, pace)
        judgement = run_one(host, pace, kind, words, chance.randint(1, 1000))
        judgements[kind].append(judgement)
    return tell(judgements)


def run_one(host: str, pace: str, kind: str, words: str, seed: int) -> Judgement:
    arguments = ["run", SCENARIO, "--host", host, "--pace", pace, "--fault", words]
    for value in (f"duration={DURATION:g}", f"seed={seed}", "port.longest_wait=1"):
        arguments += ["--set", value]
    with tempfile.TemporaryDirectory(prefix="rths_soak_") as folder:
        record = Path(folder) / "run"
        command = [sys.executable, "-m", "rths_nodes.app.cli", *arguments, "--record", str(record)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            judgement = Judgement("hangs", [f"takes longer than {LONGEST_S:g} s"])
        else:
            judgement = judge(record, ended.returncode, ended.stdout + ended.stderr, pace, kind, words)
    for violation in judgement.violations:
        print(f"{violation}:  rths {' '.join(arguments)}", flush=True)
    return judgement


def tell(judgements: dict[str, list[Judgement]]) -> int:
    print(f"{'fault':15}{'runs':>5}  {'outcomes':42}{'worst step/limit':>17}{'to rest, ms':>13}{'violations':>12}")
    everything = [judgement for found in judgements.values() for judgement in found]
    for kind, found in [*sorted(judgements.items()), ("all", everything)]:
        outcomes = ", ".join(f"{count} {name}" for name, count in Counter(j.outcome for j in found).items())
        worst, safe = (max((getattr(j, name) for j in found), default=0.0) for name in ("jump", "safe"))
        violated = sum(bool(j.violations) for j in found)
        print(f"{kind:15}{len(found):5}  {outcomes:42}{worst:17.3f}{1e3 * safe:13.0f}{violated:12}")
    return int(any(judgement.violations for judgement in everything))


if __name__ == "__main__":
    sys.exit(main())
