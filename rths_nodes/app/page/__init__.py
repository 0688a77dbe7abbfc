# SPDX-License-Identifier: Apache-2.0
"""Page of a test: a view for onlookers in a browser, with a stop button."""
