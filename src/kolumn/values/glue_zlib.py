"""Bodies that AWS Glue's serializers have compressed with zlib."""

import zlib
from ctypes import c_char

import numpy as np

from kolumn.arrays import Bytes, Int64s
from kolumn.encodings.framing import GLUE, GLUE_ZLIB, NONE
from kolumn.errors import NoMemoryError

_ALL_BYTES = 1 << 30
"""Maximum bytes of all decompressed bodies of a column."""
_PAD = 64


def inflated(at: Int64s, length: Int64s, prefix: Int64s, framing: Int64s, most: int, bare: bool) -> Bytes | None:
    """Decompress the rows with the framing `GLUE_ZLIB`, which becomes `GLUE`; returns the memory of the bodies, None if there are none.

    Address and bytes of those rows are set; the prefix is in front of the decompressed body too. A body that is not exactly one zlib
    stream, or has more than ``most`` bytes, gets the length -1; with ``bare`` it is a value without a prefix instead. Raises
    `NoMemoryError` if all of them together have more than 1 GiB.
    """
    rows = np.flatnonzero((framing == GLUE_ZLIB) & (length >= 0))
    framing[framing == GLUE_ZLIB] = GLUE
    parts: list[bytes] = []
    done, starts = [], []
    total = 0
    for row in rows.tolist():
        front = int(prefix[row])
        payload = memoryview((c_char * (front + int(length[row]))).from_address(int(at[row]) - front))
        body = _one(payload[front:], most)
        if body is not None:
            done.append(row)
            starts.append(total + front)
            parts += [payload[:front].tobytes(), body]
            length[row] = len(body)
            total += front + len(body)
        elif bare:
            at[row], length[row], prefix[row], framing[row] = at[row] - front, len(payload), 0, NONE
        else:
            length[row] = -1
        if total > _ALL_BYTES:
            raise NoMemoryError(f"compressed values of AWS Glue: more than {_ALL_BYTES} bytes in one batch of rows: lower chunk_bytes")
    if not done:
        return None
    held = np.frombuffer(b"".join([*parts, bytes(_PAD)]), np.uint8)
    at[done] = held.ctypes.data + np.array(starts, np.int64)
    return held


def _one(data: memoryview, most: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, most + 1)
    except zlib.error:
        return None
    return body if stream.eof and not stream.unused_data and len(body) <= most else None
