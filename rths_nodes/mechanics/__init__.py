# SPDX-License-Identifier: Apache-2.0
"""Mechanics shared by several packages: filters, couplers, columns, matrices of structures, models of rigs."""
