# SPDX-License-Identifier: Apache-2.0
"""Commissioning of a rig: measures the stops and limits of its far end, without a specimen."""
