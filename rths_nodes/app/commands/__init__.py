# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of ``rths``. Each has a module with a description, arguments and ``run``."""
