# SPDX-License-Identifier: Apache-2.0
"""Tests with an operator: questions, acts, screens, and the ladder of rungs."""
