# SPDX-License-Identifier: Apache-2.0
"""Time for which a watcher's pulse continues after the test computer freezes or dies, in real time.

An emulated rig, a watcher with its own sensors, and a test operated by its services run as processes of this
machine. In the strong part of the last rung, the process of the test receives SIGSTOP or SIGKILL. A socket takes
the place of the interlock and receives the pulses. For comparison, a complete test must not end the pulse.

    python benchmarks/watch.py --runs 10

The exit code is 1 if a pulse lasts longer than stated, or ends during a complete test.
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
import threading
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
from rths_nodes.loop.watch import PulseListener

SCENARIO, RIG = "chen_ricles_2010", "bench_watched"
STATED_S = 0.05
"""Longest stated time from the cause to the last pulse, s."""
CAUSES = {"frozen": signal.SIGSTOP, "killed": signal.SIGKILL}
TIMEOUT_S = 90.0
EARLIEST_S, LATEST_S = 3.5, 7.0
"""Range of the time from the act *run* to the cause, s; the motion starts 2 s after the act."""
TRIES = 10
"""Attempts for a run whose pulse ends before the cause, as on a busy machine."""


@dataclass
class Result:
    """Time from the cause to the last pulse of one run, s, and the watcher's last message."""

    cause: str
    lasted: float
    reason: str


class Bench:
    """Processes of emulator, watcher and test with files in ``folder``, and a socket as interlock."""

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
        """Time of the last pulse, s."""
        self.longest = 0.0
        """Longest time between two pulses, s."""
        scenario = [SCENARIO, "--rig", str(self._rig), "--set", f"duration={duration}"]
        stack.enter_context(self._process("emulate", *scenario, "--again", "--sensors", "127.0.0.1"))
        watch = ["watch", str(self._rig), "--namespace", self.namespace, "--out", str(folder / "watch.jsonl")]
        self.watcher = stack.enter_context(self._process(*watch))
        self.pulses_for(1.0)
        answers = folder / "answers.yaml"
        answers.write_text("operator: A. Tester\nspecimen: damper\nrungs: [g]\n", encoding="utf-8")
        test = ["test", *scenario, "--socket", self.namespace, "--answers", str(answers), "--no-report"]
        self.test = stack.enter_context(self._process(*test, "--record", str(folder / "test")))
        self._operator = SocketOperator(self.namespace)

    @contextmanager
    def _process(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / f"{arguments[0]}.log").open("wb") as log:
            command = [sys.executable, "-m", "rths_nodes.app.cli", *arguments]
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
        """Receive the waiting pulses. Return true if there was one."""
        received = False
        with suppress(BlockingIOError):
            while True:
                now = time.monotonic()
                if self.listener.receive(self.interlock.recv(64), now):
                    self.longest = max(self.longest, now - self.last) if self.last else 0.0
                    self.last, received = now, True
        return received

    def pulses_for(self, seconds: float) -> None:
        """Receive pulses for some time after the first. Raises ConfigError if there is none."""
        end, start = time.monotonic() + TIMEOUT_S, 0.0
        while time.monotonic() < end:
            select.select([self.interlock], [], [], 0.05)
            if self.receive():
                start = start or time.monotonic()
            if start and time.monotonic() - start > seconds:
                return
        raise ConfigError(f"no pulse from the watcher in {TIMEOUT_S:g} s: {self.reason()}")

    def until(self, reached: Callable[[], bool]) -> bool:
        """Receive pulses until ``reached()`` is true. Return false if the watcher ends or the timeout expires."""
        end = time.monotonic() + TIMEOUT_S
        while not reached():
            if self.watcher.poll() is not None or time.monotonic() > end:
                return False
            select.select([self.interlock], [], [], 0.002)
            self.receive()
        return True

    def log(self) -> str:
        """Return the output of the watcher."""
        return (self._folder / "watch.log").read_text(encoding="utf-8")

    def reason(self) -> str:
        """Return the last message of the watcher."""
        lines = self.log().strip().splitlines()
        return lines[-1].partition(": ")[2] if lines else ""

    # -- the operator -------------------------------------------------------------------------------------

    def act(self, act: str, **arguments: str) -> Answer:
        answer = self._operator.ask(act, by="A. Tester", **arguments)
        if act and not answer.done:
            raise ConfigError(f"{act}: {answer.reason}")
        return answer

    def arm(self) -> None:
        """Operate the test from connect to arm."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.act("")
                break
            except (ConfigError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        self.act("connect")
        answer = self.act("take_offsets", seconds="0.5")
        self.act("confirm_offsets", hash=answer.offsets_hash, unloaded="true")
        for item in self.act("check", clear="CLEAR").to_sign:
            self.act("sign_for", what=item)
        answer = self.act("position", clear="CLEAR")
        hashes = {"scenario_hash": answer.scenario_hash, "offsets_hash": answer.offsets_hash}
        self.act("arm", rung=answer.next_rung, **hashes)


def free_ports(count: int) -> list[int]:
    """Return unused UDP ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for udp in sockets:
            udp.bind(("127.0.0.1", 0))
        return [int(udp.getsockname()[1]) for udp in sockets]


