# SPDX-License-Identifier: Apache-2.0
"""Ports that connect to their rig through ROS 2, which is needed only to open them."""
