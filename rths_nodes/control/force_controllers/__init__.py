# SPDX-License-Identifier: Apache-2.0
"""Force controllers: from the force that an axis shall have to where its actuator has to go."""

TABLE = {
    "feed_forward_pi": ".feed_forward_pi:FeedForwardPi",
    "servo_valve": ".servo_valve:ServoValve",
}
