# SPDX-License-Identifier: Apache-2.0
"""The reference structure: the whole, computed without a split."""
