# SPDX-License-Identifier: Apache-2.0
"""Scenario of a test: schema, files, overrides, and assembly of the components."""
