# SPDX-License-Identifier: Apache-2.0
"""Nodes, hosts and ports that use ROS 2. Only this package may import rclpy, launch or rths_nodes.msg."""
