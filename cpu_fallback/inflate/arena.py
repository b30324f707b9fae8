"""Decompresses many payloads into one arena.

    payloads ──▶ frame (compiled) ──▶ table of blocks ──▶ decoder of the library, block by block ──▶ arena, without gaps

A payload that is malformed, or larger than allowed, gets a code and no bytes, and does not affect the others.
"""

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import cramjam
import numpy as np
import zstandard
from isal import isal_zlib

from kolumn.core.arrays import Bytes, Flags, Int64s
from kolumn.core.errors import Code
from kolumn.core.recycle import take
from kolumn.cpu_fallback.inflate.blocks import BOUND, KIND, PAYLOAD, SOURCE, STOP, frame, member_end
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.formats.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, STORED, ZSTD_FRAME, flaws
from kolumn.formats.codecs.known import NAMES

RATIO_FLOOR = 64 << 20
"""``max_ratio`` does not apply to payloads that decompress to at most this many bytes."""
LARGE = 16 << 20
"""Payloads that decompress to more bytes than this are measured first."""
UNBOUNDED = 1 << 62
ONE_GO = 1 << 20
"""Largest bound of a zstd frame for which a buffer of that size is allocated."""
STEP = 64 << 10
PACKED, PIECE = 256 << 10, 4 << 20
"""Most bytes that a streaming decoder reads and returns at a time."""
LZ4_LARGEST = 4 << 20
"""Largest decompressed size of an lz4 block, in bytes."""
_FAILURES: Any = (cramjam.DecompressionError, zstandard.ZstdError, isal_zlib.error)
_local = threading.local()


@dataclass
class Inflated:
    """Result of `inflate`.

    ``arena``: ndarray of uint8, decompressed bytes, followed by at least `PAD` unused ones.
    ``start``, ``size``: ndarray of int64, position in ``arena`` and number of the bytes of each payload; size 0 for a failed one.
    ``code``: ndarray of int64, `Code`: OK, BAD_STREAM, TOO_LARGE or BAD_CODEC.
    ``where``: ndarray of int64, position in the source buffer of the error in a failed payload.
    ``found``: dict of int to str, for each failed payload, the text of its error.
    ``done``: how many payloads, from the first on, were processed. The values of the arrays are undefined for the others.
    """

    arena: np.ndarray
    start: np.ndarray
    size: np.ndarray
    code: np.ndarray
    where: np.ndarray
    found: dict[int, str] = field(default_factory=dict)
    done: int = 0


@dataclass(frozen=True)
class Share:
    """Limit of the bytes that one call may decompress. ``bytes``: no payload is begun once this many bytes are decompressed. ``large``:
    whether the first payload may decompress to more than that."""

    bytes: int = UNBOUNDED
    large: bool = True


_EVERYTHING = Share()


class _LargerError(Exception):
    """A payload decompresses to more bytes than allowed."""


class FlawError(Exception):
    """A flaw that is found only during decompression."""

    def __init__(self, flaw: int, where: int) -> None:
        self.flaw, self.where = flaw, where


def inflate(
    buf: np.ndarray, start: np.ndarray, size: np.ndarray, codec: np.ndarray, magic: np.ndarray, max_bytes: int, max_ratio: float,
    share: Share = _EVERYTHING,
) -> Inflated:  # fmt: skip
    """Decompress the payloads ``buf[start : start + size]``. Copies; libraries and compiled code run without the GIL.

    ``buf``: ndarray of uint8 with `PAD` readable bytes after the last payload.
    ``start``, ``size``: ndarray of int64.
    ``codec``, ``magic``: ndarray of int, codec number and magic of the entry of each payload.
    ``max_bytes``: largest decompressed size of one payload.
    ``max_ratio``: largest ratio of decompressed to compressed size, above `RATIO_FLOOR`.
    ``share``: how many bytes to decompress; by default all. Memory is allocated for the measured output of the decoders, or for an
        upper bound that follows from the compressed bytes, never for a length that is only claimed by the stream.
    """
    start, size, codec, magic = (np.ascontiguousarray(x, np.int64) for x in (start, size, codec, magic))
    limit = np.minimum(float(max_bytes), np.maximum(RATIO_FLOOR, max_ratio * size)).astype(np.int64)
    table, flaw, where, careful = frame(buf, start, size, codec, magic, np.minimum(limit, min(LARGE, share.bytes)))
    run = _Run(buf, size, table, limit, flaw, where, careful, share)
    run.max_bytes, run.max_ratio = max_bytes, max_ratio
    done = len(start)
    for first, last, slow in _stretches(table, careful, share.bytes):
        payload = int(table[first, PAYLOAD])
        if run.at >= share.bytes or (slow and not run.careful(first, last)):
            done = payload
            break
        if not slow:
            run.fast(first, last)
    return run.result(start, codec, done)


