# SPDX-License-Identifier: Apache-2.0
"""Watcher process: inputs, pulse, and record."""
