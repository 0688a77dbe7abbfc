# SPDX-License-Identifier: Apache-2.0
"""Stability of the loop of a test, judged before the test."""
