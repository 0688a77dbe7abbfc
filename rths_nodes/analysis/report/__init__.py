# SPDX-License-Identifier: Apache-2.0
"""The report: self-contained HTML pages."""
