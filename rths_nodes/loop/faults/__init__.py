# SPDX-License-Identifier: Apache-2.0
"""Faults that are injected on purpose: their kinds, and how the streams of a host suffer them."""
