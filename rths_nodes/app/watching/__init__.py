# SPDX-License-Identifier: Apache-2.0
"""A watcher as a process: what it hears and sees, its pulse, and its record."""
