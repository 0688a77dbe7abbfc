# SPDX-License-Identifier: Apache-2.0
"""Target to Command: ramps, setups, compensators, and controllers of forces and auxiliary inputs."""
