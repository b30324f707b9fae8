"""Inflate: many compressed payloads in, one arena of their bytes out.

    payloads ──▶ frame (compiled) ──▶ table of blocks ──▶ decoder of the library, block by block ──▶ arena, without gaps

A payload that is broken, or larger than allowed, gives a code and no bytes, and leaves the others alone.
"""

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import cramjam
import numpy as np
import zstandard
from isal import isal_zlib

from kolumn.codecs import DEFLATE, LZ4_BLOCK, NAMES, SNAPPY_BLOCK, STORED, ZSTD_FRAME, flaws
from kolumn.cpu_fallback.address import PAD
from kolumn.cpu_fallback.blocks import BOUND, KIND, PAYLOAD, SOURCE, STOP, frame, member_end
from kolumn.errors import Code
from kolumn.recycle import take

RATIO_FLOOR = 64 << 20
"""Payloads that inflate to no more than this are not held to ``max_ratio``."""
ONE_GO = 1 << 20
"""Largest bound of a zstd frame for which a buffer of that size is simply made."""
STEP = 64 << 10
_FAILURES: Any = (cramjam.DecompressionError, zstandard.ZstdError, isal_zlib.error)
_local = threading.local()


@dataclass
class Inflated:
    """Result of `inflate`.

    Attributes
    ----------
    arena : ndarray of uint8
        Inflated bytes, at least `PAD` more than are used.
    start, size : ndarray of int64
        Where in ``arena`` the bytes of each payload lie; size 0 for a failed one.
    code : ndarray of int64
        `Code`: OK, BAD_STREAM, TOO_LARGE or BAD_CODEC.
    where : ndarray of int64
        Position in the source buffer that is to blame for a failed payload.
    found : dict of int to str
        For each failed payload, what was found there.
    """

    arena: np.ndarray
    start: np.ndarray
    size: np.ndarray
    code: np.ndarray
    where: np.ndarray
    found: dict[int, str] = field(default_factory=dict)


class FlawError(Exception):
    """A flaw that shows only while inflating."""

    def __init__(self, flaw: int, where: int) -> None:
        self.flaw, self.where = flaw, where


def inflate(
    buf: np.ndarray, start: np.ndarray, size: np.ndarray, codec: np.ndarray, magic: np.ndarray, max_bytes: int, max_ratio: float
) -> Inflated:
    """Inflate the payloads ``buf[start : start + size]``. Copies; releases the GIL while a library or compiled code works.

    Parameters
    ----------
    buf : ndarray of uint8
        Has `PAD` readable bytes behind the last payload.
    start, size : ndarray of int64
    codec, magic : ndarray of int
        Codec id and format of the batch of each payload.
    max_bytes : int
        Largest inflated size of one payload.
    max_ratio : float
        Largest ratio of inflated to compressed size, above `RATIO_FLOOR`.

    Notes
    -----
    Memory follows what really comes out of the decoders, or what the compressed bytes can at most hold, never a length
    that the stream merely claims.
    """
    start, size, codec, magic = (np.ascontiguousarray(x, np.int64) for x in (start, size, codec, magic))
    limit = np.minimum(float(max_bytes), np.maximum(RATIO_FLOOR, max_ratio * size)).astype(np.int64)
    table, flaw, where, careful = frame(buf, start, size, codec, magic, limit)
    run = _Run(buf, table, limit, flaw, where)
    for first, last, slow in _stretches(table, careful):
        (run.careful if slow else run.fast)(first, last)
    return run.result(start, codec)


def _stretches(table: np.ndarray, careful: np.ndarray) -> list[tuple[int, int, bool]]:
    """Runs of rows that can go through fast, and the rows of each payload that could pass its limit."""
    if not careful.any():
        return [(0, len(table), False)]
    slow = careful[table[:, PAYLOAD]]
    group = np.where(slow, table[:, PAYLOAD], -1)
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(table)]
    return [(first, last, bool(slow[first])) for first, last in pairwise(edges) if last > first]


