"""Payloads are inflated into one arena: framing by `kolumn.codecs`, the compressed blocks by the codecs' libraries.

cramjam for lz4 blocks and raw snappy, zstandard for zstd frames, isal for gzip. All of them release the GIL.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import zstandard
from isal import isal_zlib

from kolumn.codecs import GZIP, LZ4, SNAPPY, ZSTD, gzip, lz4, snappy, xxh32, zstd
from kolumn.cpu_fallback.address import PAD
from kolumn.cpu_fallback.compile import compiled, scalar
from kolumn.errors import Code
from kolumn.recycle import take

scalar(xxh32, lz4, snappy, zstd)

_local = threading.local()


class _Refused(Exception):
    """A stream that can't be inflated: its code, the position of the offence and what is wrong."""

    def __init__(self, code: Code, where: int, found: str) -> None:
        self.code, self.where, self.found = code, where, found


@dataclass
class Inflated:
    """Result of `inflate`.

    Attributes
    ----------
    arena : pa.Buffer
        Padded with `address.PAD` bytes.
    start, size : int64 arrays of n
        Where in the arena each payload lies.
    code, where : int64 arrays of n
        `Code` and the position of the offence in the source.
    found : dict
        Index -> what is wrong.
    """

    arena: pa.Buffer
    start: Any
    size: Any
    code: Any
    where: Any
    found: dict[int, str]


