# SPDX-License-Identifier: Apache-2.0
"""Injected faults: their kinds, and their effect on the streams of a host."""
