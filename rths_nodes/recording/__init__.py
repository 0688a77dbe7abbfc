# SPDX-License-Identifier: Apache-2.0
"""Recordings: writing, reading, recovering, analysing; without ROS."""
