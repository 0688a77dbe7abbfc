# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the indices, sample by sample: float functions shared by hosts and analysis.

In the form of ``core/kernels.py``. Every sum runs from left to right.
"""
