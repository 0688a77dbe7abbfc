# SPDX-License-Identifier: Apache-2.0
"""Version of this package, equal to package.xml and pyproject.toml."""

__version__ = "0.9.0"
