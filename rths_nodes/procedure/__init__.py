# SPDX-License-Identifier: Apache-2.0
"""Procedure of a test, from the idle rig to its end: states, operator acts, motions, and checks of the rig."""
