# SPDX-License-Identifier: Apache-2.0
"""Ports that connect to their rig through ROS 2; only opening a port needs ROS 2."""
