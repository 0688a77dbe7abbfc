# SPDX-License-Identifier: Apache-2.0
"""A numerical substructure in another program, a TCP client such as OpenSees."""
