# SPDX-License-Identifier: Apache-2.0
"""Independent driver node as in doc/drivers.md, which uses only the messages.

    python foreign_driver.py SAMPLES [BREACH_AT] [silent|obeys|bridges]

Its actuator follows immediately, its specimen is a spring. At sample ``BREACH_AT`` its load cell reports 1e12 N,
and the driver continues; with ``obeys`` it stops at a Trip, with ``silent`` it sends nothing more. With
``bridges`` it reports every fourth sample as bridged.
"""

import sys
import time

import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile

from rths_nodes.msg import Command, Measurement, NodeStatus, Progress, Summary, TestState, Trip

PEERS = {"integrator", "compensator", "monitor", "recorder"}
STIFFNESS = 1e6
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
RECEIVED = QoSProfile(depth=20, durability=DurabilityPolicy.TRANSIENT_LOCAL)
STREAM = QoSProfile(depth=2000, history=HistoryPolicy.KEEP_LAST)


class Driver(Node):
    def __init__(self, samples: int, breach_at: int, behaviour: str) -> None:
        super().__init__("actuator", namespace="rths")
        self.samples, self.breach_at, self.behaviour = samples, breach_at, behaviour
        self.run = f"mine_{time.time_ns() % 10**18:018d}"  # 23 characters, different in each run
        self.scenario_hash, self.ready, self.state, self.sample = "", set(), TestState.IDLE, -1
        self.trips, self.after_breach, self.done = [], [], set()
        self.test_state = self.create_publisher(TestState, "test_state", LATCHED)
        self.status = self.create_publisher(NodeStatus, "node_status", LATCHED)
        self.summary = self.create_publisher(Summary, "summary", LATCHED)
        self.measurement = self.create_publisher(Measurement, "measurement", STREAM)
        self.true_state = self.create_publisher(Measurement, "true_state", STREAM)
        self.create_subscription(NodeStatus, "node_status", self.receive_status, RECEIVED)
        self.create_subscription(Trip, "trip", self.receive_trip, RECEIVED)
        self.create_subscription(Progress, "progress", self.receive_progress, 100)
        self.create_subscription(Command, "command", self.receive_command, STREAM)

    def stamped(self, message):
        message.header.stamp, message.run = self.get_clock().now().to_msg(), self.run
        return message

    def enter(self, state: int, reason: str = "") -> None:
        self.state = state
        values = {"scenario_hash": self.scenario_hash, "samples": self.samples, "reason": reason}
        self.test_state.publish(self.stamped(TestState(state=state, sample=max(self.sample, 0), **values)))

    def receive_status(self, status: NodeStatus) -> None:
        if not self.scenario_hash and status.scenario_hash:
            self.scenario_hash = status.scenario_hash
            driver = NodeStatus(node="actuator", ready=True, scenario_hash=self.scenario_hash)
            self.status.publish(self.stamped(driver))
            self.enter(TestState.POSITIONED)
        if status.ready and status.run == self.run:
            self.ready.add(status.node)
        if self.state == TestState.POSITIONED and self.ready >= PEERS:
            self.enter(TestState.ARMED)
            self.enter(TestState.RUNNING)
            self.measure(0.0)

    def receive_command(self, command: Command) -> None:
        if command.run != self.run or command.sample != self.sample + 1:
            return
        if self.breach_at and self.sample >= self.breach_at:
            self.after_breach.append(command.command[0])
        if self.state == TestState.RUNNING:
            bridges = self.behaviour == "bridges" and command.sample % 4 == 0
            self.measure(command.command[0], Measurement.FLAG_BRIDGED if bridges else 0)

    def receive_trip(self, trip: Trip) -> None:
        if trip.run == self.run:
            self.trips.append(f"{trip.source}: {trip.reason}")

    def receive_progress(self, progress: Progress) -> None:
        if progress.done:
            self.done.add(progress.node)

    def measure(self, position: float, flags: int = 0) -> None:
        self.sample += 1
        force = 1e12 if 0 < self.sample == self.breach_at else STIFFNESS * position
        message = Measurement(sample=self.sample, flags=flags, displacement=[position], force=[force])
        message.command, message.control_mode = [position], [Measurement.MODE_DISPLACEMENT]
        self.position = position
        self.measurement.publish(self.stamped(message))
        if self.sample == self.samples:
            self.enter(TestState.FINISHED)

    def continue_without_commands(self) -> None:
        if self.behaviour == "obeys" and self.trips:
            self.enter(TestState.STOPPING, self.trips[0])
            self.measure(self.position, Measurement.FLAG_TRIPPED)
            self.enter(TestState.TRIPPED, self.trips[0])
        elif self.behaviour != "silent":
            self.measure(self.position)


def main() -> None:
    samples, breach_at = map(int, (*sys.argv[1:3], "0")[:2])
    rclpy.init()
    driver = Driver(samples, breach_at, "".join(sys.argv[3:4]))
    previous = -1
    while driver.state < TestState.FINISHED:
        rclpy.spin_once(driver, timeout_sec=0.5 if driver.sample < breach_at or not driver.trips else 0.001)
        if breach_at and driver.sample >= breach_at and driver.sample == previous and driver.trips:
            driver.continue_without_commands()
        previous = driver.sample
    numbers = {"sent.measurement": float(driver.sample + 1), "sent.true_state": 0.0}
    driver.summary.publish(
        driver.stamped(Summary(node="actuator", names=list(numbers), values=list(numbers.values())))
    )
    end = time.monotonic() + 8.0
    while time.monotonic() < end and not driver.done >= {"monitor", "recorder"}:
        rclpy.spin_once(driver, timeout_sec=0.1)
    print("trips:", *driver.trips, sep="\n  ")
    print("commands after the breach:", driver.after_breach, flush=True)
    driver.destroy_node()
    rclpy.shutdown()


main()
