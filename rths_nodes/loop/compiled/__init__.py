# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: the loop of ``embedded.py``, generated as one function for each kind of scenario."""
