# SPDX-License-Identifier: Apache-2.0
"""Stability of the loop of a test, before the test."""
