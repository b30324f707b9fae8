"""Conversion of uncompressed batches between formats 2 and 3: another header, and records with or without their attributes byte."""

from typing import Any

import numpy as np

from kolumn.cpu_fallback.encode.batches import compact_headers, seal
from kolumn.cpu_fallback.encode.restride import plain_attributes
from kolumn.cpu_fallback.encode.restride import restride as rewrite
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.encode.entries import Encoded, EntrySettings
from kolumn.formats import v2, v3_compact
from kolumn.log.pieces import Piece


def restride(piece: Piece, how: EntrySettings) -> Encoded:
    """Batches of the other format; their keys and values are copied and not parsed.

    Records of format 2 that do have attributes keep them in format 3.
    """
    entries, own = piece.entries.copy(), piece.entries
    start = own.position - piece.origin + own.payload
    payload, size = piece.source.ctypes.data + start, own.size - own.payload
    size = np.where(piece.counts > 0, size, 0)
    new = np.empty(len(entries), np.int64)
    room = np.empty(int((size + piece.counts).sum()) + PAD, np.uint8)
    entries.layout, entries.magic = how.layout, how.magic
    if how.layout == v2.LAYOUT.number:
        bare = own.layout == v3_compact.BARE_LAYOUT.number
        skip = 0
    else:
        bare = np.full(len(entries), bool(plain_attributes(payload, size, piece.counts)))
        skip = 1
        entries.layout = np.where(bare, v3_compact.BARE_LAYOUT.number, v3_compact.LAYOUT.number)
    parts: list[Any] = []
    if bare.all():
        total = rewrite(payload, size, piece.counts, room.ctypes.data, skip, new)
        ends = np.cumsum(new)
        parts = np.split(room[:total], ends[:-1])
    else:
        for i in range(len(entries)):
            if bare[i]:
                one = slice(i, i + 1)
                total = rewrite(payload[one], size[one], piece.counts[one], room.ctypes.data, skip, new[one])
                parts.append(room[:total].copy())
            else:
                new[i] = size[i]
                parts.append(piece.source[start[i] : start[i] + size[i]])
    headers = np.full(len(entries), v2.HEADER, np.int64)
    if how.layout != v2.LAYOUT.number:
        compact_headers(entries.array, new, headers)
    entries.size = new + headers
    entries.position = np.cumsum(entries.size) - entries.size
    heads = (np.zeros(int(header), np.uint8) for header in headers)
    data = np.concatenate([part for pair in zip(heads, parts, strict=True) for part in pair])
    seal(data.ctypes.data, entries.array)
    return Encoded(data, entries)
