# SPDX-License-Identifier: Apache-2.0
"""Numerical substructure: ground motion, structure, integrator."""
