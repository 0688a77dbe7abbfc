# SPDX-License-Identifier: Apache-2.0
"""Tests of procedures on a rig whose controller closes a force loop, which a small force tries first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_rig import EmulatedRig
from messages import mentions, naming
from rig_walk import Walk

from rths_nodes.analysis.report import procedure as report
from rths_nodes.app.procedure.console import checks_table
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Measurement
from rths_nodes.loop.procedure_record import VERIFIED, WRONG
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure import small_move
from rths_nodes.procedure.machine import ActRefused
from rths_nodes.procedure.small_move import SAME_FORCE

NAME, RIG = "column_under_axial_load", "column_udp"
LOAD, PRESS, BOUND = 200e3, 20e3, 100e3
BRIEF = (
    *("duration=3.0", "ground_motion.delay=1.4", "ground_motion.motion.periods=2"),
    f"axes.load.load={{value: {LOAD}, ramp_time: 1.1, held_for: 0.1}}",
)


class Rig(EmulatedRig):
    """An emulated rig with the ``text`` of a rig file; records the true states of its load."""

    def __init__(self, folder: Path, text: str, sets: Sequence[str]) -> None:
        file = folder / "emulated.yaml"
        file.write_text(text)
        super().__init__(files.load(NAME, ["rig.vertical={type: pure_delay}", *sets], rig=str(file)), port=0)
        self.port = f"port.port={self.emulator.address[1]}"
        self.displacements: list[float] = []
        self.forces: list[float] = []
        self.modes: list[int] = []
        self.emulator.shown_to = self.record

    def record(self, true: Measurement) -> None:
        self.displacements.append(float(true.displacement[1]))
        self.forces.append(float(true.force[1]))
        self.modes.append(self.mode)

    @property
    def mode(self) -> int:
        return self.emulator._receiver.modes[1]


Connect = Callable[..., tuple[Walk, Rig]]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Makes a session with offsets, and its emulated rig; ``fault``: old and new text of the rig file there."""
    with ExitStack() as stack:

        def connect(
            fault: tuple[str, str] = ("", ""), sets: Sequence[str] = (), rate: int = 256
        ) -> tuple[Walk, Rig]:
            text, both = files.locate(RIG, files.RIG).read_text(), [*BRIEF, f"servo_rate={rate}"]
            assert fault[0] in text
            rig = stack.enter_context(Rig(tmp_path, text.replace(*fault), [*both, *sets]))
            walk = Walk(files.load(NAME, [*both, rig.port], rig=RIG), [])
            stack.callback(walk.session.close)
            return walk.refer(), rig

        yield connect


def test_small_force_verifies_loop_without_motion(connect: Connect) -> None:
    walk, rig = connect()
    checks = walk.session.check()
    assert (checks["load"].force_loop, checks["drift"].force_loop) == (VERIFIED, "")
    assert checks["load"].findings == []
    forced = np.flatnonzero(np.array(rig.modes) == MODE_FORCE)
    assert np.ptp(np.array(rig.forces)[forced]) == pytest.approx(PRESS, rel=SAME_FORCE)
    assert abs(rig.forces[-1]) < 0.03 * PRESS
    for change in (forced[0], forced[-1] + 1):  # to force control and back, by less than the noise of the sensor
        before, after = rig.displacements[change - 200 : change], rig.displacements[change : change + 200]
        assert abs(np.mean(after) - np.mean(before)) < 1e-6
    assert checks_table(walk.record).columns[-1].header == "force loop"
    (part,) = report.checks(walk.record)
    assert mentions(part.items, "load", "verified")


