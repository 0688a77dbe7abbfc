# SPDX-License-Identifier: Apache-2.0
"""The numerical substructure: ground motion, structure, integrator."""
