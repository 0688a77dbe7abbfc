# SPDX-License-Identifier: Apache-2.0
"""Emulated rig on a network: receiver, simulated rig, separate clock, and faults."""
