# SPDX-License-Identifier: Apache-2.0
"""The page of a test: what an onlooker knows, in a browser, and a stop that is always in reach."""
