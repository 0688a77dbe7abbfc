# SPDX-License-Identifier: Apache-2.0
"""Node classes and their components."""
