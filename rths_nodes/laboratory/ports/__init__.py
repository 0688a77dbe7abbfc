# SPDX-License-Identifier: Apache-2.0
"""Ports: the way to the rig. The simulator is the first of them."""

from __future__ import annotations

TABLE = {
    "simulator": ".simulator:Simulator",
    "udp": ".udp:UdpPort",
    "ros2_control": "rths_nodes.ros.ports.ros2_control:Ros2ControlPort",
}
"""The last one stands in the room that may speak ROS: it is only named here."""
