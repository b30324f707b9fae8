"""The codecs of Kafka's batches: their ids, and one file per framing (lz4.py, snappy.py, zstd.py, gzip.py).

Each of those four files finds the compressed blocks of a payload by two scalar functions:

    header(buf, at, end, magic) -> flaw, next, state              before the first block
    block(buf, at, end, state)  -> flaw, next, source, stop, bound, kind    one block, or kind `END`

Bytes [source, stop) of ``buf`` are the block. ``bound`` is the most bytes that it can decompress to (the exact number for `STORED` and
`SNAPPY_BLOCK`), and ``kind`` selects the decoder. ``flaw`` is 0 or a number of flaws.py; then ``next`` is the position of the error.
Every length is checked against ``end`` before it is used. The rules are those of Kafka's Java reader.
"""

from kolumn.formats.layout import GZIP, LZ4, NONE, SNAPPY, ZSTD

__all__ = ["DEFLATE", "END", "GZIP", "LZ4", "LZ4_BLOCK", "NONE", "SNAPPY", "SNAPPY_BLOCK", "STORED", "ZSTD", "ZSTD_FRAME"]
END, STORED, DEFLATE, SNAPPY_BLOCK, LZ4_BLOCK, ZSTD_FRAME = range(6)
"""Kinds of block."""
