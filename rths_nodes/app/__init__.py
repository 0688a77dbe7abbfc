# SPDX-License-Identifier: Apache-2.0
"""Applications: command line, Python functions, studies, web page."""
