"""Errors that explain damaged entries, and lists of the damage that a read left out."""
