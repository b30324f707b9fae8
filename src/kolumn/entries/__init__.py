"""Entries of a segment by their headers."""
