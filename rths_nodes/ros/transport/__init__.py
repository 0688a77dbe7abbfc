"""Topics, inboxes, whose messages count, and the middleware."""
