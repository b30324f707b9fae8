"""Segments: where they are, and their bytes by name and range. Nothing here knows a format."""
