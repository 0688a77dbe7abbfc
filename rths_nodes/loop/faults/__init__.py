# SPDX-License-Identifier: Apache-2.0
"""Injected faults: their kinds, and their effect on a host's streams."""
