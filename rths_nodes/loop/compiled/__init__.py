# SPDX-License-Identifier: Apache-2.0
"""Loop over kernels: the loop of ``embedded.py`` as a function of kernels, generated for each kind of scenario."""
