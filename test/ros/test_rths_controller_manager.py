# SPDX-License-Identifier: Apache-2.0
"""Tests of the receiver as a controller of ros2_control: built, and run at 1024 Hz over mock hardware.

``test/laboratory/test_rths_controller.py`` tests datagrams and limits, tick by tick and without ROS.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import EMPTY, FLAG_BRIDGED
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, RigState
from rths_nodes.laboratory.receiver import build_number
from rths_nodes.loop.scenario import files

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "rths_controller"
NEEDED = [
    "controller_interface",
    "controller_manager",
    "controller_manager_msgs",
    "hardware_interface",
    "pluginlib",
]
"""Required packages of ROS 2."""
RECEIVER = "rths_receiver"

DESCRIBE = """
import sys, rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("describer")
qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
topic = node.create_publisher(String, "robot_description", qos)
topic.publish(String(data=open(sys.argv[1], encoding="utf-8").read()))
rclpy.spin(node)
"""
"""Publishes a robot's description, as robot_state_publisher does."""

SWITCH = """
import sys, rclpy
from controller_manager import switch_controllers
rclpy.init()
node = rclpy.create_node("operator")
off, on = ([sys.argv[1]], []) if sys.argv[2] == "deactivate" else ([], [sys.argv[1]])
sys.exit(not switch_controllers(node, "controller_manager", off, on, 2, True, 10.0, call_timeout=30.0).ok)
"""
"""Activates or deactivates a controller, or ends with 1."""


def prefixes() -> list[Path]:
    return [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]


def program(package: str, name: str) -> str:
    """Return the path of a program of a ROS package. Raises FileNotFoundError."""
    for prefix in prefixes():
        if (path := prefix / "lib" / package / name).is_file():
            return str(path)
    raise FileNotFoundError(f"{package} {name}")


def missing() -> list[str]:
    """Return the missing packages and programs that the controller needs to build and run."""
    index = Path("share", "ament_index", "resource_index", "packages")
    packages = [name for name in NEEDED if not any((prefix / index / name).is_file() for prefix in prefixes())]
    return packages + [name for name in ("cmake", "c++") if not shutil.which(name)]


