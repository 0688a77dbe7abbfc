# SPDX-License-Identifier: Apache-2.0
"""Simulated controller manager with the topics, QoS and parameters of ros2_controllers.

    python3 stand_in.py --joints bench --rate 100 --stiffness 1e6

One node is a forward_command_controller (topic ``~/commands``, parameters ``joints`` and ``interface_name``), the
other a joint_state_broadcaster (topic ``/joint_states``). Each joint follows its last command with a lag; its
effort is the force of a spring. With ``--counter``, a further joint returns the number of each command. With
``--watchdog``, the joints stop if this number no longer changes. ``--misbehave KIND@STATE[:N]`` injects a fault
(silent, nan, missing, lose, deaf) at the given joint state, counted from the first command, for N states.
"""

import argparse
import math
import sys
import time
from contextlib import suppress

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.time import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

SYSTEM_DEFAULTS = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.SYSTEM_DEFAULT, durability=DurabilityPolicy.SYSTEM_DEFAULT
)
KINDS = ("silent", "nan", "missing", "lose", "deaf")


class StandIn:
    """Simulated hardware, its update loop, and both controllers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.joints = options, options.joints.split(",")
        self.position = [options.start] * len(self.joints)
        self.driven = list(self.position)
        self.echo, self.echo_at = 0.0, time.monotonic()
        self.pending: list[float] | None = None
        self.states = 0  # since the first command; 0 before it
        self.kind, self.first, self.count = misbehaviour(options.misbehave)
        self.controller = Node(options.controller)
        self.names = [*self.joints, *([options.counter] if options.counter else [])]
        self.commanded = list(reversed(self.names)) if options.reversed else self.names
        self.controller.declare_parameter("joints", self.commanded)
        self.controller.declare_parameter("interface_name", options.interface)
        if not options.unmarked:
            self.controller.declare_parameter("rths_stand_in", True)
        self.controller.create_subscription(Float64MultiArray, "~/commands", self.receive, SYSTEM_DEFAULTS)
        self.broadcaster = Node("joint_state_broadcaster")
        self.publisher = self.broadcaster.create_publisher(JointState, "joint_states", SYSTEM_DEFAULTS)
        self.began_ns, self.cycles = time.time_ns(), 0

    def receive(self, command: Float64MultiArray) -> None:
        """Store a command. Like the real controller, drop one of another length or with non-finite values."""
        deaf = self.kind == "deaf" and self.states >= self.first
        if not deaf and len(command.data) == len(self.commanded) and all(map(math.isfinite, command.data)):
            self.pending = list(command.data)

    @property
    def due_ns(self) -> int:
        """Scheduled time of the next cycle, which is also the stamp of its state."""
        return self.began_ns + round(self.cycles * 1e9 / self.options.rate)

    def update(self) -> None:
        """Read the hardware, publish its state, then apply the newest command."""
        options, faulty = self.options, self.kind and self.states >= self.first
        if self.count and self.states >= self.first + self.count:
            faulty = False
        remainder = math.exp(-1.0 / (options.rate * options.lag)) if options.lag else 0.0
        for index, driven in enumerate(self.driven):
            self.position[index] = driven - remainder * (driven - self.position[index])
        if not (faulty and self.kind in ("silent", "lose")):
            self.publisher.publish(self.state(self.kind if faulty else ""))
        if self.pending is not None:
            values = dict(zip(self.commanded, self.pending, strict=True))
            number = values.get(options.counter, 0.0)
            if number != self.echo:
                self.echo, self.echo_at = number, time.monotonic()
            self.driven = [values[joint] for joint in self.joints]
            self.states = max(self.states, 1)
            self.pending = None
        if options.watchdog and time.monotonic() - self.echo_at > options.watchdog:
            self.driven = list(self.position)
        self.states += self.states > 0
        self.cycles += 1

    def state(self, fault: str) -> JointState:
        """Return the state of the joints; ``fault`` is ``nan``, ``missing`` or another kind."""
        message = JointState()
        message.header.stamp = Time(nanoseconds=self.due_ns).to_msg()
        message.name = [*self.names, "unused_joint"]
        effort = [self.options.stiffness * position for position in self.position]
        message.position = [*self.position, *([self.echo] if self.options.counter else []), 0.5]
        message.effort = [*effort, *([math.nan] * (len(message.name) - len(effort)))]
        message.velocity = [math.nan] * len(message.name)
        if fault == "nan":
            message.effort[0] = math.nan
        if fault == "missing":
            message.name[0] = "unknown_joint"
        return message


def misbehaviour(text: str) -> tuple[str, int, int]:
    """Parse text such as ``nan@20:1`` into kind, first state and number of states (0: until the end)."""
    kind, _, states = text.partition("@")
    if kind and kind not in KINDS:
        sys.exit(f"--misbehave {kind}: must be one of {', '.join(KINDS)}")
    first, _, count = states.partition(":")
    return kind, int(first or 1), int(count or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--controller", default="forward_position_controller", help="name of the controller")
    parser.add_argument("--joints", default="bench", help="joints, separated by commas")
    parser.add_argument("--reversed", action="store_true", help="reverse the order of the controller's joints")
    parser.add_argument("--rate", type=float, default=100.0, help="update rate, Hz")
    parser.add_argument("--start", type=float, default=0.0, help="initial position of the joints, m")
    parser.add_argument("--stiffness", type=float, default=1e6, help="stiffness of the springs, N/m")
    parser.add_argument("--lag", type=float, default=0.0, help="time constant of the joints, s")
    parser.add_argument("--interface", default="position", help="command interface of the controller")
    parser.add_argument("--counter", default="", help="joint that returns the numbers of the commands")
    parser.add_argument(
        "--watchdog", type=float, default=0.0, help="time without a new number after which the joints stop, s"
    )
    parser.add_argument("--unmarked", action="store_true", help="do not identify the node as a stand-in")
    parser.add_argument("--misbehave", default="", help="fault to inject: KIND@STATE[:N]")
    rclpy.init()
    stand_in = StandIn(parser.parse_args())
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(stand_in.controller)
    executor.add_node(stand_in.broadcaster)
    print("ready", flush=True)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        while True:
            ahead = (stand_in.due_ns - time.time_ns()) * 1e-9
            executor.spin_once(timeout_sec=max(ahead, 0.0))
            if time.time_ns() >= stand_in.due_ns:
                stand_in.update()
    rclpy.try_shutdown()


main()