class _Arena:
    """Memory that grows; filled from the front."""

    def __init__(self, size: int) -> None:
        self.buffer, self.view = take(size + PAD)
        self.used = 0

    def room(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        if self.used + size + PAD > len(self.view):
            buffer, view = take(max(2 * len(self.view), self.used + size + PAD))
            view[: self.used] = self.view[: self.used]
            self.buffer, self.view = buffer, view
        return self.view[self.used : self.used + size]

    def append(self, data: Any) -> None:
        """Copy bytes to the end."""
        self.room(len(data))[:] = data
        self.used += len(data)


@compiled
def _lz4_frame(buf: int, at: int, end: int, magic: int) -> tuple[int, int, int]:
    return lz4.frame(buf, at, end, magic)


@compiled
def _lz4_block(buf: int, at: int, end: int, largest: int, flags: int) -> tuple[int, int, int, int]:
    return lz4.block(buf, at, end, largest, flags)


@compiled
def _zstd_frame(buf: int, at: int, end: int) -> tuple[int, int, int]:
    return zstd.frame(buf, at, end)


def inflate(source: Any, start: Any, size: Any, codec: Any, magic: Any, limit: Callable[[int], int]) -> Inflated:
    """Inflate payloads independently of each other.

    Parameters
    ----------
    source : uint8 array
        Padded with `address.PAD` bytes.
    start, size, codec, magic : int64 arrays of n
        Position and bytes of each payload, its codec id, and the format of the entry it is in.
    limit : callable
        Most bytes that a payload of so many bytes may inflate to.
    """
    arena = _Arena(int(size.sum()) * 4)
    result = Inflated(arena.buffer, *(np.zeros(len(start), np.int64) for _ in range(4)), {})
    view, address = memoryview(source), source.ctypes.data
    for i, (at, length, kind, form) in enumerate(zip(start.tolist(), size.tolist(), codec.tolist(), magic.tolist(), strict=True)):
        begin = arena.used
        result.start[i] = begin
        try:
            _CODECS[kind](view, address, at, at + length, form, arena, begin + limit(length))
            result.size[i] = arena.used - begin
        except _Refused as refused:
            arena.used = begin
            result.code[i], result.where[i], result.found[i] = refused.code, refused.where, refused.found
    result.arena = arena.buffer
    return result


def _need(arena: _Arena, size: int, limit: int, where: int) -> memoryview:
    if arena.used + size > limit:
        raise _Refused(Code.TOO_LARGE, where, f"more than {limit - arena.used} bytes" if size < 0 else f"{size} bytes and a limit")
    return arena.room(size)


def _lz4(view: memoryview, address: int, at: int, end: int, magic: int, arena: _Arena, limit: int) -> None:
    at, largest, flags = _lz4_frame(address, at, end, magic)
    if at == lz4.BAD:
        raise _Refused(Code.BAD_STREAM, at, "a malformed lz4 frame header")
    while True:
        following, first, size, stored = _lz4_block(address, at, end, largest, flags)
        if following == lz4.BAD:
            raise _Refused(Code.BAD_STREAM, first, "an lz4 block that is cut short, too long, or has a wrong checksum")
        if size == 0:
            return
        if stored:
            _need(arena, size, limit, at)[:] = view[first : first + size]
            arena.used += size
        else:
            most = min(largest, lz4.LARGEST_RATIO * size + 16)
            room = arena.room(most)
            try:
                done = cramjam.lz4.decompress_block_into(view[first : first + size], room, output_len=most)
            except cramjam.DecompressionError as error:
                raise _Refused(Code.BAD_STREAM, first, f"an lz4 block that does not inflate ({error})") from error
            arena.used += done
            if arena.used > limit:
                raise _Refused(Code.TOO_LARGE, first, "more")
        at = following


def _snappy(view: memoryview, address: int, at: int, end: int, magic: int, arena: _Arena, limit: int) -> None:
    if not snappy.is_xerial(view, at, end):
        _snappy_block(view, at, end, arena, limit)
        return
    at += snappy.HEADER
    while True:
        following, first, size = snappy.chunk(view, at, end)
        if following == snappy.END:
            return
        if following == snappy.BAD:
            raise _Refused(Code.BAD_STREAM, first, "a snappy chunk with a malformed length, or one that is cut short")
        _snappy_block(view, first, first + size, arena, limit)
        at = following


def _snappy_block(view: memoryview, at: int, end: int, arena: _Arena, limit: int) -> None:
    size = snappy.inflated_size(view, at, end)
    if size == snappy.BAD or size > snappy.LARGEST_RATIO * (end - at):
        raise _Refused(Code.BAD_STREAM, at, "a snappy block with a malformed length")
    room = _need(arena, size, limit, at)
    try:
        done = cramjam.snappy.decompress_raw_into(view[at:end], room)
    except cramjam.DecompressionError as error:
        raise _Refused(Code.BAD_STREAM, at, f"a snappy block that does not inflate ({error})") from error
    if done != size:
        raise _Refused(Code.BAD_STREAM, at, f"a snappy block of {done} bytes that says {size}")
    arena.used += size


def _zstd(view: memoryview, address: int, at: int, end: int, magic: int, arena: _Arena, limit: int) -> None:
    if not hasattr(_local, "zstd"):
        _local.zstd = zstandard.ZstdDecompressor()
    while at < end:
        following, most, full = _zstd_frame(address, at, end)
        if following == zstd.BAD:
            raise _Refused(Code.BAD_STREAM, at, "a malformed zstd frame, or one that is cut short")
        if full and most:
            most = min(most, limit - arena.used + 1)
            try:
                arena.append(_local.zstd.decompress(view[at:following], max_output_size=most))
            except zstandard.ZstdError as error:
                code = Code.TOO_LARGE if arena.used + most > limit else Code.BAD_STREAM
                raise _Refused(code, at, f"a zstd frame that does not inflate ({error})") from error
            if arena.used > limit:
                raise _Refused(Code.TOO_LARGE, at, "more")
        at = following


def _gzip(view: memoryview, address: int, at: int, end: int, magic: int, arena: _Arena, limit: int) -> None:
    first = True
    while first or end - at >= gzip.FEWEST_MORE:
        deflate = gzip.member(view, at, end)
        if deflate == gzip.BAD:
            if first:
                raise _Refused(Code.BAD_STREAM, at, "a malformed gzip header")
            return
        at = _gzip_member(view, at, end, arena, limit)
        first = False


def _gzip_member(view: memoryview, at: int, end: int, arena: _Arena, limit: int) -> int:
    stream = isal_zlib.decompressobj(wbits=31)
    try:
        data = stream.decompress(view[at:end], limit - arena.used + 1)
    except isal_zlib.error as error:
        raise _Refused(Code.BAD_STREAM, at, f"a gzip member that does not inflate ({error})") from error
    if arena.used + len(data) > limit:
        raise _Refused(Code.TOO_LARGE, at, "more")
    arena.append(data)
    if not stream.eof:
        raise _Refused(Code.BAD_STREAM, at, "a gzip member that is cut short")
    return end - len(stream.unused_data)


_CODECS = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
