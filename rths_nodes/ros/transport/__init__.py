# SPDX-License-Identifier: Apache-2.0
"""Topics, inboxes, message filters and the middleware."""
