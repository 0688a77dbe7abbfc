# SPDX-License-Identifier: Apache-2.0
"""The executive: a native process that runs a loop over kernels in real time, without the interpreter.

``parts.py`` adds the safe stop to the loop, ``memory.py`` lays out the memory shared with ``executive.c``,
``messages.py`` converts rows to messages, and ``running.py`` builds, starts and ends the program. ``near.c`` and
``near.py`` are the near side of the port ``udp``.
"""
