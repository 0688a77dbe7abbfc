# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``rths``: one module each, with description, arguments and ``run``."""
