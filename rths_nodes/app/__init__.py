# SPDX-License-Identifier: Apache-2.0
"""Applications: command line, Python functions, studies, and web page of a test."""
