"""How a launched test ends, and what launch says then."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from launch.actions import EmitEvent, ExecuteProcess, LogInfo, RegisterEventHandler
from launch.event_handlers import OnProcessExit, OnProcessIO
from launch.events import matches_action
from launch.events.process import SignalProcess

from rths_nodes.loop.outcomes import IN_ORDER, ExitCode, of_nodes
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.hosting.results import told_result


class EndOfLaunch:
    """Follows the ``processes`` of a test to their end.

    A process that ends with an error ends all of them. One that is done does not, nor one that ends with a trip:
    the others then leave in order. A foreign recorder, which none of ``peers`` is, is told to stop when the last
    node has ended. The process with the actuator node says how the test ended, or, where that is on another
    machine, those of ``speakers``. Then launch says that, and where the ``recording`` is, and ends with code 1
    unless the test has finished.
    """

    def __init__(
        self,
        processes: Sequence[ExecuteProcess],
        peers: Mapping[Any, str],
        run_id: str,
        recording: str,
        speakers: Sequence[str] = (),
    ) -> None:
        self._processes = list(processes)
        self._running = list(processes)
        self._peers = peers
        self._run_id = run_id
        self._recording = f"recording: {recording}" if recording else "no recording"
        self._report = f"; rths report {recording} shows it" if recording else ""
        self._speakers = (names.ACTUATOR, names.RIG, *speakers)
        self._codes: list[int] = []
        self._problem = ""
        self._output = ""

    def actions(self) -> list[Any]:
        """The processes, with what follows them."""
        return [
            LogInfo(msg=f"rths: run {self._run_id}, {self._recording}"),
            RegisterEventHandler(OnProcessIO(target_action=self._leads, on_stdout=self._hear)),
            RegisterEventHandler(OnProcessExit(on_exit=self._on_exit)),
            *self._processes,  # after the handlers: theirs, which print what they say last, come first then
        ]

    def _leads(self, action: Any) -> bool:
        """True for the process that says how the test ended."""
        return self._peers.get(action) in self._speakers

    def _hear(self, event: Any) -> None:
        self._output += event.text.decode(errors="replace")

    def _on_exit(self, event: Any, context: Any) -> list[Any]:
        if event.action not in self._running:
            return []
        self._running.remove(event.action)
        self._codes.append(event.returncode)
        name = self._peers.get(event.action, event.process_name.rpartition("-")[0])
        if event.returncode:
            self._problem = self._problem or node_processes.death(name, event.returncode)
        if not self._running:
            return self._conclude(context)
        if event.returncode not in IN_ORDER and not context.is_shutdown:
            # Shuts down with a reason and a non-zero exit code; the event Shutdown would end with 0.
            raise RuntimeError(f"rths: {self._problem}")
        if not context.is_shutdown and not any(process in self._peers for process in self._running):
            return [_interrupt(process) for process in self._running]
        return []

    def _conclude(self, context: Any) -> list[Any]:
        code, words = self._result(context.is_shutdown)
        if code == ExitCode.FINISHED:
            return [LogInfo(msg=f"rths: {words}; {self._recording}{self._report}")]
        raise RuntimeError(f"rths: {words} (exit code {code:d}); {self._recording}")

    def _result(self, interrupted: bool) -> tuple[ExitCode, str]:
        """How the test ended, in words too; without an actuator node of ours, as far as exit codes tell."""
        told = told_result(self._output)
        code = of_nodes(self._codes, State.FINISHED)
        if code == ExitCode.FINISHED:
            code = told[0] if told else ExitCode.HELD if interrupted else code
        if told and told[0] == code:
            return told
        return code, f"{code.ending}: {self._problem}" if self._problem else code.ending


def _interrupt(process: ExecuteProcess) -> EmitEvent:
    return EmitEvent(event=SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(process)))
