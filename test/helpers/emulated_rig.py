# SPDX-License-Identifier: Apache-2.0
"""Emulated rig behind the port ``udp``; skips a module of tests if no C compiler is installed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from c_compiler import require_compiler

from rths_nodes.app.emulation import Emulator, Session, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

require_compiler()


def udp(number: int, transport: int = 1, **options: Any) -> str:
    """Return the override that selects the UDP port."""
    port = {"type": "udp", "emulator": "true", "port": number, "transport_samples": transport} | options
    return f"port={{{', '.join(f'{key}: {value}' for key, value in port.items())}}}"


class EmulatedRig:
    """Emulated rig that serves one session in a thread, or consecutive ones, within ``with``."""

    def __init__(
        self,
        scenario: Scenario,
        own_clock: bool = False,
        misbehave: Sequence[str] = (),
        port: int | None = None,
        sessions: float = 1,
    ) -> None:
        self.emulator = Emulator(scenario, port, own_clock, [parse(text) for text in misbehave])
        self._sessions = sessions
        self._ended = threading.Event()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while self._sessions > 0 and not self._ended.is_set():
            self._session = self.emulator.serve(self._ended.is_set)
            self._sessions -= 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(20.0)
        self.emulator.close()

    def session(self) -> Session:
        """Wait for the end of the session and return its result."""
        self._thread.join(20.0)
        assert self._session is not None
        return self._session


@contextmanager
def emulated_rigs(sessions: float = 1) -> Iterator[Callable[..., Emulator]]:
    """Yield a function that starts the emulated rig of a scenario at a free port."""
    with ExitStack() as stack:

        def start(
            name: str, sets: Sequence[str], own_clock: bool = False, misbehave: Sequence[str] = ()
        ) -> Emulator:
            rig = EmulatedRig(files.load(name, sets), own_clock, misbehave, 0, sessions)
            return stack.enter_context(rig).emulator

        yield start
