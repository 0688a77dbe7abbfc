# SPDX-License-Identifier: Apache-2.0
"""Mechanics that more than one room needs: filters, couplers, columns, matrices of structures, models of rigs."""