class _Run:
    """One call's way through its table of blocks."""

    def __init__(self, buf: Any, table: np.ndarray, limit: np.ndarray, flaw: np.ndarray, where: np.ndarray) -> None:
        self.source, self.address = memoryview(buf), int(buf.ctypes.data)
        self.table, self.limit, self.flaw, self.where = table, limit, flaw, where
        self.count = np.zeros(len(table), np.int64)
        self.at = 0
        bounds = table[:, BOUND]
        claimed, packed = int(bounds.sum()), int((table[:, STOP] - table[:, SOURCE]).sum())
        self.arena: Any = np.empty(0, np.uint8)
        self.out: Any = None
        self._make(min(claimed, 6 * packed + (1 << 20)) + PAD)

    def _make(self, capacity: int, used: int = 0) -> None:
        buffer, out = take(capacity)
        if used:
            out[:used] = self.out[:used]
        self.arena, self.out = np.frombuffer(buffer, np.uint8), out

    def _room(self, count: int, begun: int = 0) -> memoryview:
        """The arena, with room for ``count`` bytes behind ``self.at``, of which ``begun`` are written."""
        if self.at + count + PAD > len(self.arena):
            self._make(max(self.at + count + PAD, 2 * len(self.arena)), self.at + begun)
        return self.out

    def fast(self, first: int, last: int) -> None:
        """Rows [first, last), of which no payload can pass its limit."""
        while first < last:
            try:
                first = self._blocks(first, last)
            except FlawError as failure:
                first = self._fail(self.failed, failure.flaw, failure.where)
            except _FAILURES:
                first = self._fail(self.failed, flaws.CONTENT, int(self.table[self.failed, SOURCE]))

    def _blocks(self, first: int, last: int) -> int:
        columns = self.table[first:last]
        kinds, sources, stops, bounds = (columns[:, c].tolist() for c in (KIND, SOURCE, STOP, BOUND))
        source, out, at, ready = self.source, self.out, self.at, len(self.arena) - PAD
        lz4, snappy, zstd = cramjam.lz4.decompress_block_into, cramjam.snappy.decompress_raw_into, _zstd().decompress
        counts: list[int] = []
        done = counts.append
        try:
            for kind, begin, stop, bound in zip(kinds, sources, stops, bounds, strict=True):
                reach = at + bound
                if reach > ready and kind < ZSTD_FRAME and kind != DEFLATE:
                    self.at = at
                    out, ready = self._room(bound), len(self.arena) - PAD
                if kind == LZ4_BLOCK:
                    count = lz4(source[begin:stop], out[at:reach], bound)
                elif kind == SNAPPY_BLOCK:
                    count = snappy(source[begin:stop], out[at:reach]) if bound else self._nothing(begin, stop)
                elif kind == STORED:
                    out[at:reach] = source[begin:stop]
                    count = bound
                elif kind == ZSTD_FRAME and 0 < bound <= ONE_GO:
                    piece = zstd(source[begin:stop], bound)
                    count = len(piece)
                    if at + count > ready:
                        self.at = at
                        out, ready = self._room(count), len(self.arena) - PAD
                    out[at : at + count] = piece
                else:
                    self.at = at
                    count = self._streamed(kind, begin, stop, bound)
                    out, ready = self.out, len(self.arena) - PAD
                at += count
                done(count)
        except Exception:
            self.failed = first + len(counts)
            raise
        finally:
            self.at = at
            self.count[first : first + len(counts)] = counts
        return last

    def careful(self, first: int, last: int) -> None:
        """Rows [first, last), all of the one payload that could pass its limit."""
        payload = int(self.table[first, PAYLOAD])
        limit, begin, row = int(self.limit[payload]), self.at, first
        while row < last:
            kind, bound, source, stop = (int(self.table[row, c]) for c in (KIND, BOUND, SOURCE, STOP))
            left = limit - (self.at - begin)
            if kind in (STORED, SNAPPY_BLOCK) and bound > left:
                row = self._fail(row, flaws.TOO_LARGE, source)
                continue
            try:
                if kind in (DEFLATE, ZSTD_FRAME):
                    self.count[row] = self._streamed(kind, source, stop, left)
                    self.at += int(self.count[row])
                else:
                    self._blocks(row, row + 1)
                row = self._fail(row, flaws.TOO_LARGE, source) if self.at - begin > limit else row + 1
            except FlawError as failure:
                row = self._fail(row, failure.flaw, failure.where)
            except _FAILURES:
                row = self._fail(row, flaws.CONTENT, source)

    def _fail(self, row: int, flaw: int, where: int) -> int:
        """Take back what the payload of ``row`` has written; the row behind its last one."""
        payload = self.table[row, PAYLOAD]
        first, last = (int(np.searchsorted(self.table[:, PAYLOAD], payload, side)) for side in ("left", "right"))
        self.at -= int(self.count[first : row + 1].sum())
        self.count[first:last] = 0
        self.flaw[payload], self.where[payload] = flaw, where
        return last

    def _nothing(self, begin: int, stop: int) -> int:
        """A snappy block of size 0 is its preamble alone."""
        if min(self.source[begin : stop - 1], default=0x80) < 0x80 or self.source[stop - 1] != 0:
            raise FlawError(flaws.CONTENT, begin)
        return 0

    def _streamed(self, kind: int, begin: int, stop: int, limit: int) -> int:
        return self._members(begin, stop, limit) if kind == DEFLATE else self._stream(begin, stop, limit)

    def _stream(self, begin: int, stop: int, limit: int) -> int:
        """Zstd frame [begin, stop) of unknown or great size, into the arena from ``self.at`` on: the bytes that it gave."""
        total, want = 0, STEP
        with _zstd().stream_reader(self.source[begin:stop], read_across_frames=False) as reader:
            while True:
                piece = reader.read(want)
                if not piece:
                    return total
                if total + len(piece) > limit:
                    raise FlawError(flaws.TOO_LARGE, begin)
                out, at = self._room(total + len(piece), total), self.at + total
                out[at : at + len(piece)] = piece
                total += len(piece)
                want = min(2 * want, 16 * ONE_GO)

    def _members(self, begin: int, stop: int, limit: int) -> int:
        """Gzip members from the deflate stream at ``begin`` on, into the arena from ``self.at`` on: the bytes that they gave."""
        total, address, step = 0, self.address, stop - begin
        while begin < stop:
            decoder, crc, count = isal_zlib.decompressobj(-15), 0, 0
            while not decoder.eof:
                if begin >= stop:
                    raise FlawError(flaws.CUT, stop)
                chunk = self.source[begin : min(begin + step, stop)]
                piece = decoder.decompress(chunk, limit - total + 1)
                if total + len(piece) > limit:
                    raise FlawError(flaws.TOO_LARGE, begin)
                begin += len(chunk) - len(decoder.unused_data)
                crc = isal_zlib.crc32(piece, crc)
                out, at = self._room(total + len(piece), total), self.at + total
                out[at : at + len(piece)] = piece
                total += len(piece)
                count += len(piece)
                step *= 2
            flaw, begin = member_end(address, begin, stop, crc, count)
            if flaw:
                raise FlawError(flaw, begin)
            # What is left over of a chunk is copied, so chunks start small where many members may follow.
            step = 4096
        return total

    def result(self, start: np.ndarray, codec: np.ndarray) -> Inflated:
        payloads = len(start)
        sums = np.bincount(self.table[:, PAYLOAD], weights=self.count, minlength=payloads).astype(np.int64)
        ends = np.cumsum(sums)
        code = np.zeros(payloads, np.int64)
        found = {}
        for i in np.flatnonzero(self.flaw).tolist():
            flaw = int(self.flaw[i])
            code[i] = {flaws.TOO_LARGE: Code.TOO_LARGE, flaws.CODEC: Code.BAD_CODEC}.get(flaw, Code.BAD_STREAM)
            name = NAMES[codec[i]] if 0 <= codec[i] < len(NAMES) else f"codec {codec[i]}"
            found[i] = f"{name}: {flaws.TEXT[flaw]} at byte {self.where[i] - start[i]} of the payload"
        return Inflated(self.arena, ends - sums, sums, code, self.where, found)


def _zstd() -> zstandard.ZstdDecompressor:
    """This thread's decompressor: one must not be shared."""
    if not hasattr(_local, "zstd"):
        _local.zstd = zstandard.ZstdDecompressor()
    return _local.zstd
