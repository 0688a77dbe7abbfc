# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py``: values, and C text of a function. ``translating.py``: syntax tree of a function. ``intrinsics.py``:
functions with their own C form. ``calling.py``: complete programs, and their calls. ``building.py``: compilation.
"""
