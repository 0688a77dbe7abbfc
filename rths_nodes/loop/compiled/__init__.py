# SPDX-License-Identifier: Apache-2.0
"""The loop of ``embedded.py`` over kernels, as the text of a Python module for each kind of scenario.

``parts.py`` collects the parts of a scenario, or states why the scenario cannot run over kernels. ``text.py``
writes the module, which is plain Python; ``native.py`` translates the module to C. ``history.py`` provides the
inputs and stores the results. ``running.py`` runs the module, or the embedded loop if the module stops.
"""
