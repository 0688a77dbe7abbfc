# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: the loop of ``embedded.py`` as a generated function. Each kind of scenario has a module."""
