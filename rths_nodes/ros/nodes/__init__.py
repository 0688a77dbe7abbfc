# SPDX-License-Identifier: Apache-2.0
"""The nodes of a rig, and the parts that they are made of."""
