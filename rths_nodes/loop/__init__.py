# SPDX-License-Identifier: Apache-2.0
"""A test without ROS: scenario, stages, supervision, faults, pace."""
