# SPDX-License-Identifier: Apache-2.0
"""Hosts of nodes: in one process, in a process each, and by launch."""
