# SPDX-License-Identifier: Apache-2.0
"""Stability of a test's loop, judged before the test."""
