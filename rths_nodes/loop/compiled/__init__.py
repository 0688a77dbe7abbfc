# SPDX-License-Identifier: Apache-2.0
"""The loop of ``embedded.py`` over kernels, as the text of a Python module for each kind of scenario.

``parts.py`` collects the parts of a scenario, or states why it cannot run over kernels. ``text.py`` writes the
module in plain Python; ``native.py`` translates it to C. ``history.py`` provides the inputs and stores the
results. ``running.py`` runs the module, or the embedded loop if the module stops.
"""
