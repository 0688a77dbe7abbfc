# SPDX-License-Identifier: Apache-2.0
"""Procedure of a test, from the idle rig to the end: states, acts of the operator, motions, checks of the rig."""
