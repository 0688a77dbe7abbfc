# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of ``rths``: each declares its arguments and runs (``cli.py`` has the table)."""
