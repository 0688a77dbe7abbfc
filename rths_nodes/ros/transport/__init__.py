# SPDX-License-Identifier: Apache-2.0
"""Topics, inboxes, filters of messages, and the middleware."""
