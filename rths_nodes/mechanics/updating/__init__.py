# SPDX-License-Identifier: Apache-2.0
"""Model updating: parameters of a copy of the specimen follow what the specimen shows, step by step."""
