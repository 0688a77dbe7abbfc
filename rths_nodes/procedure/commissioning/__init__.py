# SPDX-License-Identifier: Apache-2.0
"""Measured commissioning of a rig: every stop and limit of its far end, without a specimen."""
