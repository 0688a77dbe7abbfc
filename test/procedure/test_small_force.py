# SPDX-License-Identifier: Apache-2.0
"""A procedure on a rig whose controller closes a force loop: the small force that tries it, and the rest."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming
from rig_walk import Walk

from rths_nodes.analysis.report import procedure as report
from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.app.procedure import screens
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Measurement
from rths_nodes.loop.procedure_record import VERIFIED, WRONG
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.small_move import SAME_FORCE

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

NAME, RIG = "column_under_axial_load", "column_udp"
LOAD, PRESS, BOUND = 200e3, 20e3, 100e3
BRIEF = (
    *("duration=3.0", "ground_motion.delay=1.4", "ground_motion.motion.periods=2"),
    f"axes.load.load={{value: {LOAD}, ramp_time: 1.1, held_for: 0.1}}",
)


class Rig:
    """An emulated rig with the ``text`` of a rig file, in a thread of its own; what was true of its load."""

    def __init__(self, folder: Path, text: str, sets: Sequence[str]) -> None:
        file = folder / "there.yaml"
        file.write_text(text)
        scenario = files.load(NAME, ["rig.vertical={type: pure_delay}", *sets], rig=str(file))
        self.emulator = Emulator(scenario, 0)
        self.port = f"port.port={self.emulator.address[1]}"
        self.places: list[float] = []
        self.forces: list[float] = []
        self.modes: list[int] = []
        self.emulator.shown_to = self._look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: self.emulator.serve(self._ended.is_set), daemon=True)
        self._thread.start()

    def _look(self, true: Measurement) -> None:
        self.places.append(float(true.displacement[1]))
        self.forces.append(float(true.force[1]))
        self.modes.append(self.emulator._receiver.modes[1])

    def close(self) -> None:
        self._ended.set()
        self._thread.join(20.0)
        self.emulator.close()


Begun = Callable[..., tuple[Walk, Rig]]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    """A session with offsets on an emulated rig, whose rig file has ``wrong`` in place of the right words."""
    made: list[tuple[Walk, Rig]] = []

    def begun(wrong: tuple[str, str] = ("", ""), sets: Sequence[str] = (), rate: int = 256) -> tuple[Walk, Rig]:
        text, both = files.locate(RIG, files.RIG).read_text(), [*BRIEF, f"servo_rate={rate}"]
        assert wrong[0] in text
        rig = Rig(tmp_path, text.replace(*wrong), [*both, *sets])
        walk = Walk(files.load(NAME, [*both, rig.port], rig=RIG), [])
        made.append((walk, rig))
        walk.refer()
        return walk, rig

    yield begun
    for walk, rig in made:
        walk.session.close()
        rig.close()


def sign(walk: Walk) -> None:
    for name in walk.session.clearance.unsigned():
        walk.session.sign_for(name)


def test_a_small_force_tries_the_loop_and_moves_nothing_else(begun: Begun) -> None:
    walk, rig = begun()
    found = walk.session.check()
    assert (found["load"].force_loop, found["drift"].force_loop) == (VERIFIED, "")
    assert found["load"].findings == []
    forced = [k for k, mode in enumerate(rig.modes) if mode == MODE_FORCE]
    forces = np.array(rig.forces)[forced]
    assert np.ptp(forces) == pytest.approx(PRESS, rel=SAME_FORCE)
    assert abs(rig.forces[-1]) < 0.03 * PRESS
    first, last = forced[0], forced[-1]
    for change in (first, last + 1):  # both ways, by less than the noise of the sensor
        assert abs(np.mean(rig.places[change : change + 200]) - np.mean(rig.places[change - 200 : change])) < 1e-6
    told = screens.checks(walk.record)
    assert [column.header for column in told.columns][-1] == "force loop"
    (part,) = report.checks(walk.record)
    assert mentions(part.items, "load", "verified")


FAULTS: dict[str, tuple[tuple[str, str], Sequence[str], str]] = {
    "sign": (("scale: 75.0}", "scale: 75.0, sign: -1}"), (), "the force opposes its command"),
    "scale": (("scale: 75.0}", "scale: 80.0}"), (), "scales of force_command and of the load cell differ"),
    "slack": (("", ""), ("axes.load.force_control.law.gain=0.5",), "does not reach its command"),
}
"""What is wrong in the controller, and the words."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_loop_that_is_wrong_bars_the_way_and_is_held(begun: Begun, fault: str) -> None:
    wrong, sets, words = FAULTS[fault]
    walk, rig = begun(wrong, sets)
    found = walk.session.check()["load"]
    assert found.force_loop == WRONG
    assert words in found.findings[0], found.findings
    assert rig.emulator._receiver.modes[1] == MODE_DISPLACEMENT
    assert np.abs(rig.forces).max() < BOUND
    sign(walk)
    with pytest.raises(ConfigError, match=naming("its force loop")):
        walk.session.position()


