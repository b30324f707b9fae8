"""Typed values on the CPU: loops over the rows of a column of payloads."""
