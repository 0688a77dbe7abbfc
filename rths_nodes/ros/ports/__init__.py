# SPDX-License-Identifier: Apache-2.0
"""Ports that connect to a rig through ROS 2. ROS 2 is needed only to open a port."""
