# SPDX-License-Identifier: Apache-2.0
"""Model updating: models of the specimen (copies) are fitted to its measured behaviour during the test."""
