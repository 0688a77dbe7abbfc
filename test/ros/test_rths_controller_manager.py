# SPDX-License-Identifier: Apache-2.0
"""The receiver as a controller of ros2_control: built, and run at 1024 Hz over mock hardware.

What it does with datagrams and limits, tick by tick and without ROS, stands in
``test/laboratory/test_rths_controller.py``.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
import receiver_manager
import yaml
from messages import mentions
from receiver_manager import EXAMPLE, ROOT, Manager, Start

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import EMPTY, FLAG_BRIDGED
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, RigState
from rths_nodes.laboratory.receiver import build_number
from rths_nodes.loop.scenario import files

CONTROLLERS = (EXAMPLE / "config" / "controllers.yaml").read_text(encoding="utf-8")
URDF = (EXAMPLE / "urdf" / "bench.urdf").read_text(encoding="utf-8")
PORT = 25010
PERIOD = 976562
"""ns, of 1024 Hz."""
DT = PERIOD * 1e-9
ACCELERATION = 20.0

SPRING = [
    "axes.story_1.specimen=null",
    "compensator={type: none}",
    "duration=5",
    "bridge.max_bridge=1",
    "heartbeat.monitor=5",
    "heartbeat.recorder=5",
    "ground_motion.scale=0.05",
]
"""The mock bench, on a machine that may be busy with something else."""

MISSING = receiver_manager.missing()
needs_ros2_control = [
    pytest.mark.nodes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here: ROS 2's wheels come without them"),
]


# -- as text


def test_the_rig_file_has_the_limits_and_the_rate_of_the_controller() -> None:
    rig = yaml.safe_load(files.locate("bench_rths_controller", files.RIG).read_text())
    given = yaml.safe_load(CONTROLLERS)
    receiver = given["rths_receiver"]["ros__parameters"]
    limits = receiver["axes"]["bench"]["limits"]
    assert receiver["joints"] == list(rig["axes"])
    assert given["controller_manager"]["ros__parameters"]["update_rate"] == rig["servo_rate"]
    assert receiver["emulator"] is rig["port"]["emulator"] is True
    stated = rig["axes"]["bench"]["limits"]
    assert [limits[name] for name in ("stroke", "velocity")] == [stated[name] for name in ("stroke", "velocity")]
    assert limits["force"] == float(stated["force"])
    assert limits["acceleration"] == stated["deceleration"]


def test_the_names_in_its_files_are_those_of_its_code() -> None:
    plugin = ElementTree.parse(EXAMPLE / "rths_controller.xml").getroot()
    (declared,) = plugin.findall("class")
    code = (EXAMPLE / "src" / "receiver_controller.cpp").read_text(encoding="utf-8")
    exported = re.search(r"PLUGINLIB_EXPORT_CLASS\((\S+), (\S+)\)", code)
    assert exported is not None
    assert exported.groups() == (declared.get("type"), declared.get("base_class_type"))
    given = yaml.safe_load(CONTROLLERS)
    assert given["controller_manager"]["ros__parameters"]["rths_receiver"]["type"] == declared.get("name")
    cmake = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert plugin.get("path") in re.findall(r"add_library\((\w+) SHARED", cmake)
    package = ElementTree.parse(EXAMPLE / "package.xml").getroot()
    depended = {each.text for each in package.findall("depend")}
    assert set(re.findall(r"find_package\((\w+) REQUIRED", cmake)) == depended | {"ament_cmake"}
    parameters = (EXAMPLE / "src" / "parameters.cpp").read_text(encoding="utf-8")
    known = set(re.findall(r'(?:required|optional|found)\((?:name \+ )?"\.?([\w.]+)"', parameters))
    receiver = given["rths_receiver"]["ros__parameters"]
    axis = receiver.pop("axes")["bench"]
    written = set(receiver)
    for key, value in axis.items():
        written |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) else {key}
    assert written == known


def test_a_missing_receiver_is_told_with_where_it_is_looked_for(tmp_path: Path) -> None:
    """The lines of CMake that need no ROS."""
    if not receiver_manager.shutil.which("cmake"):
        pytest.skip("no cmake is installed here")
    text = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    (looked,) = re.findall(r"^file\(REAL_PATH.*?^endforeach\(\)", text, re.M | re.S)
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.21)\nproject(a NONE)\n{looked}\n")
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"RTHS_TARGET = {tmp_path.parent / 'udp_target'}: no rths_target.c" in re.sub(r"\s+", " ", done.stderr)
    command.append(f"-DRTHS_TARGET={ROOT / 'examples' / 'udp_target'}")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


# -- built and run


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return receiver_manager.build(tmp_path_factory.mktemp("rths_controller"))


@pytest.fixture
def start(prefix: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a controller manager with changed parameters of the controller, and the receiver in it."""
    running: list[Manager] = []

    def start(urdf: str = URDF, spawned: bool = True, manager: dict | None = None, **changed: object) -> Manager:
        given = yaml.safe_load(CONTROLLERS)
        given["rths_receiver"]["ros__parameters"] |= changed
        given["controller_manager"]["ros__parameters"] |= manager or {}
        text = yaml.safe_dump(given)
        running.append(Manager(prefix, tmp_path, text, urdf))
        assert (running[0].spawn() == 0) is spawned, running[0].log()
        return running[0]

    yield start
    for each in running:
        each.close()