def _stretches(table: np.ndarray, careful: np.ndarray, share: int) -> list[tuple[int, int, bool]]:
    """Runs of rows for the fast path, each of about ``share`` bytes at most, and the rows of each payload that could be large."""
    if not len(table):
        return []
    payload = table[:, PAYLOAD]
    slow = careful[payload]
    begins = np.flatnonzero(np.diff(payload, prepend=-1))
    bound = np.cumsum(np.where(slow, 0, table[:, BOUND]))
    passed = np.repeat(bound[begins] // share, np.diff(np.append(begins, len(table))))
    new = np.diff(np.where(slow, payload, -1), prepend=-2) != 0
    new[begins] |= np.diff(passed[begins], prepend=-1) != 0
    edges = [*np.flatnonzero(new).tolist(), len(table)]
    return [(first, last, bool(slow[first])) for first, last in pairwise(edges)]


class _Run:
    """State of one call of `inflate`."""

    def __init__(
        self, buf: Bytes, size: Int64s, table: Int64s, limit: Int64s, flaw: Int64s, where: Int64s, careful: Flags, share: Share
    ) -> None:
        self.source, self.address, self.size = buf.data, int(buf.ctypes.data), size
        self.table, self.limit, self.flaw, self.where, self.share = table, limit, flaw, where, share
        self.max_bytes, self.max_ratio = UNBOUNDED, float(UNBOUNDED)
        self.count = np.zeros(len(table), np.int64)
        self.words: dict[int, str] = {}
        self.at = 0
        sure = table[~careful[table[:, PAYLOAD]]]
        claimed, packed = int(sure[:, BOUND].sum()), int((sure[:, STOP] - sure[:, SOURCE]).sum())
        self.arena: Any = np.empty(0, np.uint8)
        self.out: Any = None
        self._make(min(claimed, 6 * packed + (1 << 20), share.bytes + LARGE) + PAD)

    def _make(self, capacity: int, used: int = 0) -> None:
        buffer, out = take(capacity)
        if used:
            out[:used] = self.out[:used]
        self.arena, self.out = np.frombuffer(buffer, np.uint8), out

    def _room(self, count: int, begun: int = 0) -> memoryview:
        """The arena, with room for ``count`` bytes after ``self.at``, of which ``begun`` are written."""
        if self.at + count + PAD > len(self.arena):
            self._make(max(self.at + count, len(self.arena) + min(len(self.arena), LARGE)) + PAD, self.at + begun)
        return self.out

    def fast(self, first: int, last: int) -> None:
        """Decompress rows [first, last), in which no payload can exceed its limit."""
        while first < last:
            try:
                first = self._blocks(first, last)
            except FlawError as failure:
                first = self._fail(self.failed, failure.flaw, failure.where)
            except (_LargerError, *_FAILURES):
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
                    count = (self._members if kind == DEFLATE else self._stream)(begin, stop, bound, True)
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

    def careful(self, first: int, last: int) -> bool:
        """Decompress rows [first, last) of one payload that could be large; False if it exceeds the rest of the share."""
        begin, limit, total = self.at, int(self.limit[self.table[first, PAYLOAD]]), 0
        if begin and self.share.bytes - begin < LARGE:
            return False
        try:
            try:
                self._each(first, last, min(limit, LARGE, self.share.bytes))
                return True
            except _LargerError:
                self.at, self.count[first:last] = begin, 0
            total = self._each(first, last, limit, keep=False)
            if begin + total > self.share.bytes and (begin or not self.share.large):
                return False
            # The decoder of an lz4 block may need more room than the block's output.
            self._make(begin + total + LZ4_LARGEST + PAD, begin)
            self._each(first, last, total)
        except _LargerError:
            self._too_large(first, limit, f"more than {limit} bytes", self._suffices(first, last))
        except MemoryError:
            self._too_large(first, total, f"{total} bytes, for which there is no memory")
        except FlawError as failure:
            self._fail(self.failed, failure.flaw, failure.where)
        except _FAILURES:
            self._fail(self.failed, flaws.CONTENT, int(self.table[self.failed, SOURCE]))
        return True

    def _too_large(self, first: int, count: int, words: str, advice: str = "") -> None:
        size = int(self.size[self.table[first, PAYLOAD]])
        words = f"{words}, {count // max(size, 1)} times the {size} it is stored in{advice}"
        self._fail(first, flaws.TOO_LARGE, int(self.table[first, SOURCE]), words)

    def _suffices(self, first: int, last: int) -> str:
        """The limits with which rows [first, last) of one payload are decompressed, by what their blocks can hold: nothing is measured."""
        size, bound = int(self.size[self.table[first, PAYLOAD]]), int(self.table[first:last, BOUND].sum())
        needed = [f"max_batch_bytes={bound}"] * (bound > self.max_bytes)
        needed += [f"max_ratio={-(-bound // size)}"] * (bound > max(RATIO_FLOOR, self.max_ratio * size))
        return f"; {' and '.join(needed)} {'suffices' if len(needed) == 1 else 'suffice'}"

    def _each(self, first: int, last: int, most: int, keep: bool = True) -> int:
        """Decompress rows [first, last) of one payload; returns the number of bytes. Without ``keep`` the output is only counted. Raises
        `_LargerError`: the output has more than ``most`` bytes."""
        total = 0
        for row in range(first, last):
            self.failed = row
            kind, bound, source, stop = (int(self.table[row, c]) for c in (KIND, BOUND, SOURCE, STOP))
            if kind in (STORED, SNAPPY_BLOCK) and total + bound > most:
                raise _LargerError
            if kind in (DEFLATE, ZSTD_FRAME):
                count = (self._members if kind == DEFLATE else self._stream)(source, stop, most - total, keep)
            elif keep:
                at = self.at
                self._blocks(row, row + 1)
                self.at, count = at, self.at - at
            elif kind == LZ4_BLOCK:
                # The memory is another's as soon as nobody holds the buffer.
                _held, scratch = take(bound)
                count = cramjam.lz4.decompress_block_into(self.source[source:stop], scratch, bound)
            else:
                count = bound
            if keep:
                self.count[row] = count
                self.at += count
            total += count
            if total > most:
                raise _LargerError
        return total

    def _fail(self, row: int, flaw: int, where: int, words: str = "") -> int:
        """Set the error of the payload of ``row`` and discard its output; returns the row after its last one."""
        payload = self.table[row, PAYLOAD]
        first, last = (int(np.searchsorted(self.table[:, PAYLOAD], payload, side)) for side in ("left", "right"))
        self.at -= int(self.count[first : row + 1].sum())
        self.count[first:last] = 0
        self.flaw[payload], self.where[payload], self.words[int(payload)] = flaw, where, words
        return last

    def _nothing(self, begin: int, stop: int) -> int:
        """Check a snappy block of size 0, which consists only of its preamble."""
        if min(self.source[begin : stop - 1], default=0x80) < 0x80 or self.source[stop - 1] != 0:
            raise FlawError(flaws.CONTENT, begin)
        return 0

    def _stream(self, begin: int, stop: int, limit: int, keep: bool) -> int:
        """Decompress a zstd frame [begin, stop) of unknown or large size to the arena at ``self.at``; returns the bytes."""
        total, want = 0, STEP
        with _zstd().stream_reader(self.source[begin:stop], read_across_frames=False) as reader:
            while True:
                piece = reader.read(want)
                if not piece:
                    return total
                total = self._put(piece, total, limit, keep)
                want = min(2 * want, PIECE)

    def _members(self, begin: int, stop: int, limit: int, keep: bool) -> int:
        """Decompress gzip members, from the deflate stream at ``begin`` on, to the arena at ``self.at``; returns the bytes."""
        total, step = 0, PACKED
        while begin < stop:
            decoder, crc, count, waiting = isal_zlib.decompressobj(-15), 0, 0, b""
            while not decoder.eof:
                chunk = waiting or self.source[begin : min(begin + step, stop)]
                piece = decoder.decompress(chunk, PIECE)
                if not len(chunk) and not piece and not decoder.eof:
                    raise FlawError(flaws.CUT, stop)
                begin += 0 if waiting else len(chunk)
                waiting = decoder.unconsumed_tail
                total = self._put(piece, total, limit, keep)
                crc = isal_zlib.crc32(piece, crc)
                count += len(piece)
                step = min(2 * step, PACKED)
            flaw, begin = member_end(self.address, begin - len(decoder.unused_data), stop, crc, count)
            if flaw:
                raise FlawError(flaw, begin)
            # The unused rest of a chunk is copied, so chunks start small after the first member: many others may follow.
            step = 4096
        return total

    def _put(self, piece: bytes, total: int, limit: int, keep: bool) -> int:
        """Copy the next bytes of a decoder to the arena, after ``total`` others of its stream; returns the new total."""
        count = len(piece)
        if total + count > limit:
            raise _LargerError
        if keep:
            out, at = self._room(total + count, total), self.at + total
            out[at : at + count] = piece
        return total + count

    def result(self, start: np.ndarray, codec: np.ndarray, done: int) -> Inflated:
        payloads = len(start)
        sums = np.bincount(self.table[:, PAYLOAD], weights=self.count, minlength=payloads).astype(np.int64)
        ends = np.cumsum(sums)
        code = np.zeros(payloads, np.int64)
        found = {}
        for i in np.flatnonzero(self.flaw[:done]).tolist():
            flaw = int(self.flaw[i])
            code[i] = {flaws.TOO_LARGE: Code.TOO_LARGE, flaws.CODEC: Code.BAD_CODEC}.get(flaw, Code.BAD_STREAM)
            name = NAMES[codec[i]] if 0 <= codec[i] < len(NAMES) else f"codec {codec[i]}"
            found[i] = f"{name}: {self.words.get(i) or f'{flaws.TEXT[flaw]} at byte {self.where[i] - start[i]} of the payload'}"
        return Inflated(self.arena, ends - sums, sums, code, self.where, found, done)


def _zstd() -> zstandard.ZstdDecompressor:
    """This thread's decompressor. Threads must not share one."""
    if not hasattr(_local, "zstd"):
        _local.zstd = zstandard.ZstdDecompressor()
    return _local.zstd
