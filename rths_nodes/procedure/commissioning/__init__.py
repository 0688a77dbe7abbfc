# SPDX-License-Identifier: Apache-2.0
"""Commissioning of a rig: measures the stops and limits at the far end of its port, without a specimen."""
