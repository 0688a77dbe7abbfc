# SPDX-License-Identifier: Apache-2.0
"""Tests with an operator: questions, acts, tables, and the ladder of rungs."""
