# SPDX-License-Identifier: Apache-2.0
"""Driver node that replaces the actuator node; it imports only the messages of rths_nodes."""

import time

import rclpy
import yaml
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile

from rths_nodes.msg import Command, Measurement, NodeStatus, Progress, Summary, TestState, Trip

PEERS, WRITERS = {"integrator", "compensator", "monitor", "recorder"}, {"monitor", "recorder"}
LATCHED, HEARD = (QoSProfile(depth=n, durability=DurabilityPolicy.TRANSIENT_LOCAL) for n in (1, 20))


class Bench:
    """Replace this by your controller. Here an ideal actuator moves a spring."""

    position, velocity = 0.0, 0.0

    def drive(self, command, dt):
        """Move to ``command`` (m) within ``dt`` (s); return displacement (m) and force (N)."""
        self.position, self.velocity = command, (command - self.position) / dt
        return command, 1.0e6 * command


class Driver(Node):
    def __init__(self):
        super().__init__("actuator")
        self.deceleration = self.declare_parameter("deceleration", 10.0).value
        self.bench, self.sample, self.state, self.trip = Bench(), -1, TestState.IDLE, None
        self.samples = self.dt = 0  # set by the first node status
        self.hash, self.ready, self.done = "", set(), set()
        self.run = f"{time.time_ns():023d}"  # 23 characters, different in every run
        kinds = {"test_state": TestState, "node_status": NodeStatus, "summary": Summary}
        self.told = {topic: self.create_publisher(kind, topic, LATCHED) for topic, kind in kinds.items()}
        for topic in ("measurement", "true_state"):
            self.told[topic] = self.create_publisher(Measurement, topic, 2000)
        for topic, kind, qos in (("node_status", NodeStatus, HEARD), ("trip", Trip, HEARD)):
            self.create_subscription(kind, topic, getattr(self, f"on_{topic}"), qos)
        self.create_subscription(Progress, "progress", lambda m: self.done.update([m.node] * m.done), 100)
        self.create_subscription(Command, "command", self.on_command, 2000)

    def tell(self, topic, message):
        message.header.stamp, message.run = self.get_clock().now().to_msg(), self.run
        self.told[topic].publish(message)

    def enter(self, state, reason=""):
        self.state, told = state, TestState(state=state, reason=reason, samples=self.samples)
        told.sample, told.scenario_hash = max(self.sample, 0), self.hash
        self.tell("test_state", told)

    def on_node_status(self, status):
        if not self.hash and status.parameters:  # nodes with another hash belong to another scenario or run
            self.hash, test = status.scenario_hash, yaml.safe_load(status.parameters)["test"]
            self.samples, self.dt = test["samples"], 1.0 / test["servo_rate"]
            self.tell("node_status", NodeStatus(node="actuator", ready=True, scenario_hash=self.hash))
            self.enter(TestState.POSITIONED)
        self.ready.update([status.node] * (status.ready and status.run == self.run))
        if self.state == TestState.POSITIONED and self.ready >= PEERS:
            self.enter(TestState.ARMED)
            self.enter(TestState.RUNNING)
            self.tick(self.bench.position)

    def on_command(self, command):
        due = command.run == self.run and command.sample == self.sample + 1
        if due and self.state == TestState.RUNNING:
            self.tick(command.command[0])

    def on_trip(self, trip):
        if trip.run == self.run and self.trip is None:
            self.trip = trip
            self.heed_trip()

    def tick(self, command, flags=0):
        self.sample += 1
        displacement, force = self.bench.drive(command, self.dt)
        told = Measurement(sample=self.sample, displacement=[displacement], force=[force], flags=flags)
        told.command, told.control_mode = [command], [Measurement.MODE_DISPLACEMENT]
        self.tell("measurement", told)
        self.heed_trip()
        if self.state == TestState.RUNNING and self.sample == self.samples:
            self.enter(TestState.FINISHED)

    def heed_trip(self):
        """Brake and hold from the effective sample of the Trip on."""
        if self.state != TestState.RUNNING or self.trip is None or self.sample < self.trip.effective_sample:
            return
        self.enter(TestState.STOPPING, self.trip.reason)
        velocity, step = self.bench.velocity, self.deceleration * self.dt
        while velocity:
            velocity -= min(max(velocity, -step), step)
            self.tick(self.bench.position + velocity * self.dt, Measurement.FLAG_TRIPPED)
        self.tick(self.bench.position, Measurement.FLAG_TRIPPED)
        self.enter(TestState.TRIPPED, self.trip.reason)


def main():
    rclpy.init()
    driver = Driver()
    while driver.state not in (TestState.FINISHED, TestState.TRIPPED):
        rclpy.spin_once(driver)
    names, values = ["sent.measurement", "sent.true_state"], [driver.sample + 1.0, 0.0]
    driver.tell("summary", Summary(node="actuator", names=names, values=values))
    end = time.monotonic() + 5.0
    while time.monotonic() < end and not driver.done >= WRITERS:
        rclpy.spin_once(driver, timeout_sec=0.1)
    driver.destroy_node()
    rclpy.shutdown()
