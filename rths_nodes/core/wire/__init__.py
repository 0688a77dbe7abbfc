# SPDX-License-Identifier: Apache-2.0
"""Serialization: layout of messages, codec of the streams, and plain data."""
