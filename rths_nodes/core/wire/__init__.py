# SPDX-License-Identifier: Apache-2.0
"""Bytes on the wire: the layout of the messages, the codec of the streams, and everything else as plain data."""
