"""Columns of text in base64 as bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Bytes, Flags
from kolumn.core.buffers import bools
from kolumn.values.decoder import only_rows, spread


def from_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, Flags]:
    """Texts in base64, padded, as bytes, and which of them are not that: four characters of six bits are three bytes."""
    there = bools(texts.is_valid())
    size = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
    failed = there & (size % 4 != 0)
    rows = np.flatnonzero(there & ~failed)
    some = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
    _, ends, data = some.buffers()
    ends = np.frombuffer(ends, np.int32, len(some) + 1, 4 * some.offset).astype(np.int64)
    codes = _CODES[np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]]]
    ends -= ends[0]
    last = ends[1:][ends[1:] > ends[:-1]]
    pads = np.zeros(len(some), np.int64)
    pads[ends[1:] > ends[:-1]] = np.where(codes[last - 1] != _PAD, 0, np.where(codes[last - 2] != _PAD, 1, 2))
    others = np.concatenate([[0], np.cumsum(codes >= _PAD)])
    wrong = others[ends[1:]] - others[ends[:-1]] != pads
    words = (codes.reshape(-1, 4).astype(np.uint32) & 63) << np.array([18, 12, 6, 0], np.uint32)
    found = words.sum(1, dtype=np.uint32).astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].reshape(-1)
    keep, bounds = np.ones(len(found), bool), ends[1:] // 4 * 3
    keep[bounds[pads > 0] - 1] = False
    keep[bounds[pads > 1] - 2] = False
    offsets = np.concatenate([[0], bounds - np.cumsum(pads)]).astype(np.int32)
    made = pa.Array.from_buffers(pa.binary(), len(some), [None, pa.py_buffer(offsets), pa.py_buffer(found[keep])])
    failed[rows[wrong]] = True
    return spread(only_rows(made, ~wrong), there & (size % 4 == 0)), failed


def _codes() -> Bytes:
    codes = np.full(256, _PAD + 1, np.uint8)
    codes[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64)
    codes[ord("=")] = _PAD
    return codes


_PAD = 64
_CODES = _codes()
