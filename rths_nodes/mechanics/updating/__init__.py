# SPDX-License-Identifier: Apache-2.0
"""Model updating: parameters of copies of the specimen follow its measured behaviour during the test."""
