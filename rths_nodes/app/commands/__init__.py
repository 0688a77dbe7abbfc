# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``rths``: each declares its arguments and runs. Their table is in ``cli.py``."""
