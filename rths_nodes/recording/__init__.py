# SPDX-License-Identifier: Apache-2.0
"""Recordings of tests: written, read and recovered without ROS."""
