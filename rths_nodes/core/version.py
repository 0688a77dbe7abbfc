# SPDX-License-Identifier: Apache-2.0
"""The version of this package; package.xml and pyproject.toml say the same."""

__version__ = "0.9.0"
