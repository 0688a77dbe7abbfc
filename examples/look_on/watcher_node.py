# SPDX-License-Identifier: Apache-2.0
"""ROS 2 node that reports the progress of a test, and stops the test if a force exceeds a limit.

    python3 watcher_node.py --namespace rths --most 2e5

The node needs rclpy and the messages of rths_nodes; no node of the test depends on it. The topic ``live`` holds
the lowest and the highest force of each 10 ms, so that no peak is missed. The service ``actuator/stop`` brings the
rig to rest with its own deceleration. Use limits of the scenario for conditions that must stop the rig within a
sample.
"""

import argparse
import sys
from contextlib import suppress

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_srvs.srv import Trigger

from rths_nodes.msg import Live, LiveCurves, TestState

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
LOSSY = QoSProfile(depth=20, reliability=ReliabilityPolicy.BEST_EFFORT)
PER_CURVE = 4
"""First, lowest, highest and last value of each curve in each column."""
OVER = (TestState.FINISHED, TestState.HELD, TestState.TRIPPED)


class Watcher(Node):
    """Subscribes to the state and the curves of a test."""

    def __init__(self, namespace: str, most: float) -> None:
        super().__init__("watcher", namespace=namespace)
        self.most, self.largest = most, 0.0
        self.curves: list[str] = []
        self.began = self.over = self.asked = False
        self.create_subscription(LiveCurves, "live_curves", self.named, LATCHED)
        self.create_subscription(Live, "live", self.drawn, LOSSY)
        self.create_subscription(TestState, "test_state", self.told, LATCHED)
        self.stop = self.create_client(Trigger, "actuator/stop")

    def named(self, told: LiveCurves) -> None:
        """Store the names of the curves, such as story_1/force."""
        self.curves = list(told.names)

    def drawn(self, live: Live) -> None:
        """Judge the forces of a message, which holds columns of 10 ms."""
        width = PER_CURVE * len(self.curves)
        for place, name in enumerate(self.curves):
            if name.endswith("/force"):
                lowest, highest = (live.values[PER_CURVE * place + which :: width] for which in (1, 2))
                self.judge(name, max(max(highest), -min(lowest)))

    def judge(self, name: str, force: float) -> None:
        """Stop the test, once, if a force (N) is too large."""
        self.largest = max(self.largest, force)
        if force > self.most and not self.asked:
            self.asked = True
            self.get_logger().warning(f"{name}: {force:.4g} N: stopping the test")
            self.stop.call_async(Trigger.Request())

    def told(self, state: TestState) -> None:
        """Report begin and end of the test."""
        if state.state == TestState.RUNNING and not self.began:
            self.began = True
            self.get_logger().info(f"{state.scenario} has begun, {state.samples / state.servo_rate:g} s")
        if self.began and state.state in OVER:
            self.over = True
            why = f": {state.reason}" if state.reason else ""
            self.get_logger().info(f"ended after {state.sample} samples{why}; largest force {self.largest:.4g} N")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--namespace", default="rths")
    parser.add_argument("--most", type=float, default=float("inf"), help="force at which the test is stopped, N")
    options = parser.parse_args()
    rclpy.init()
    watcher = Watcher(options.namespace, options.most)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        while not watcher.over:
            rclpy.spin_once(watcher, timeout_sec=0.1)
    watcher.destroy_node()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
