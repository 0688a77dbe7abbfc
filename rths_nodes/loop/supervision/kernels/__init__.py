# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the indices, sample by sample: functions of floats, one text for every host and for histories.

In the form of ``core/kernels.py``. Every sum runs from left to right.
"""
