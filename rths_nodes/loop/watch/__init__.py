# SPDX-License-Identifier: Apache-2.0
"""A watcher beside a test: it sees by sensors of its own, and compares."""
