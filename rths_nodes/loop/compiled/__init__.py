# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: the loop of ``embedded.py`` as a generated Python module for each kind of scenario.

``parts.py`` collects the parts of a scenario, or states why the scenario cannot run over kernels. ``text.py``
writes the module in plain Python, and ``native.py`` translates it to C. ``history.py`` provides the inputs and
stores the results. ``running.py`` runs the module, or the embedded loop if the module stops early.
"""
