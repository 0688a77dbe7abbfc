# SPDX-License-Identifier: Apache-2.0
"""Models that more than one room needs: a model file, inverses, the coupled rig."""
