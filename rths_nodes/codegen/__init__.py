# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``translating.py`` translates functions to C text (``values.py``, ``intrinsics.py``). ``calling.py`` assembles and
calls programs. ``building.py`` compiles them.
"""
