# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py`` has the values and the C text of a function. ``translating.py`` translates its syntax tree,
``intrinsics.py`` has the functions with a C form of their own. ``calling.py`` gathers functions to a program and
calls it, ``building.py`` builds its library.
"""
