# SPDX-License-Identifier: Apache-2.0
"""Indices of a test: delay, tracking, energy; and its curves in columns."""
