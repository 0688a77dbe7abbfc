# SPDX-License-Identifier: Apache-2.0
"""Page of a test: an onlooker's view in a browser, with a stop."""
