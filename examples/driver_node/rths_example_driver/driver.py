# SPDX-License-Identifier: Apache-2.0
"""Driver node that replaces the actuator node; it imports only the messages of rths_nodes."""

import time

import rclpy
import yaml
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile

from rths_nodes.msg import Command, Measurement, NodeStatus, Progress, Summary, TestState, Trip

PEERS, WRITERS = {"integrator", "compensator", "monitor", "recorder"}, {"monitor", "recorder"}
LATCHED, QUEUED = (QoSProfile(depth=n, durability=DurabilityPolicy.TRANSIENT_LOCAL) for n in (1, 20))


class Bench:
    """Ideal actuator that moves a spring. Replace it by your controller."""

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
        types = {"test_state": TestState, "node_status": NodeStatus, "summary": Summary}
        self.outlets = {topic: self.create_publisher(kind, topic, LATCHED) for topic, kind in types.items()}
        for topic in ("measurement", "true_state"):
            self.outlets[topic] = self.create_publisher(Measurement, topic, 2000)
        self.create_subscription(NodeStatus, "node_status", self.on_node_status, QUEUED)
        self.create_subscription(Trip, "trip", self.on_trip, QUEUED)
        self.create_subscription(Progress, "progress", self.on_progress, 100)
        self.create_subscription(Command, "command", self.on_command, 2000)

    def publish(self, topic, message):
        message.header.stamp, message.run = self.get_clock().now().to_msg(), self.run
        self.outlets[topic].publish(message)

    def enter(self, state, reason=""):
        self.state, message = state, TestState(state=state, reason=reason, samples=self.samples)
        message.sample, message.scenario_hash = max(self.sample, 0), self.hash
        self.publish("test_state", message)

    def on_node_status(self, status):
        if not self.hash and status.parameters:  # nodes with another hash belong to another scenario or run
            self.hash, test = status.scenario_hash, yaml.safe_load(status.parameters)["test"]
            self.samples, self.dt = test["samples"], 1.0 / test["servo_rate"]
            self.publish("node_status", NodeStatus(node="actuator", ready=True, scenario_hash=self.hash))
            self.enter(TestState.POSITIONED)
        if status.ready and status.run == self.run:
            self.ready.add(status.node)
        if self.state == TestState.POSITIONED and self.ready >= PEERS:
            self.enter(TestState.ARMED)
            self.enter(TestState.RUNNING)
            self.tick(self.bench.position)

    def on_progress(self, progress):
        if progress.done:
            self.done.add(progress.node)

    def on_command(self, command):
        due = command.run == self.run and command.sample == self.sample + 1
        if due and self.state == TestState.RUNNING:
            self.tick(command.command[0])

    def on_trip(self, trip):
        if trip.run == self.run and self.trip is None:
            self.trip = trip
            self.obey_trip()

    def tick(self, command, flags=0):
        self.sample += 1
        displacement, force = self.bench.drive(command, self.dt)
        message = Measurement(sample=self.sample, displacement=[displacement], force=[force], flags=flags)
        message.command, message.control_mode = [command], [Measurement.MODE_DISPLACEMENT]
        self.publish("measurement", message)
        self.obey_trip()
        if self.state == TestState.RUNNING and self.sample == self.samples:
            self.enter(TestState.FINISHED)

    def obey_trip(self):
        """Brake and hold, beginning at the effective sample of the Trip."""
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
    driver.publish("summary", Summary(node="actuator", names=names, values=values))
    end = time.monotonic() + 5.0
    while time.monotonic() < end and not driver.done >= WRITERS:
        rclpy.spin_once(driver, timeout_sec=0.1)
    driver.destroy_node()
    rclpy.shutdown()
