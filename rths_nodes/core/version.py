# SPDX-License-Identifier: Apache-2.0
"""Version of this package, as in package.xml and pyproject.toml."""

__version__ = "0.9.0"
