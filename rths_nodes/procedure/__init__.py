# SPDX-License-Identifier: Apache-2.0
"""Procedure of a test, from switching on the rig to the end: states, acts of the operator, and their record."""
