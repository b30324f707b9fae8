"""Segments that a plugin for tiered storage has chunked, compressed and encrypted (Aiven's format)."""
