# SPDX-License-Identifier: Apache-2.0
"""Run nodes in one process, in one process per node, or with launch."""
