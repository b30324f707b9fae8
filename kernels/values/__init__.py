"""Typed columns from the values of records."""
