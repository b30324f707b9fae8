"""Codec ids of Kafka's attributes, and one file per codec for its framing."""

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Name of each codec id, as Kafka spells it."""
