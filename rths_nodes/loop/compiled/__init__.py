# SPDX-License-Identifier: Apache-2.0
"""The loop of ``embedded.py`` over kernels, for one kind of scenario, as the text of a Python module.

``parts.py`` collects the parts of a scenario, or states why it cannot run over kernels. ``text.py`` writes the
module, ``history.py`` provides its inputs and stores its results, and ``running.py`` runs it or falls back to the
embedded loop. The text is plain Python; ``native.py`` translates it to C.
"""
