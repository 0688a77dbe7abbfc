# SPDX-License-Identifier: Apache-2.0
"""Web page of a test: display for onlookers, stop button, and the operator's acts."""
