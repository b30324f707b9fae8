"""Bodies that AWS Glue's serializers have compressed with zlib."""

import zlib
from ctypes import c_char

import numpy as np

from kolumn.arrays import Bytes, Int64s
from kolumn.encodings.framing import GLUE, GLUE_ZLIB
from kolumn.errors import NoMemoryError

_ALL_BYTES = 1 << 30
"""Maximum bytes of all decompressed bodies of a column."""
_PAD = 64


def inflated(at: Int64s, length: Int64s, prefix: Int64s, framing: Int64s, most: int) -> Bytes | None:
    """Decompress the rows with the framing `GLUE_ZLIB`, which becomes `GLUE`.

    Parameters
    ----------
    at, length, prefix, framing : int64 array of n
        Set for those rows: address and bytes of the decompressed body, 0 for its prefix. The length is -1 if the body is not exactly
        one zlib stream, or has more than ``most`` bytes.
    most : int

    Returns
    -------
    uint8 array or None
        The memory of the bodies.

    Raises
    ------
    NoMemoryError
        All of them together have more than 1 GiB.
    """
    rows = np.flatnonzero(framing == GLUE_ZLIB)
    framing[rows] = GLUE
    rows = rows[length[rows] >= 0]
    if not len(rows):
        return None
    bodies = []
    total = 0
    for row in rows.tolist():
        body = _one(memoryview((c_char * int(length[row])).from_address(int(at[row]))), most)
        length[row] = -1 if body is None else len(body)
        bodies.append(body or b"")
        total += len(bodies[-1])
        if total > _ALL_BYTES:
            raise NoMemoryError(f"compressed values of AWS Glue: more than {_ALL_BYTES} bytes in one batch of rows: lower chunk_bytes")
    held = np.frombuffer(b"".join([*bodies, bytes(_PAD)]), np.uint8)
    at[rows] = held.ctypes.data + np.cumsum([0, *map(len, bodies)])[:-1]
    prefix[rows] = 0
    return held


def _one(data: memoryview, most: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, most + 1)
    except zlib.error:
        return None
    return body if stream.eof and not stream.unused_data and len(body) <= most else None