def operated(bench: Bench) -> Callable[[], bool]:
    """Operate the test in a thread. Return a function that is true after the end of the test."""
    failed: list[BaseException] = []

    def operate() -> None:
        try:
            bench.arm()
            bench.act("run", clear="CLEAR")
            bench.act("finish")
        except (ConfigError, OSError, EOFError) as error:
            failed.append(error)

    thread = threading.Thread(target=operate, daemon=True)
    thread.start()

    def ended() -> bool:
        if failed and "answered" not in str(failed[0]):
            raise ConfigError(str(failed[0]))
        return not thread.is_alive()

    return ended


def run(cause: str, number: int, draw: np.random.Generator, duration: float) -> Result | None:
    """Run a test with its cause; ``none`` is a complete test. Return None if the pulse ends before the cause."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(stack, Path(folder), number, duration)
        ended = operated(bench)
        if cause == "none":
            complete = bench.until(ended)
            bench.until(lambda: not bench.receive())
            return Result(cause, bench.longest if complete else math.nan, "" if complete else bench.reason())
        if not bench.until(lambda: State.RUNNING.name in bench.log()):
            return None
        due = time.monotonic() + draw.uniform(EARLIEST_S, LATEST_S)
        if not bench.until(lambda: time.monotonic() >= due or ended()) or ended():
            return None
        bench.receive()
        start = time.monotonic()
        bench.test.send_signal(CAUSES[cause])
        while time.monotonic() < start + 1.0:
            select.select([bench.interlock], [], [], 0.002)
            bench.receive()
        bench.watcher.wait(10.0)
        return Result(cause, bench.last - start, bench.reason())


def tried(cause: str, number: int, draw: np.random.Generator, duration: float) -> tuple[Result, int]:
    """Return the first run that reached its cause, and the number of runs before. Raises ConfigError for none."""
    for early in range(TRIES):
        if (result := run(cause, number + early, draw, duration)) is not None:
            return result, early
    raise ConfigError(f"{TRIES} runs ended before their cause: the machine is too busy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each cause; default: %(default)d")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)d")
    parser.add_argument("--duration", type=float, default=20.0, help="duration of a test, s; default: %(default)g")
    parser.add_argument("--causes", nargs="+", default=[*CAUSES, "none"], choices=[*CAUSES, "none"])
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    failed = False
    print("| cause | runs | last pulse after it, ms: median | largest | before its cause | reason |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for index, cause in enumerate(options.causes):
        numbers = range(1000 * index, 1000 * index + TRIES * options.runs, TRIES)
        results, early = zip(*(tried(cause, number, draw, options.duration) for number in numbers), strict=True)
        lasted = [result.lasted for result in results]
        reason = next((result.reason for result in results if result.reason), "-")
        if cause == "none":
            ended = sum(map(math.isnan, lasted))
            failed |= ended > 0
            print(f"| none: a complete test | {len(results)} | - | - | {ended} | {reason} |", flush=True)
            continue
        failed |= max(lasted) > STATED_S
        times = f"{1e3 * float(np.median(lasted)):.1f} | {1e3 * max(lasted):.1f}"
        print(f"| {cause} | {len(results)} | {times} | {sum(early)} | {reason} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
