# SPDX-License-Identifier: Apache-2.0
"""Calculations and figures before and after a test."""
