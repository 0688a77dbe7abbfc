# SPDX-License-Identifier: Apache-2.0
"""Tests that repeat: what is computed between one run and the next."""
