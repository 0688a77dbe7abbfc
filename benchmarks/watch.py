# SPDX-License-Identifier: Apache-2.0
"""Time for which a pulse continues after the test computer freezes or dies, with real processes in real time.

An emulated rig, a watcher with its own sensors, and a test that is operated by its services run as processes of
this machine. In the strong part of the last rung, the process of the test receives SIGSTOP or SIGKILL. A socket
receives the signals for the interlock. For comparison, a whole test runs to its end and must not end the pulse.

    python benchmarks/watch.py --runs 10
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rths_nodes.app.procedure.operator_socket import Answer, SocketOperator
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.watcher import PulseListener

SCENARIO, RIG = "chen_ricles_2010", "bench_watched"
STATED_S = 0.05
CAUSES = {"frozen": signal.SIGSTOP, "killed": signal.SIGKILL}
PATIENCE_S = 90.0
EARLIEST_S, LATEST_S = 3.5, 7.0
"""The cause comes so long after the act that runs the rung, whose motion begins 2 s later: El Centro, strong."""
TRIES = 10
"""A run whose pulse has ended before its cause, as on a busy machine, is tried again so often."""


@dataclass
class Found:
    """One run: s from the cause to the last pulse, and why the watcher has ended it."""

    cause: str
    lasted: float
    words: str


class Bench:
    """Emulator, watcher, test and interlock, each a process but the last, below ``folder``."""

    def __init__(self, stack: ExitStack, folder: Path, number: int, duration: float) -> None:
        self.namespace = f"watched_{os.getpid()}_{number}"
        self._folder = folder
        text = Path(files.locate(RIG, files.RIG)).read_text(encoding="utf-8")
        self._far, self._own, pulse = free_ports(3)
        text = text.replace("type: udp,", f"type: udp, port: {self._far},")
        text = text.replace("port: 25020", f"port: {self._own}").replace("port: 25030", f"port: {pulse}")
        self._rig = folder / "watched.yaml"
        self._rig.write_text(text, encoding="utf-8")
        self.interlock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.interlock.bind(("127.0.0.1", pulse))
        self.interlock.setblocking(False)
        self.listener = PulseListener(math.inf)
        self.last = 0.0
        """When the last pulse came, s."""
        self.longest = 0.0
        """Longest time between two pulses, s."""
        scenario = [SCENARIO, "--rig", str(self._rig), "--set", f"duration={duration}"]
        stack.enter_context(self._process("emulate", *scenario, "--again", "--sensors", "127.0.0.1"))
        record = folder / "watch.jsonl"
        watching = ["watch", str(self._rig), "--namespace", self.namespace, "--out", str(record)]
        self.watcher = stack.enter_context(self._process(*watching))
        self.pulses_for(1.0)
        answers = folder / "answers.yaml"
        answers.write_text("operator: A. Tester\nspecimen: damper\nrungs: [g]\n", encoding="utf-8")
        test = ["test", *scenario, "--socket", self.namespace, "--answers", str(answers), "--no-report"]
        self.test = stack.enter_context(self._process(*test, "--record", str(folder / "test")))
        self._operator = SocketOperator(self.namespace)

    @contextmanager
    def _process(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        out = self._folder / f"{words[0]}.log"
        with out.open("wb") as log:
            command = [sys.executable, "-m", "rths_nodes.app.cli", *words]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
                try:
                    process.wait(20.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    # -- the interlock ------------------------------------------------------------------------------------

    def receive(self) -> bool:
        """Take the pulses that are here; whether one was."""
        found = False
        with suppress(BlockingIOError):
            while True:
                now = time.monotonic()
                if self.listener.receive(self.interlock.recv(64), now):
                    self.longest = max(self.longest, now - self.last) if self.last else 0.0
                    self.last, found = now, True
        return found

    def pulses_for(self, seconds: float) -> None:
        """Wait until the pulse has gone on for some time. Raises ConfigError where it does not."""
        end, begun = time.monotonic() + PATIENCE_S, 0.0
        while time.monotonic() < end:
            select.select([self.interlock], [], [], 0.05)
            if self.receive():
                begun = begun or time.monotonic()
            if begun and time.monotonic() - begun > seconds:
                return
        raise ConfigError("no pulse")

    def until(self, reached: Callable[[], bool]) -> bool:
        """Hear pulses until something is reached; False where the pulse, or patience, has ended before."""
        end = time.monotonic() + PATIENCE_S
        while not reached():
            if self.watcher.poll() is not None or time.monotonic() > end:
                return False
            select.select([self.interlock], [], [], 0.002)
            self.receive()
        return True

    def told(self) -> str:
        """Return all that the watcher has said."""
        return (self._folder / "watch.log").read_text(encoding="utf-8")

    def words(self) -> str:
        """Return what the watcher has said last."""
        lines = self.told().strip().splitlines()
        return lines[-1].partition(": ")[2] if lines else ""

    # -- the operator -------------------------------------------------------------------------------------

    def act(self, act: str, **arguments: str) -> Answer:
        told = self._operator.ask(act, by="A. Tester", **arguments)
        if act and not told.done:
            raise ConfigError(f"{act}: {told.reason}")
        return told

    def lead(self) -> None:
        """Lead the test up to the rung that is armed."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.act("")
                break
            except (ConfigError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        self.act("connect")
        told = self.act("take_offsets", seconds="0.5")
        self.act("confirm_offsets", hash=told.offsets_hash, unloaded="true")
        told = self.act("check", clear="CLEAR")
        for what in told.to_sign:
            self.act("sign_for", what=what)
        told = self.act("position", clear="CLEAR")
        hashes = {"scenario_hash": told.scenario_hash, "offsets_hash": told.offsets_hash}
        self.act("arm", rung=told.next_rung, **hashes)


def free_ports(count: int) -> list[int]:
    """UDP ports that nobody has."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def leading(bench: Bench) -> Callable[[], bool]:
    """Lead the test in a thread; what tells whether it has come to its end."""
    import threading

    failed: list[BaseException] = []

    def lead() -> None:
        try:
            bench.lead()
            bench.act("run", clear="CLEAR")
            bench.act("finish")
        except (ConfigError, OSError, EOFError) as error:
            failed.append(error)

    thread = threading.Thread(target=lead, daemon=True)
    thread.start()

    def over() -> bool:
        if failed and "answered" not in str(failed[0]):
            raise ConfigError(str(failed[0]))
        return not thread.is_alive()

    return over


def run(cause: str, number: int, draw: np.random.Generator, duration: float) -> Found | None:
    """One test with its cause, None where the pulse has ended before it; ``none`` is a whole test."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(stack, Path(folder), number, duration)
        over = leading(bench)
        if cause == "none":
            whole = bench.until(over)
            bench.until(lambda: not bench.receive())
            return Found(cause, bench.longest if whole else math.nan, "" if whole else bench.words())
        if not bench.until(lambda: State.RUNNING.name in bench.told()):
            return None
        due = time.monotonic() + draw.uniform(EARLIEST_S, LATEST_S)
        if not bench.until(lambda: time.monotonic() >= due or over()) or over():
            return None
        bench.receive()
        at = time.monotonic()
        bench.test.send_signal(CAUSES[cause])
        end = at + 1.0
        while time.monotonic() < end:
            select.select([bench.interlock], [], [], 0.002)
            bench.receive()
        bench.watcher.wait(10.0)
        return Found(cause, bench.last - at, bench.words())


def tried(cause: str, number: int, draw: np.random.Generator, duration: float) -> tuple[Found, int]:
    """The first run that came to its cause, and how many did not. Raises ConfigError where none does."""
    for more in range(TRIES):
        if (found := run(cause, number + more, draw, duration)) is not None:
            return found, more
    raise ConfigError(f"{TRIES} runs have ended before their cause: the machine is too busy")


def main() -> int:
    """Print the table; 1 where a pulse has lasted longer than stated, or has ended without a cause."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="of each cause")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", type=float, default=20.0, help="of the test, s")
    parser.add_argument("--causes", nargs="+", default=[*CAUSES, "none"], choices=[*CAUSES, "none"])
    given = parser.parse_args()
    draw = np.random.default_rng(given.seed)
    bad = False
    print("| cause | runs | last pulse after it, ms: median | largest | before its cause | words |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for place, cause in enumerate(given.causes):
        found = [tried(cause, 1000 * place + TRIES * each, draw, given.duration) for each in range(given.runs)]
        lasted = [each.lasted for each, _ in found]
        words = next((each.words for each, _ in found if each.words), "-")
        early = sum(more for _, more in found)
        if cause == "none":
            wrong = sum(map(math.isnan, lasted))
            bad |= wrong > 0
            print(f"| none: a whole test | {len(found)} | - | - | {wrong} | {words} |", flush=True)
            continue
        bad |= max(lasted) > STATED_S
        numbers = f"{1e3 * float(np.median(lasted)):.1f} | {1e3 * max(lasted):.1f}"
        print(f"| {cause} | {len(found)} | {numbers} | {early} | {words} |", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
