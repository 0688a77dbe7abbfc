# SPDX-License-Identifier: Apache-2.0
"""Target to Command: ramp, setup, compensator, and control of the other inputs of the rig."""
