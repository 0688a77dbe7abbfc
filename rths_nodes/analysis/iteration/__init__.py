# SPDX-License-Identifier: Apache-2.0
"""Iterative tests: computations between two runs."""
