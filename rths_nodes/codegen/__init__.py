# SPDX-License-Identifier: Apache-2.0
"""Translate kernels to C99, build them with the machine's C compiler and call them.

``values.py`` has the values of a translator. ``statements.py``, ``loops.py``, ``expressions.py`` and
``arrays.py`` translate a function. ``program.py`` gathers functions, ``building.py`` builds a library
and ``calling.py`` calls it.
"""
