# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py`` defines values and collects the C text of a function. ``translating.py`` translates its syntax tree.
``intrinsics.py`` lists functions with a C form of their own. ``calling.py`` assembles and calls programs.
``building.py`` compiles them.
"""
