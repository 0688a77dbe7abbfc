# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: a generated Python module that runs the loop of ``embedded.py`` with kernels.

Each kind of scenario has its own module. ``parts.py`` collects the parts of a scenario, or states why the scenario
cannot run in this loop. ``text.py`` writes the module in plain Python, and ``native.py`` translates it to C.
``history.py`` provides the inputs and stores the results. ``running.py`` runs the module, or the embedded loop if
the module stops early.
"""
