# SPDX-License-Identifier: Apache-2.0
"""Force controllers: from the desired force of an axis to the position of its actuator."""

TABLE = {
    "feed_forward_pi": ".feed_forward_pi:FeedForwardPi",
    "servo_valve": ".servo_valve:ServoValve",
}
