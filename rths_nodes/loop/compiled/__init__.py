# SPDX-License-Identifier: Apache-2.0
"""The loop over kernels: that of ``embedded.py`` for one kind of scenario, as the text of a Python module.

``parts.py`` says what a scenario is made of, or why it cannot run so; ``text.py`` writes the module;
``history.py`` feeds it and keeps what it gives; ``running.py`` is a run, and the way back to the embedded loop.
The text is plain Python; ``native.py`` has it in C.
"""
