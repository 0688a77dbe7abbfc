# SPDX-License-Identifier: Apache-2.0
"""Procedure of a test, from the idle rig to the end of the test: states, acts, motions and checks of the rig."""
