# SPDX-License-Identifier: Apache-2.0
"""Emulated rig without a specimen, and a person who follows the instructions of the commissioning."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from rths_nodes.app.commands.emulate import free
from rths_nodes.app.emulation import Emulator
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import override
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import scenario_of

AXIS = """
  {name}:
    serves: [{serves}]
    displacement: {{unit: mm, range: 30.0, scale: 3.0, sign: {sign}, resolution: 0.001, noise_rms: 0.001}}
    force: {{unit: kN, range: 100.0, scale: 10.0, resolution: 0.005, noise_rms: 0.01}}
    command: {{unit: mm, range: 30.0, scale: 3.0, sign: {sign}}}
    actuator: {{type: first_order, alpha: 10.0}}
    limits: {{stroke: 0.02, velocity: {velocity}, force: 80.0e3, deceleration: {deceleration},
             tracking_error: 0.01}}
    elastic_limit: 0.01
    small_move: {{displacement: 1.0e-3, velocity: 40.0e-3, force: 1.0e3}}
    unloading: {{travel: 0.01, velocity: 20.0e-3}}
"""


def rig_text(port: int, n_axes: int, emulator: bool = True, further: str = "") -> str:
    """Return a rig file of one or two axes; the second is slower and has the opposite sign."""
    axes = AXIS.format(name="north", serves="story_1", sign=-1, velocity=0.4, deceleration=5.0)
    if n_axes == 2:
        axes += AXIS.format(name="south", serves="story_2", sign=1, velocity=0.3, deceleration=3.0)
    session = f"emulator: {str(emulator).lower()}, transport_samples: 2, longest_wait: 1.0"
    return (
        f"version: 1\nname: bench\nservo_rate: 1024.0\n"
        f"port: {{type: udp, port: {port}, {session}}}\n"
        f"bridge: {{max_bridge: 0.02}}\n{further}axes:{axes}"
    )


def free_port() -> int:
    """Return an unused UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


class EmulatedBench:
    """Emulated rig that serves consecutive sessions in a thread, and its person.

    ``mounted`` is the stiffness of a spring on every axis, N/m. As an Operator the person turns the switches that
    the instructions name, after some samples of the session.
    """

    def __init__(
        self, folder: Path, n_axes: int = 1, planted: Sequence[str] = (), mounted: float = 0.0, further: str = ""
    ) -> None:
        self.file = folder / "bench.yaml"
        self.file.write_text(rig_text(free_port(), n_axes, further=further))
        scenario = scenario_of(files.load_rig(self.file))
        specimen = f"specimen={{type: kelvin_voigt, stiffness: {mounted}, damping: 0.0}}"
        far = (
            override(scenario, [f"axes.{name}.{specimen}" for name in scenario.axes])
            if mounted
            else free(scenario)
        )
        self.emulator = Emulator(far, None, False, (), planted)
        self.bench = Bench(scenario, False, self, patience=1.0)
        self.asked: list[str] = []
        self.cleared: list[str] = []
        """Questions that lead to a motion."""
        self.hasty = 0
        """Number of times that the person acts before the axes move."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ended.is_set():
            self.emulator.serve(self._ended.is_set)

    def close(self) -> None:
        """Stop the rig."""
        self._ended.set()
        self._thread.join(20.0)
        self.emulator.close()

    # -- person -------------------------------------------------------------------------------------------

    def ask(self, instruction: str, tick: Callable[[], object] | None = None, moves: bool = False) -> None:
        """Follow an instruction: at once, or some samples later if the axes move."""
        self.asked.append(instruction)
        self.cleared += [instruction] * moves
        if tick is None:
            for word, turned in (("plug", "cable in"), ("undo the action", "interlock closed")):
                if word in instruction:
                    self.emulator.switches.turn(turned)
            return
        for _ in range(4):
            tick()
        for word, turned in (
            ("pull the network cable", "cable out @+50"),
            ("open the interlock", "interlock open @+50"),
            ("close the interlock", "interlock closed"),
            ("take the pressure off", "pressure off @+50"),
            ("bring the pressure back", "pressure high @+4"),
        ):
            if word in instruction:
                self.emulator.switches.turn(turned.partition(" @")[0] if self.hasty else turned)
        for _ in range(4 if self.hasty else 0):
            tick()
        self.hasty = max(self.hasty - 1, 0)

    def agrees(self, question: str) -> bool:
        """Confirm for both persons."""
        self.asked.append(question)
        return True