FAULTS: dict[str, tuple[tuple[str, str], Sequence[str], str]] = {
    "sign": (("scale: 75.0}", "scale: 75.0, sign: -1}"), (), "the force opposes its command"),
    "scale": (("scale: 75.0}", "scale: 80.0}"), (), "scales of force_command and of the load cell differ"),
    "slack": (("", ""), ("axes.load.force_control.law.gain=0.5",), "does not reach its command"),
}
"""Change of the rig file, overrides of the emulated rig, and a part of the finding."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_force_loop_is_found_and_held(connect: Connect, fault: str) -> None:
    change, sets, finding = FAULTS[fault]
    walk, rig = connect(change, sets)
    result = walk.session.check()["load"]
    assert result.force_loop == WRONG
    assert finding in result.findings[0], result.findings
    assert rig.mode == MODE_DISPLACEMENT
    assert np.abs(rig.forces).max() < BOUND
    walk.sign_all()
    with pytest.raises(ConfigError, match=naming("its force loop")):
        walk.session.position()


def test_full_procedure_under_load(connect: Connect) -> None:
    walk, rig = connect(rate=1024)
    walk.session.check()
    walk.sign_all()
    walk.session.position()
    assert walk.climb("g").outcome == "finished"
    assert np.nanmax(np.abs(walk.run.loads.error[int(1.3 * 1024) :])) < 0.03 * 500e3
    walk.tick(200)
    assert rig.mode == MODE_DISPLACEMENT
    assert rig.forces[-1] == pytest.approx(LOAD, rel=0.03), "held with its load"
    assert not (record := walk.session.unload()).given_up
    assert abs(record.before["load"] - LOAD) < 0.03 * LOAD
    assert abs(record.after["load"]) < 0.01 * 770e3
    walk.session.finish()
    assert walk.session.state is State.FINISHED
    assert asdict(walk.record)["checks"]["load"]["force_loop"] == VERIFIED


def test_rungs_c_and_e_finish(connect: Connect) -> None:
    """Rung c holds the rig; its simulator receives the commands in N."""
    walk, rig = connect()
    walk.session.check()
    walk.sign_all()
    for rung in "ce":
        walk.session.position()
        before = len(rig.modes)
        assert walk.climb(rung).outcome == "finished"
        assert (MODE_FORCE in rig.modes[before:]) == (rung != "c")


IDS = ["in N", "after the first command in m", "sensor shows NaN", "sensor shows 1000 km"]


@pytest.mark.parametrize(("back", "reading"), [(False, 0), (True, 0), (False, np.nan), (False, 1e6)], ids=IDS)
def test_stop_during_small_force_holds_axis(connect: Connect, back: bool, reading: float) -> None:
    walk, rig = connect()
    drive, modes, sent, places = walk.session.drive, list[bytes](), list[float](), list[float]()
    read, write = drive.port.read, drive.port.write

    def stop(command: Any) -> None:
        modes.append(command.control_mode)
        sent.append(float(command.command[1]))
        if sum(map(bool, modes)) >= 900 and bool(modes[-1]) != back:
            walk.session.stop("a person stops it")
        write(command)

    def fail() -> Measurement:
        measured = read()
        if reading and sum(map(bool, modes)) >= 900:
            measured.displacement[1] = reading
        places.append(float(measured.displacement[1]))
        return measured

    drive.port.read, drive.port.write = fail, stop  # type: ignore[method-assign]
    with pytest.raises(ActRefused, match="load.limits.stroke" if reading else naming("person", "stops")):
        walk.session.check()
    walk.tick(200)
    assert not reading or set(sent[-200:]) == {[x for x in places if abs(x) < 1.0][-1] - drive.shift[1]}
    assert (rig.modes[-1], np.abs(rig.displacements).max() < 1e-4) == (MODE_DISPLACEMENT, True)
    assert np.ptp(rig.displacements[-100:]) < 3e-6


def test_small_force_is_required_and_bounded(connect: Connect, tmp_path: Path) -> None:
    text, file = files.locate(RIG, files.RIG).read_text(), tmp_path / "rig.yaml"
    file.write_text(text.replace("press: 20.0e3", "press: 200.0e3"))
    parts = ("small_move.press", "200000 N", "<= 100000 N", "small_move.force")
    with pytest.raises(ConfigError, match=naming(*parts)):
        files.load_rig(file)
    walk, _ = connect()
    object.__setattr__(walk.scenario.axes["load"].rig_axis.small_move, "press", None)
    with pytest.raises(ConfigError, match=naming("axes.load.small_move", "N")):
        walk.session.check()


def test_small_force_begins_at_present_command(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command follows a rig that is lost and returns between the small moves and the small force."""
    walk, _ = connect()
    drive, compare, sent, write = walk.session.drive, small_move.compare, [], walk.session.drive.port.write

    def moved(*arguments: Any) -> None:
        compare(*arguments)
        with drive.hold_loop.borrowed():
            drive.command = drive.command + np.array([0.0, 2e-6])
            sent.append(drive.command[1])
        monkeypatch.setattr(drive.port, "write", written)

    def written(command: Any) -> None:
        sent.append(command.command[1])
        write(command)

    monkeypatch.setattr(small_move, "compare", moved)
    walk.session.check()
    assert set(sent[:50]) == {sent[0]}
