# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``rths``: descriptions, arguments and functions."""
