# SPDX-License-Identifier: Apache-2.0
"""Ports: connections to a rig, or to a simulator."""

from __future__ import annotations

TABLE = {
    "simulator": ".simulator:Simulator",
    "udp": ".udp:UdpPort",
    "ros2_control": "rths_nodes.ros.ports.ros2_control:Ros2ControlPort",
}
"""Import paths by port type. Importing the classes here would import ROS."""
