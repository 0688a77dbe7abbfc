# SPDX-License-Identifier: Apache-2.0
"""Controller manager of ros2_control with mock hardware and the receiver of rths_controller."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

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
NAME = "rths_receiver"

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
            spawner, NAME, "--param-file", str(self._parameters), "--controller-manager-timeout", "30"
        )

    def switch(self, act: str) -> int:
        """``activate`` or ``deactivate`` the receiver; return the exit code."""
        return self._run(sys.executable, "-c", SWITCH, NAME, act)

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