def axis(**limits: float) -> dict:
    """The parameters of an axis of the example, with other limits."""
    given = yaml.safe_load(CONTROLLERS)["rths_receiver"]["ros__parameters"]["axes"]["bench"]
    return given | {"limits": given["limits"] | limits}


class Held(NamedTuple):
    """Reason of an answer, active command (m) and velocity (m/s) of its first axis, and all of it."""

    reason: int
    command: float
    velocity: float
    answer: datagrams.Answer


class Line:
    """A test computer by hand: it answers each state with a command."""

    def __init__(self, axes: int = 1) -> None:
        self.axes = axes
        self.line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.line.settimeout(5.0)
        self.line.connect(("127.0.0.1", PORT))

    def send(self, kind: int, counter: int = 0, rows: bytes = b"") -> None:
        flags = datagrams.EMULATOR
        head = Head(kind, self.axes, 77, counter, period=PERIOD, flags=flags, transport=1)
        self.line.send(datagrams.packed(head, rows))

    def receive(self) -> tuple[Head, bytes]:
        data = self.line.recv(1024)
        return datagrams.head_of(data), data

    def open(self) -> Held:
        self.send(datagrams.OPEN)
        head, data = self.receive()
        while head.kind != datagrams.ANSWER:
            head, data = self.receive()
        command, velocity, *_ = datagrams.ANSWER_ROW.unpack_from(data, datagrams.HEAD.size)
        return Held(head.reason, command, velocity, datagrams.answer_of(data, head))

    def begin(self) -> None:
        assert self.open().reason == 0
        self.send(datagrams.BEGIN)

    def states(self, speeds: list[float], samples: int, until: int = datagrams.STOPPED) -> list[RigState]:
        """Move along straight lines of ``speeds``, m/s, for some samples; then wait in silence for a state."""
        found = []
        while not found or found[-1].head.state != until:
            head, data = self.receive()
            if head.kind == datagrams.STATE:
                found.append(datagrams.state_of(data, head))
                k = head.counter + 1
                if k <= samples:
                    points = [v * k * DT for v in speeds]
                    self.send(datagrams.COMMAND, k, datagrams.command_rows(points, speeds, EMPTY))
        return found


def velocities(states: list[RigState]) -> np.ndarray:
    """Velocity of the command at each sample, m/s, of shape (samples, axes)."""
    assert [state.head.counter for state in states] == list(range(len(states)))
    return np.diff(np.array([state.command for state in states]), axis=0) / DT


