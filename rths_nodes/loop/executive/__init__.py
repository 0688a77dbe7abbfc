# SPDX-License-Identifier: Apache-2.0
"""The executive: a native process that runs a loop over kernels by the clock, without the interpreter.

``parts.py`` adds the safe stop to the parts of a loop, or states why a scenario cannot run so. ``memory.py`` lays
out the memory that is shared with the program, ``executive.c`` is its main part, ``messages.py`` turns its rows
into messages, and ``running.py`` builds, starts and ends it. ``near.c`` and ``near.py`` are the
near side of the port ``udp``.
"""
