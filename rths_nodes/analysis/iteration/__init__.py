# SPDX-License-Identifier: Apache-2.0
"""Iterative tests: corrections between two runs."""
