# SPDX-License-Identifier: Apache-2.0
"""A launch description, launched in a separate process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import rths_nodes
from rths_nodes.core.resources import resource

# As `ros2 launch`, without ros2cli. Noninteractive: launch forwards signals to the nodes.
LAUNCH = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
arguments = [word.split(":=", 1) for word in sys.argv[2:]]
service = LaunchService(argv=sys.argv[2:], noninteractive=True)
source = AnyLaunchDescriptionSource(sys.argv[1])
service.include_launch_description(
    LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
)
sys.exit(service.run())
"""


class Launch:
    """A running launch in a separate process group, and its output."""

    def __init__(self, folder: Path, file: str, *arguments: str, **environment: str) -> None:
        self.folder, self._log = folder, folder / "launch.log"
        modules = [str(Path(rths_nodes.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        variables = {
            "AMENT_PREFIX_PATH": os.environ.get("AMENT_PREFIX_PATH", sys.prefix),
            "PYTHONPATH": os.pathsep.join(filter(None, modules)),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "ROS_LOG_DIR": str(folder / "log"),
        }
        for name, value in environment.items():
            variables[name] = os.pathsep.join([value, variables[name]])
        with self._log.open("w") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(resource("launch", file)), *arguments],
                cwd=folder,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def pids(self) -> dict[str, int]:
        """Process ids by name, from the output."""
        started = re.findall(r"\[(\w+)-\d+\]: process started with pid \[(\d+)\]", self.output)
        return {name: int(pid) for name, pid in started}

    def clean(self) -> set[str]:
        """Names of the processes that ended with 0."""
        return set(re.findall(r"\[(\w+)-\d+\]: process has finished cleanly", self.output))

    def errors(self) -> set[tuple[str, str]]:
        """Processes that died according to the output, each with its exit code."""
        return set(
            re.findall(r"\[ERROR\] \[(\w+)-\d+\]: process has died \[pid \d+, exit code (-?\d+)", self.output)
        )

    def wait_for(self, condition, seconds: float = 110.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.output
            assert self.popen.poll() is None, self.output
            time.sleep(0.05)

    def wait_for_samples(self) -> None:
        """Wait until the recorder, in the folder ``run``, has written data of a running test."""
        self.wait_for(lambda: any(path.stat().st_size > 300_000 for path in self.folder.glob("run/*.mcap")))

    def end(self, seconds: float = 110.0) -> int:
        """Wait for the end and return the exit code; no process may be left."""
        code = self.popen.wait(seconds)
        assert not [name for name, pid in self.pids().items() if Path(f"/proc/{pid}").exists()], self.output
        return code
