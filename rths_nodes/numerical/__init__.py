# SPDX-License-Identifier: Apache-2.0
"""The computed part: ground motion, structure, integrator."""
