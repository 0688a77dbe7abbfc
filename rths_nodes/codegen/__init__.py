# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them."""
