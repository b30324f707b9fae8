"""Columns become segments."""