def build(folder: Path) -> Path:
    """Build and install the example below ``folder``; return its prefix for AMENT_PREFIX_PATH."""
    prefix = folder / "install"
    options = [f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (
        [
            "cmake",
            "-S",
            EXAMPLE,
            "-B",
            folder / "build",
            *options,
            f"-DPython3_EXECUTABLE={sys.executable}",
            "-DCMAKE_CXX_FLAGS=-Werror",
        ],
        ["cmake", "--build", folder / "build", "--target", "install"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return prefix


class Manager:
    """A running controller manager: its log, and acts of an operator."""

    def __init__(self, prefix: Path, folder: Path, controllers: str, urdf: str) -> None:
        self._parameters, self._urdf = folder / "controllers.yaml", folder / "bench.urdf"
        self._parameters.write_text(controllers)
        self._urdf.write_text(urdf)
        self._env = os.environ | {
            "AMENT_PREFIX_PATH": os.pathsep.join([str(prefix), os.environ["AMENT_PREFIX_PATH"]]),
            "LD_LIBRARY_PATH": os.pathsep.join([str(prefix / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "RCUTILS_COLORIZED_OUTPUT": "0",
        }
        self._lines: list[str] = []
        self._running = [self._start(sys.executable, "-c", DESCRIBE, str(self._urdf))]
        node = program("controller_manager", "ros2_control_node")
        manager = self._start(node, "--ros-args", "--params-file", str(self._parameters))
        self._running.append(manager)
        self._reader = threading.Thread(target=self._read, args=(manager,), daemon=True)
        self._reader.start()

    def _start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line)

    def log(self) -> str:
        return "".join(self._lines)

    def until(self, words: str, within: float = 30.0) -> str:
        """Wait until the log matches the pattern ``words``; return the match."""
        end = time.monotonic() + within
        while (match := re.search(words, self.log())) is None:
            assert time.monotonic() < end, f"{words!r} is not in the log:\n{self.log()}"
            time.sleep(0.02)
        return match.group()

    def _run(self, *command: str) -> int:
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60, check=False)
        self._lines.append(done.stdout + done.stderr)
        return done.returncode

    def spawn(self) -> int:
        """Load, configure and activate the receiver; return the exit code."""
        spawner = program("controller_manager", "spawner")
        return self._run(
            spawner, RECEIVER, "--param-file", str(self._parameters), "--controller-manager-timeout", "30"
        )

    def switch(self, act: str) -> int:
        """``activate`` or ``deactivate`` the receiver; return the exit code."""
        return self._run(sys.executable, "-c", SWITCH, RECEIVER, act)

    def close(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGINT)
        for process in self._running:
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._reader.join(5.0)


Start = Callable[..., Manager]

CONTROLLERS = (EXAMPLE / "config" / "controllers.yaml").read_text(encoding="utf-8")
NAME, RIG = "chen_ricles_2010", "bench_rths_controller"
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
"""Overrides for the mock bench on a machine that may be busy."""

MISSING = missing()
needs_ros2_control = [
    pytest.mark.nodes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here: ROS 2's wheels come without them"),
]


# -- files


def test_rig_file_matches_parameters_of_controller() -> None:
    rig = yaml.safe_load(files.locate(RIG, files.RIG).read_text())
    parameters = yaml.safe_load(CONTROLLERS)
    receiver = parameters["rths_receiver"]["ros__parameters"]
    assert receiver["joints"] == list(rig["axes"])
    assert parameters["controller_manager"]["ros__parameters"]["update_rate"] == rig["servo_rate"]
    assert receiver["emulator"] is rig["port"]["emulator"] is True
    limits, expected = receiver["axes"]["bench"]["limits"], rig["axes"]["bench"]["limits"]
    assert [limits[name] for name in ("stroke", "velocity")] == [expected["stroke"], expected["velocity"]]
    assert (limits["force"], limits["acceleration"]) == (float(expected["force"]), expected["deceleration"])


def test_names_in_files_match_code() -> None:
    plugin = ElementTree.parse(EXAMPLE / "rths_controller.xml").getroot()
    (controller,) = plugin.findall("class")
    code = (EXAMPLE / "src" / "receiver_controller.cpp").read_text(encoding="utf-8")
    exported = re.search(r"PLUGINLIB_EXPORT_CLASS\((\S+), (\S+)\)", code)
    assert exported is not None
    assert exported.groups() == (controller.get("type"), controller.get("base_class_type"))
    values = yaml.safe_load(CONTROLLERS)
    assert values["controller_manager"]["ros__parameters"]["rths_receiver"]["type"] == controller.get("name")
    cmake = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert plugin.get("path") in re.findall(r"add_library\((\w+) SHARED", cmake)
    package = ElementTree.parse(EXAMPLE / "package.xml").getroot()
    depends = {tag.text for tag in package.findall("depend")}
    assert set(re.findall(r"find_package\((\w+) REQUIRED", cmake)) == depends | {"ament_cmake"}
    code = (EXAMPLE / "src" / "parameters.cpp").read_text(encoding="utf-8")
    read = set(re.findall(r'(?:required|optional|declared)\((?:name \+ )?"\.?([\w.]+)"', code))
    receiver = values["rths_receiver"]["ros__parameters"]
    bench = receiver.pop("axes")["bench"]
    written = set(receiver)
    for key, value in bench.items():
        written |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) else {key}
    assert written == read


def test_cmake_names_path_of_missing_receiver(tmp_path: Path) -> None:
    """Uses only the lines of CMake that need no ROS."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake is installed here")
    text = (EXAMPLE / "CMakeLists.txt").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^file\(REAL_PATH.*?^endforeach\(\)", text, re.M | re.S)
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.21)\nproject(a NONE)\n{lines}\n")
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    error = re.sub(r"\s+", " ", result.stderr)
    assert f"RTHS_TARGET = {tmp_path.parent / 'udp_target'}: no rths_target.c" in error
    command.append(f"-DRTHS_TARGET={ROOT / 'examples' / 'udp_target'}")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


# -- built and run


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("rths_controller"))


@pytest.fixture
def start(prefix: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a controller manager, and the receiver in it with changed parameters."""
    running: list[Manager] = []

    def start(urdf: str = URDF, spawned: bool = True, manager: dict | None = None, **changed: object) -> Manager:
        parameters = yaml.safe_load(CONTROLLERS)
        parameters["rths_receiver"]["ros__parameters"] |= changed
        parameters["controller_manager"]["ros__parameters"] |= manager or {}
        running.append(Manager(prefix, tmp_path, yaml.safe_dump(parameters), urdf))
        assert (running[0].spawn() == 0) is spawned, running[0].log()
        return running[0]

    yield start
    for started in running:
        started.close()


def axis(**limits: float) -> dict:
    """Return the parameters of the axis of the example with other limits."""
    parameters = yaml.safe_load(CONTROLLERS)["rths_receiver"]["ros__parameters"]["axes"]["bench"]
    return parameters | {"limits": parameters["limits"] | limits}


class Held(NamedTuple):
    """Reason of an answer, active command (m) and velocity (m/s) of its first axis, and the answer."""

    reason: int
    command: float
    velocity: float
    answer: datagrams.Answer


class Line:
    """Test computer that answers each state with a command."""

    def __init__(self, axes: int = 1) -> None:
        self.axes = axes
        self.line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.line.settimeout(5.0)
        self.line.connect(("127.0.0.1", PORT))

    def send(self, kind: int, counter: int = 0, rows: bytes = b"") -> None:
        head = Head(kind, self.axes, 77, counter, period=PERIOD, flags=datagrams.EMULATOR, transport=1)
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
        """Move ``samples`` along straight lines of ``speeds``, m/s; then wait in silence for a state ``until``."""
        states = []
        while not states or states[-1].head.state != until:
            head, data = self.receive()
            if head.kind == datagrams.STATE:
                states.append(datagrams.state_of(data, head))
                k = head.counter + 1
                if k <= samples:
                    points = [v * k * DT for v in speeds]
                    self.send(datagrams.COMMAND, k, datagrams.command_rows(points, speeds, EMPTY))
        return states


def velocities(states: list[RigState]) -> np.ndarray:
    """Return the velocity of the command at each sample, m/s, of shape (samples, axes)."""
    assert [state.head.counter for state in states] == list(range(len(states)))
    return np.diff(np.array([state.command for state in states]), axis=0) / DT


class TestMockHardware:
    pytestmark = needs_ros2_control

    def test_real_time_test_equals_simulator(self, start: Start) -> None:
        """A spring delayed by one sample. If a sample was bridged, the motions agree only approximately."""
        manager = start()
        run = rths_nodes.run(NAME, SPRING, rig=RIG, host="composed", pace="realtime")
        assert run.outcome == "finished"
        spring = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0.0}"
        delay = f"axes.story_1.actuator={{type: pure_delay, delay: {1.0 / 1024.0!r}}}"
        reference = rths_nodes.run(NAME, [*SPRING, spring, delay]).dof_displacement
        line = manager.until(r"stopped: the session was closed; \d+ samples, \d+ bridged.*")
        largest = np.abs(reference).max()
        assert largest > 1e-3
        if ", 0 bridged, 0 limited" in line and not (run.flags & FLAG_BRIDGED).any():
            np.testing.assert_array_equal(run.dof_displacement, reference)
        else:
            np.testing.assert_allclose(run.dof_displacement, reference, rtol=0.0, atol=0.25 * largest)

    def test_answer_has_build_and_limits(self, start: Start) -> None:
        start()
        answer = Line().open().answer
        assert answer.build == build_number()
        (limits,) = answer.limits
        assert (limits.stroke, limits.velocity, limits.acceleration) == (0.25, 1.2, ACCELERATION)
        assert (limits.force, limits.error) == (1.8e6, 0.05)

    def test_killed_test_computer_leaves_joint_held(self, start: Start) -> None:
        manager = start()
        arguments = ["run", NAME, "--rig", RIG, "--host", "composed", "--pace", "realtime", "--no-record"]
        arguments += [f"--set={item}" for item in SPRING if not item.startswith(("duration", "ground_motion"))]
        command = [sys.executable, "-m", "rths_nodes.app.cli", *arguments]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            manager.until("running", 60.0)
            time.sleep(8.0)  # the earthquake has begun, and the joint moves
            run.send_signal(signal.SIGKILL)
        assert mentions(manager.until("stopped: .*"), "stopped", "command")
        held = Line().open()
        assert held.reason == 4  # an operator has to begin a new session
        assert held.velocity == 0.0
        assert held.command != 0.0
        time.sleep(0.2)
        assert Line().open().command == held.command
        # the operator's act continues from this position, without a jump
        assert manager.switch("deactivate") == 0
        assert manager.switch("activate") == 0
        again = Line().open()
        assert (again.reason, again.command) == (0, held.command)

    def test_silence_brakes_joints_together_within_acceleration(self, start: Start) -> None:
        urdf = URDF
        for text in re.findall(r'  <joint name="bench".*?</joint>\n', URDF, re.S):
            urdf = urdf.replace(text, text + text.replace('"bench"', '"other"').replace('"piston"', '"second"'))
        urdf = urdf.replace('<link name="cell"/>', '<link name="cell"/><link name="second"/>')
        joint = '<joint name="other">\n      <command_interface name="position"/>'
        urdf = urdf.replace(joint, joint + '\n      <state_interface name="effort"/>')
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
        braking = velocity[301:]
        assert (np.abs(np.diff(braking, axis=0)) <= ACCELERATION * DT * (1.0 + 1e-6)).all()
        moving = braking[np.abs(braking[:, 0]) > 1e-9]
        np.testing.assert_allclose(moving[:, 1], -0.5 * moving[:, 0], rtol=1e-6)
        assert (braking[-1] == 0.0).all()

    def test_force_beyond_limit_stops_joint_and_trips(self, start: Start) -> None:
        start(axes={"bench": axis(force=5e3)})
        result = hosts.run(NAME, SPRING, rig=RIG, host="composed", pace="realtime", record=None)
        assert result.outcome == "tripped"
        assert mentions(result.reason, "limit", "receiver")
        held = Line().open()
        assert held.velocity == 0.0
        assert abs(held.command) * 7.6e6 > 5e3

    def test_deactivation_during_session_is_reported_at_once(self, start: Start) -> None:
        manager = start()
        line = Line()
        line.begin()
        operator = threading.Thread(target=manager.switch, args=("deactivate",))
        operator.start()
        last = line.states([0.0], 10**6, datagrams.BRAKING)[-1]
        operator.join()
        assert (last.head.reason, last.head.interlock) == (3, 2)
        assert mentions(manager.log(), "deactivated", "session")

    def test_command_changed_by_hardware_stops_session(self, start: Start) -> None:
        """The limiter of ros2_control clips a command that is faster than the description allows."""
        manager = start(
            URDF.replace('velocity="1.2"', 'velocity="0.01"'), manager={"enforce_command_limits": True}
        )
        line = Line()
        line.begin()
        assert line.states([0.1], 300)[-1].head.reason == 3
        manager.until("stopped: the interlock of the rig is open, because the hardware")

    @pytest.mark.parametrize(("value", "interlock", "reason"), [("true", 1, 0), ("false", 2, 3)])
    def test_interlock_is_a_state_of_hardware(self, start: Start, value: str, interlock: int, reason: int) -> None:
        gpio = (
            '<gpio name="door"><state_interface name="closed" data_type="bool">'
            f'<param name="initial_value">{value}</param></state_interface></gpio>'
        )
        start(URDF.replace("  </ros2_control>", f"    {gpio}\n  </ros2_control>"), interlock="door/closed")
        line = Line()
        assert line.open().reason == reason
        if reason == 0:
            line.begin()
            assert line.states([0.0], 5)[0].head.interlock == interlock

    def test_invalid_parameters_are_refused_together(self, start: Start) -> None:
        invalid = axis(stroke=-1.0)
        invalid["position"] = {"scael": 2.0}
        del invalid["limits"]["error"]
        log = start(spawned=False, axes={"bench": invalid}, watchdog="ten").log()
        assert mentions(log, "axes.bench.limits.error: is missing", "number, m", ".inf")
        assert mentions(log, "watchdog = ten: must be", "integer")
        assert mentions(log, "axes.bench.position.scael: unknown parameter", "address, port")

    def test_values_beyond_bounds_are_refused(self, start: Start) -> None:
        log = start(spawned=False, axes={"bench": axis(stroke=-1)}, port=0).log()
        assert "axes.bench.limits.stroke = -1: must be > 0 and <= 10 m" in log
        assert "port = 0: must be 1 to 65535" in log
