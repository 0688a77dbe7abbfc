"""Hosts of nodes: in one process, in a process each, and by launch."""
