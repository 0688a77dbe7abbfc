# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py``: values, C text of a function. ``translating.py``: its syntax tree. ``intrinsics.py``: functions with
a C form of their own. ``calling.py``: functions to a program, its call. ``building.py``: its library.
"""
