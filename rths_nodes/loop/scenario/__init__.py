# SPDX-License-Identifier: Apache-2.0
"""Description of a test: the schema of a scenario, its files, its overrides, and what is built from it."""
