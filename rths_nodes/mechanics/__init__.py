# SPDX-License-Identifier: Apache-2.0
"""Mechanics shared by several rooms: filters, couplers, columns, matrices of structures, models of rigs."""
