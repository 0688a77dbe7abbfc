# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of this machine: what it grants to real time, and for which rates it is good."""
