# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py`` has the values of a translated function, ``scope.py`` emits its C text. ``expressions.py`` and
``statements.py`` translate its syntax tree, ``intrinsics.py`` has the functions with a C form of their own.
``program.py`` gathers functions, ``building.py`` builds a library and ``calling.py`` calls it.
"""
