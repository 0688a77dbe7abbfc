# SPDX-License-Identifier: Apache-2.0
"""Reports as self-contained HTML pages."""
