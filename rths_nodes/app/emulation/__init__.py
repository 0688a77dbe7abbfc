# SPDX-License-Identifier: Apache-2.0
"""A rig at the end of a network, emulated: receiver, simulated rig, a clock of its own, and what goes wrong."""
