# SPDX-License-Identifier: Apache-2.0
"""Models of OpenSees, each in a process of its own that the test starts, watches and ends."""
