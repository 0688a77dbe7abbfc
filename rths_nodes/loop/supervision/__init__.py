# SPDX-License-Identifier: Apache-2.0
"""Supervision of rig and test: limits, states, safe stop, bridges, heartbeat, and monitor."""
