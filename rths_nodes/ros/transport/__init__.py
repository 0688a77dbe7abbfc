# SPDX-License-Identifier: Apache-2.0
"""Topics, inboxes, whose messages count, and the middleware."""
