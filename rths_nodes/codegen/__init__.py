# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py``: values, and C text of a function. ``translating.py``: syntax tree of a function. ``intrinsics.py``:
functions with a C form of their own. ``calling.py``: assembles functions into a program and calls it.
``building.py``: compiles the library.
"""
