# SPDX-License-Identifier: Apache-2.0
"""Ports that reach their rig by ROS 2, which only opening needs."""
