# SPDX-License-Identifier: Apache-2.0
"""OpenSees models, each in a process started by the test."""
