# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: generated functions, one for each kind of scenario, equivalent to ``embedded.py``."""
