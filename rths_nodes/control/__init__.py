# SPDX-License-Identifier: Apache-2.0
"""Components that convert Targets to Commands, and controllers of forces and auxiliary inputs."""
