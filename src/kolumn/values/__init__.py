"""Typed keys and values: what is in the payloads of records, as columns."""
