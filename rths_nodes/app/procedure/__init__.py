# SPDX-License-Identifier: Apache-2.0
"""A test from the cold rig to its report: what an operator answers, acts and sees, and who walks the ladder."""
