# SPDX-License-Identifier: Apache-2.0
"""Puts the parts together: command line, hosts, studies, doctor."""
