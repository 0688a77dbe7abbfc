# SPDX-License-Identifier: Apache-2.0
"""Watcher of a test, which compares its own sensors with the published state."""
