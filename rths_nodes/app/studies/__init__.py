# SPDX-License-Identifier: Apache-2.0
"""Studies: many runs and what they come to together."""
