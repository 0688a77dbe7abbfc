# SPDX-License-Identifier: Apache-2.0
"""Force controllers: convert the desired force of an axis to a position command of its actuator."""

TABLE = {
    "feed_forward_pi": ".feed_forward_pi:FeedForwardPi",
    "servo_valve": ".servo_valve:ServoValve",
}
