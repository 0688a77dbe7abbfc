# SPDX-License-Identifier: Apache-2.0
"""Injected faults: kinds, and their effect on streams of a host."""
