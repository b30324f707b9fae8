"""Codec numbers, stored in bits 0 to 2 of an entry's attributes in every format (``CompressionType``)."""

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
