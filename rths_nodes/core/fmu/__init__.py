# SPDX-License-Identifier: Apache-2.0
"""Models as functional mock-up units (FMI), each in a process started by the test."""
