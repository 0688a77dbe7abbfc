# SPDX-License-Identifier: Apache-2.0
"""Studies: many runs and their combined results."""
