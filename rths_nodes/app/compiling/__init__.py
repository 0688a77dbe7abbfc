# SPDX-License-Identifier: Apache-2.0
"""Kernels, and loops over them with their place on the disk, compiled by numba, an extra of this package."""
