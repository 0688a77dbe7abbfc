# SPDX-License-Identifier: Apache-2.0
"""Recordings of tests and records of procedures, without ROS."""
