# SPDX-License-Identifier: Apache-2.0
"""End of a launched test, and report of the result."""

from __future__ import annotations

import logging
import math
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from launch import LaunchContext, LaunchDescriptionEntity
from launch.actions import EmitEvent, ExecuteProcess, LogInfo, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown, matches_action
from launch.events.process import ProcessExited, SignalProcess

from rths_nodes.core.data import unflatten
from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import IN_ORDER, ExitCode, LastWords, of_nodes
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import node_processes

SPEAKERS = (names.RIG, names.ACTUATOR, names.RECORDER, names.MONITOR)
"""Roles whose reports take precedence, in this order."""


def refusal(message: str, level: int = logging.ERROR) -> RuntimeError:
    """Return an exception that ends launch with code 1 and prints only ``message``, at ``level``."""

    def without_prefix(record: logging.LogRecord) -> bool:  # prefix "Caught exception in launch ..."
        if record.getMessage().endswith(f": {message}"):
            vars(record).update(levelno=level, levelname=logging.getLevelName(level), msg=message, args=())
        return True

    logging.getLogger("launch").addFilter(without_prefix)
    return RuntimeError(message)


class EndOfLaunch:
    """Monitors the processes of a test until they exit, and owns a temporary folder for their files and reports.

    If a process exits with an error, launch ends all processes. After a trip the processes exit by themselves.
    Foreign recorders, which are not in ``peers``, are stopped after the last node. Then launch prints the result
    and exits with code 1 unless the test is valid.
    """

    def __init__(self, run_id: str, recording: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rths_")
        shorter = recording and Path(recording).is_relative_to(Path.cwd())
        self._run_id, self._recording = run_id, os.path.relpath(recording) if shorter else recording
        self._running: list[ExecuteProcess] = []
        self._further: Sequence[ExecuteProcess] = ()
        self.peers: dict[ExecuteProcess, str] = {}
        self._left: dict[str, LastWords] = {}

    def environment(self, peer: str) -> dict[str, str]:
        return {outcomes.REPORT_FILE: str(self._file(peer))}

    def keep(self, name: str, text: str) -> Path:
        path = Path(self._folder.name, name)
        path.write_text(text, encoding="utf-8")
        return path

    def _file(self, peer: str) -> Path:
        return Path(self._folder.name) / f"{peer.replace('/', '.')}.json"

    def actions(
        self, processes: Sequence[ExecuteProcess], further: Sequence[ExecuteProcess]
    ) -> list[LaunchDescriptionEntity]:
        """Return the actions that start the processes and end the launch with the test.

        ``further`` processes, such as a page, end with the test.
        """
        self._running, self._further = list(processes), further
        recording = f"recording: {self._recording}" if self._recording else "no recording"
        return [
            LogInfo(msg=f"rths: run {self._run_id}, {recording}"),
            RegisterEventHandler(OnProcessExit(on_exit=self._on_exit)),
            *processes,  # last, so that the last output of the processes is printed before the handler runs
            *further,
        ]

    def _on_exit(self, event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if event.action not in self._running:
            return []
        self._running.remove(event.action)
        report = self._take(event)
        if not self._running:
            return self._conclude(context)
        if context.is_shutdown:
            return []
        if report.exit_code not in IN_ORDER:
            why = [LogInfo(msg=f"rths: {report.problem}")] if report.problem else []
            return [*why, EmitEvent(event=Shutdown(reason="the test cannot continue without this process"))]
        if not any(process in self.peers for process in self._running):
            return [_interrupt(process) for process in self._running]
        return []

    def _take(self, event: ProcessExited) -> LastWords:
        peer = self.peers.get(event.action)
        name = peer or event.process_name.rpartition("-")[0]
        died = node_processes.death(name, event.returncode) if event.returncode else ""
        left = outcomes.read_report(self._file(peer)) if peer else None
        if died and left is None:
            with suppress(OSError):
                self.keep(outcomes.DIED, died)  # the recorder reads this file
        report = self._left[name] = left or LastWords(event.returncode, died)
        return report

    def _conclude(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        code, message = self._result()
        late = [report.late for report in self._spoken if report.late][:1]
        lines = [LogInfo(msg=f"rths: {line}") for line in (*self._indices(), *late)]
        if code == ExitCode.FINISHED:
            return [*lines, LogInfo(msg=f"rths: {message}; {self._report(code)}"), *map(_interrupt, self._further)]
        for line in lines:
            line.execute(context)
        level = logging.WARNING if code == ExitCode.HELD else logging.ERROR  # the operator has stopped the test
        raise refusal(f"rths: {message} (exit code {code:d}); {self._report(code)}", level)

    def _result(self) -> tuple[ExitCode, str]:
        spoken = self._spoken
        tests = {report.test: report.ending for report in reversed(spoken) if report.test is not None}
        code = of_nodes([report.exit_code for report in self._left.values()], State.FINISHED)
        if code == ExitCode.FINISHED:
            first = next((report.test for report in spoken if report.test is not None), ExitCode.HELD)
            code = of_nodes([first], State.FINISHED)
        if code == ExitCode.FINISHED and ExitCode.NOT_VALID in tests:  # third-party nodes count no late samples
            code = ExitCode.NOT_VALID
        causes = (left.problem for left in self._left.values() if of_nodes([left.exit_code], State.IDLE) == code)
        why = next(filter(None, causes), "" if tests else "there was none")
        return code, tests.get(code) or ": ".join(filter(None, (code.ending, why)))

    @property
    def _spoken(self) -> list[LastWords]:
        return [self._left[name] for name in (*SPEAKERS, *self._left) if name in self._left]

    def _indices(self) -> list[str]:
        numbers = {name: value for report in self._left.values() for name, value in report.indices.items()}
        axes = unflatten(numbers, "metrics").get("axes", {})
        return [_line(axis, row) for axis, row in axes.items() if math.isfinite(row["max_error_percent"])]

    def _report(self, code: ExitCode) -> str:
        path = self._recording
        if not path or not Path(path).exists():
            return "no recording"
        page = "" if code == ExitCode.REFUSED else f"; rths report {path} creates {path}.html"
        return f"recording: {path}{page}"


def _line(axis: str, row: Mapping[str, float]) -> str:
    delay = f", delay {1e3 * row['delay_s']:.4g} ms" if math.isfinite(row["delay_s"]) else ""
    return (
        f"{axis}: max error {1e3 * row['max_error_m']:.4g} mm ({row['max_error_percent']:.4g} % of max target), "
        f"error norm {row['error_norm_percent']:.4g} %{delay}"
    )


def _interrupt(process: ExecuteProcess) -> EmitEvent:
    return EmitEvent(event=SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(process)))
