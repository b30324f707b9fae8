"""Memory and rows of Arrow data."""
