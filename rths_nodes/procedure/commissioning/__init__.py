# SPDX-License-Identifier: Apache-2.0
"""Measured commissioning of a rig: all stops and limits of its far end, without a specimen."""
