# SPDX-License-Identifier: Apache-2.0
"""One test without ROS: scenario, stages, supervision, faults, pace."""
