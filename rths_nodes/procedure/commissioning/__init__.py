# SPDX-License-Identifier: Apache-2.0
"""The commissioning of a rig, measured: every stop and limit of its far end, with no specimen mounted."""
