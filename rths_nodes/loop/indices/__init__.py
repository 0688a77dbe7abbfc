# SPDX-License-Identifier: Apache-2.0
"""Indices of a test (delay, tracking, energy, late periods), and data for plots of a running test."""
