# SPDX-License-Identifier: Apache-2.0
"""ROS 2 node that reports the progress of a test, and stops the test if a force exceeds a limit.

    python3 watcher_node.py --namespace rths --most 2e5

The node needs rclpy and the messages of rths_nodes; no node of the test depends on it. The topic ``live`` has the
lowest and the highest force of each 10 ms, so that no peak is missed. The service ``actuator/stop`` brings the rig
to rest with the deceleration of the scenario. For conditions that must stop the rig within a sample, use limits of
the scenario.
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
ENDED = (TestState.FINISHED, TestState.HELD, TestState.TRIPPED)


class Watcher(Node):
    """Subscribes to the state and the curves of a test."""

    def __init__(self, namespace: str, most: float) -> None:
        super().__init__("watcher", namespace=namespace)
        self.most, self.largest = most, 0.0
        self.curves: list[str] = []
        self.began = self.ended = self.stopping = False
        self.create_subscription(LiveCurves, "live_curves", self.on_curves, LATCHED)
        self.create_subscription(Live, "live", self.on_live, LOSSY)
        self.create_subscription(TestState, "test_state", self.on_state, LATCHED)
        self.stop = self.create_client(Trigger, "actuator/stop")

    def on_curves(self, curves: LiveCurves) -> None:
        """Store the names of the curves, such as story_1/force."""
        self.curves = list(curves.names)

    def on_live(self, live: Live) -> None:
        """Check the forces of a message, which has columns of 10 ms."""
        width = PER_CURVE * len(self.curves)
        for index, name in enumerate(self.curves):
            if name.endswith("/force"):
                lowest, highest = (live.values[PER_CURVE * index + offset :: width] for offset in (1, 2))
                self.check(name, max(max(highest), -min(lowest)))

    def check(self, name: str, force: float) -> None:
        """Stop the test if a force (N) exceeds the limit."""
        self.largest = max(self.largest, force)
        if force > self.most and not self.stopping:
            self.stopping = True
            self.get_logger().warning(f"{name}: {force:.4g} N: stopping the test")
            self.stop.call_async(Trigger.Request())

    def on_state(self, state: TestState) -> None:
        """Report the beginning and the end of the test."""
        if state.state == TestState.RUNNING and not self.began:
            self.began = True
            self.get_logger().info(f"{state.scenario} has begun, {state.samples / state.servo_rate:g} s")
        if self.began and state.state in ENDED:
            self.ended = True
            reason = f": {state.reason}" if state.reason else ""
            largest = f"largest force {self.largest:.4g} N"
            self.get_logger().info(f"ended after {state.sample} samples{reason}; {largest}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--namespace", default="rths")
    parser.add_argument("--most", type=float, default=float("inf"), help="force at which the test is stopped, N")
    options = parser.parse_args()
    rclpy.init()
    watcher = Watcher(options.namespace, options.most)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        while not watcher.ended:
            rclpy.spin_once(watcher, timeout_sec=0.1)
    watcher.destroy_node()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