class TestMockHardware:
    pytestmark = needs_ros2_control

    def test_a_whole_test_in_real_time_is_that_of_the_simulator(self, start: Start) -> None:
        """A spring seen one sample later. Where a sample was bridged the bits differ, not the motion."""
        manager = start()
        far = rths_nodes.run(
            "chen_ricles_2010", SPRING, rig="bench_rths_controller", host="composed", pace="realtime"
        )
        assert far.outcome == "finished"
        spring = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0.0}"
        late = f"axes.story_1.actuator={{type: pure_delay, delay: {1.0 / 1024.0!r}}}"
        near = rths_nodes.run("chen_ricles_2010", [*SPRING, spring, late])
        said = manager.until(r"stopped: the session was closed; \d+ samples, \d+ bridged.*")
        largest = np.abs(near.dof_displacement).max()
        assert largest > 1e-3
        if ", 0 bridged, 0 limited" in said and not (far.flags & FLAG_BRIDGED).any():
            np.testing.assert_array_equal(far.dof_displacement, near.dof_displacement)
        else:
            np.testing.assert_allclose(far.dof_displacement, near.dof_displacement, rtol=0.0, atol=0.25 * largest)

    def test_the_build_and_the_limits_are_told(self, start: Start) -> None:
        start()
        answer = Line().open().answer
        assert answer.build == build_number()
        (limits,) = answer.limits
        assert (limits.stroke, limits.velocity, limits.acceleration, limits.force, limits.error) == (
            *(0.25, 1.2, ACCELERATION),
            *(1.8e6, 0.05),
        )

    def test_a_killed_test_computer_leaves_the_joint_braked_and_held(self, start: Start) -> None:
        manager = start()
        words = ["run", "chen_ricles_2010", "--rig", "bench_rths_controller", "--host", "composed"]
        words += ["--pace", "realtime", "--no-record"]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        sets = [each for each in SPRING if not each.startswith(("duration", "ground_motion"))]
        command = [sys.executable, "-m", "rths_nodes.app.cli", *words, *(f"--set={each}" for each in sets)]
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            manager.until("running", 60.0)
            time.sleep(8.0)  # the earthquake is there, and the joint moves
            run.send_signal(signal.SIGKILL)
        said = manager.until("stopped: .*")
        assert mentions(said, "stopped", "command")
        held = Line().open()
        assert held.reason == 4  # an operator has to begin a new session
        assert held.velocity == 0.0
        assert held.command != 0.0
        time.sleep(0.2)
        assert Line().open().command == held.command
        # and the operator's act: from where it stands, without a jump
        assert manager.switch("deactivate") == 0
        assert manager.switch("activate") == 0
        again = Line().open()
        assert again.reason == 0
        assert again.command == held.command

    def test_silence_brakes_two_joints_in_a_common_time_within_the_stated_acceleration(self, start: Start) -> None:
        joints = re.findall(r'  <joint name="bench".*?</joint>\n', URDF, re.S)
        urdf = URDF
        for text in joints:
            urdf = urdf.replace(text, text + text.replace('"bench"', '"other"').replace('"piston"', '"second"'))
        urdf = urdf.replace('<link name="cell"/>', '<link name="cell"/><link name="second"/>')
        place = '<joint name="other">\n      <command_interface name="position"/>'
        urdf = urdf.replace(place, place + '\n      <state_interface name="effort"/>')
        other = axis()
        del other["force"]  # the effort of the joint, which mock hardware leaves at zero
        start(urdf, joints=["bench", "other"], axes={"bench": axis(), "other": other})
        speeds = [0.1, -0.05]
        line = Line(axes=2)
        line.begin()
        states = line.states(speeds, 300)
        assert states[-1].head.reason == 1
        velocity = velocities(states)
        assert velocity[250] == pytest.approx(speeds, rel=1e-6)
        behind = velocity[301:]
        assert (np.abs(np.diff(behind, axis=0)) <= ACCELERATION * DT * (1.0 + 1e-6)).all()
        moving = behind[np.abs(behind[:, 0]) > 1e-9]
        np.testing.assert_allclose(moving[:, 1], -0.5 * moving[:, 0], rtol=1e-6)
        assert (behind[-1] == 0.0).all()

    def test_a_force_beyond_its_limit_stops_the_joint_and_trips_the_test(self, start: Start) -> None:
        start(axes={"bench": axis(force=5e3)})
        done = hosts.run(
            "chen_ricles_2010", SPRING, rig="bench_rths_controller", host="composed", pace="realtime", record=None
        )
        assert done.outcome == "tripped"
        assert mentions(done.reason, "limit", "receiver")
        held = Line().open()
        assert held.velocity == 0.0
        assert abs(held.command) * 7.6e6 > 5e3

    def test_a_deactivation_during_a_session_is_told_at_once(self, start: Start) -> None:
        manager = start()
        line = Line()
        line.begin()
        operator = threading.Thread(target=manager.switch, args=("deactivate",))
        operator.start()
        last = line.states([0.0], 10**6, datagrams.BRAKING)[-1]
        operator.join()
        assert (last.head.reason, last.head.interlock) == (3, 2)
        assert mentions(manager.log(), "deactivated", "session")

    def test_a_command_that_the_hardware_does_not_take_as_it_is_stops_the_session(self, start: Start) -> None:
        """The limiter of ros2_control clips what is faster than its description says."""
        manager = start(
            URDF.replace('velocity="1.2"', 'velocity="0.01"'), manager={"enforce_command_limits": True}
        )
        line = Line()
        line.begin()
        states = line.states([0.1], 300)
        assert states[-1].head.reason == 3
        manager.until("stopped: the interlock of the rig is open, because the hardware did not take the commands")

    @pytest.mark.parametrize(("written", "told", "reason"), [("true", 1, 0), ("false", 2, 3)])
    def test_the_interlock_is_a_state_of_the_hardware(
        self, start: Start, written: str, told: int, reason: int
    ) -> None:
        gpio = (
            '<gpio name="door"><state_interface name="closed" data_type="bool">'
            f'<param name="initial_value">{written}</param></state_interface></gpio>'
        )
        start(URDF.replace("  </ros2_control>", f"    {gpio}\n  </ros2_control>"), interlock="door/closed")
        line = Line()
        assert line.open().reason == reason
        if reason == 0:
            line.begin()
            assert line.states([0.0], 5)[0].head.interlock == told

    def test_what_is_wrong_is_refused_all_at_once_and_nothing_is_claimed(self, start: Start) -> None:
        wrong = axis(stroke=-1.0)
        wrong["position"] = {"scael": 2.0}
        del wrong["limits"]["error"]
        manager = start(spawned=False, axes={"bench": wrong}, watchdog="ten")
        for words in (
            "axes.bench.limits.error: is missing: must be a number, m; .inf switches it off",
            "watchdog = ten: must be a whole number",
            "axes.bench.position.scael: is not known; known are address, port",
        ):
            assert words in manager.log()

    def test_settings_beyond_their_bounds_are_refused(self, start: Start) -> None:
        manager = start(spawned=False, axes={"bench": axis(stroke=-1)}, port=0)
        assert "axes.bench.limits.stroke = -1: must be > 0 and < 1e9 m" in manager.log()
        assert "port = 0: must be 1 to 65535" in manager.log()
