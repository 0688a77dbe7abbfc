# SPDX-License-Identifier: Apache-2.0
"""Repeated tests: computations between one run and the next."""
