"""Recordings: writing, reading, recovering, replaying, analysing; no ROS here."""