def test_from_offsets_over_a_rung_under_load_to_the_report(begun: Begun) -> None:
    walk, rig = begun(rate=1024)
    walk.session.check()
    sign(walk)
    walk.session.position()
    assert walk.climb("g").outcome == "finished"
    assert walk.run is not None
    loads = walk.run.loads
    assert loads is not None
    assert np.nanmax(np.abs(loads.error[int(1.3 * 1024) :])) < 0.03 * 500e3
    for _ in range(200):
        walk.session.drive.tick()
    assert rig.emulator._receiver.modes[1] == MODE_DISPLACEMENT
    assert rig.forces[-1] == pytest.approx(LOAD, rel=0.03), "held with its load"
    done = walk.session.unload()
    assert done.given_up == ""
    assert abs(done.before["load"] - LOAD) < 0.03 * LOAD
    assert abs(done.after["load"]) < 0.01 * 770e3
    walk.session.finish()
    assert walk.session.state is State.FINISHED
    assert asdict(walk.record)["checks"]["load"]["force_loop"] == VERIFIED


def test_other_rungs_are_climbed_too(begun: Begun) -> None:
    """Rung c holds the rig, whose simulator gets the newtons."""
    walk, rig = begun()
    walk.session.check()
    sign(walk)
    for rung in "ce":
        walk.session.position()
        changed = len(rig.modes)
        assert walk.climb(rung).outcome == "finished"
        assert (MODE_FORCE in rig.modes[changed:]) == (rung != "c")


def test_a_stop_during_the_small_force_holds_the_axis(begun: Begun) -> None:
    walk, rig = begun()

    def stop(true: Measurement) -> None:
        rig._look(true)
        if rig.modes.count(MODE_FORCE) == 900:
            walk.session.stop("somebody stops it")

    rig.emulator.shown_to = stop
    with pytest.raises(ActRefused, match=naming("somebody", "stops")):
        walk.session.check()
    for _ in range(200):
        walk.session.drive.tick()
    assert rig.modes[-1] == MODE_DISPLACEMENT
    held = rig.places[-100:]
    assert np.ptp(held) < 3e-6


def test_a_small_force_has_its_bound_and_is_asked_for(begun: Begun, tmp_path: Path) -> None:
    text, file = files.locate(RIG, files.RIG).read_text(), tmp_path / "rig.yaml"
    file.write_text(text.replace("press: 20.0e3", "press: 200.0e3"))
    with pytest.raises(
        ConfigError, match=naming("small_move.press", "200000 N", "<= 100000 N", "small_move.force")
    ):
        files.load_rig(file)
    walk, _ = begun()
    small = walk.scenario.axes["load"].rig_axis
    assert small is not None
    assert small.small_move is not None
    object.__setattr__(small.small_move, "press", None)
    with pytest.raises(ConfigError, match=naming("axes.load.small_move", "N")):
        walk.session.check()
