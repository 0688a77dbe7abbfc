# SPDX-License-Identifier: Apache-2.0
"""Models shared by several packages: a model file, inverses, the coupled rig."""
