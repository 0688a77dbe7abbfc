# SPDX-License-Identifier: Apache-2.0
"""Recordings: writing, reading, recovering, replaying, analysing; no ROS here."""
