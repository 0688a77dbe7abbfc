# SPDX-License-Identifier: Apache-2.0
"""Identification of loading systems and specimens."""
