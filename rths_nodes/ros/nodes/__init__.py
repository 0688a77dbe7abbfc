# SPDX-License-Identifier: Apache-2.0
"""Nodes of a rig and their parts."""
