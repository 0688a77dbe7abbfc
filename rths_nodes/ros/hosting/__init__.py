# SPDX-License-Identifier: Apache-2.0
"""Hosts of nodes: in one process, in one process per node, and by launch."""
