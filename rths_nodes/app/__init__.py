# SPDX-License-Identifier: Apache-2.0
"""Application: command line, hosts, studies, doctor."""
