# SPDX-License-Identifier: Apache-2.0
"""The executive: a native process that runs a loop over kernels in real time, without the Python interpreter."""
