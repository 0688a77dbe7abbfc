# SPDX-License-Identifier: Apache-2.0
"""Tests without ROS: scenario, stages, supervision, faults and pacing."""
