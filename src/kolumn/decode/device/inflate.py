"""Compressed payloads of a chunk on a GPU: framed on the host, decompressed in place on the device, the rest by the CPU's codecs.

    payloads ──▶ frame (host) ──▶ blocks by kind ──▶ nvCOMP, a call for each kind ──▶ slots ──▶ payloads
                     └──────────▶ what nvCOMP can't do, or did not do right ──▶ codecs of the CPU ──▶ copied to the device

A block gets a slot of the size that it can inflate to, never of a guess: where a zstd frame needed more, nvCOMP wrote past its slot, and
it called lz4 blocks right that it had cut (5.3 on an H200). Where all blocks of a payload but the last fill theirs, the payload lies there
in one piece; else its blocks are moved together.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kolumn.arrays import Bytes, Flags, Int64s
from kolumn.codecs import DEFLATE, SNAPPY_BLOCK, STORED, ZSTD_FRAME
from kolumn.cpu_fallback.inflate.arena import RATIO_FLOOR, inflate
from kolumn.cpu_fallback.inflate.blocks import BOUND, COLUMNS, KIND, PAYLOAD, SOURCE, STOP, frame, magics
from kolumn.decode.device.batch_table import BatchTable
from kolumn.formats import legacy
from kolumn.formats.entries import Entries
from kolumn.options import Options

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Runtime


_COUNT_BYTES, _TRAILER_BYTES = 4, 8
_LEAST_CHECKED = 4
"""The kernel for checksums takes no fewer bytes."""
_ZSTD_CHECKSUM, _ZSTD_SIZED = 0x04, 0xE0
"""Bits of a zstd frame's descriptor: it has a content checksum; it may have a content size."""


@dataclass
class InflatedOnDevice:
    """Decompressed payloads.

    Attributes
    ----------
    address, size : int64 arrays of n
        On the device.
    kept : list
        Memory that they are in.
    found : dict
        Number of a payload with a damaged stream -> message about what is wrong with it.
    by_cpu : int
        How many went through the codecs of the CPU.
    """

    address: Int64s
    size: Int64s
    kept: list[Any] = field(default_factory=list)
    found: dict[int, str] = field(default_factory=dict)
    by_cpu: int = 0

    def of(self, piece: slice) -> "InflatedOnDevice":
        """Some of them. How many went through the CPU's codecs is said of the first."""
        found = {i - piece.start: text for i, text in self.found.items() if piece.start <= i < piece.stop}
        return InflatedOnDevice(self.address[piece], self.size[piece], self.kept, found, self.by_cpu if not piece.start else 0)


@dataclass
class InflatePlan:
    """How the payloads of some entries are decompressed.

    Attributes
    ----------
    start, size, codec : int64 arrays of n
        Positions in the host's buffer; what has codec 0 is as it is.
    blocks : int64 array of shape (blocks, `cpu_fallback.blocks.COLUMNS`)
    bound : int64 array of n
        Bytes that each can decompress to, as far as that is known; of plain ones their size.
    on_cpu : bool array of n
        Payloads for the codecs of the CPU.
    """

    start: Int64s
    size: Int64s
    codec: Int64s
    blocks: Int64s
    bound: Int64s
    on_cpu: Flags


def wrong_checksums(device: "Runtime", source: int, batches: BatchTable, entries: Entries, codec: Int64s) -> Flags:
    """Flags of the compressed entries whose checksum is wrong; ``source`` is as for `kernels.decode.bad_checksums`."""
    from kolumn.kernels.decode import bad_checksums

    wrong, packed = np.zeros(len(entries), bool), np.flatnonzero(codec)
    some = entries[packed]
    wrong[packed] = bad_checksums(device, source, batches.of(some), len(some))
    return wrong


def plan(host: Bytes, start: Int64s, size: Int64s, codec: Int64s, entries: Entries, options: Options, wrong: Flags) -> InflatePlan:
    """Find the blocks, and which payloads nvCOMP can't do: broken or suspiciously large ones, gzip of several members.

    ``wrong`` are those with a wrong checksum, which go to the CPU too.
    """
    packed = np.flatnonzero(codec)
    on_cpu, bound = wrong.copy(), size.copy()
    blocks = np.empty((0, COLUMNS), np.int64)
    if len(packed):
        limit = np.minimum(float(options.max_batch_bytes), np.maximum(RATIO_FLOOR, options.max_ratio * size[packed])).astype(np.int64)
        blocks, flaw, _, careful = frame(host, start[packed], size[packed], codec[packed], entries.magic[packed], limit)
        blocks[:, PAYLOAD] = packed[blocks[:, PAYLOAD]]
        on_cpu[packed] |= (flaw != 0) | careful | (not options.trusted)
        on_cpu[_hard_gzip(host, start, blocks)] = True
        # nvCOMP does not compare the content checksum, and neither do we: hardly a client writes one.
        frames = blocks[blocks[:, KIND] == ZSTD_FRAME]
        on_cpu[frames[host[frames[:, SOURCE] + 4] & _ZSTD_CHECKSUM != 0, PAYLOAD]] = True
        bound[packed] = np.bincount(blocks[:, PAYLOAD], weights=blocks[:, BOUND], minlength=len(start)).astype(np.int64)[packed]
        on_cpu[packed] |= bound[packed] > limit
        bound[on_cpu] = 4 * size[on_cpu]
        blocks = blocks[~on_cpu[blocks[:, PAYLOAD]]]
    return InflatePlan(start, size, codec, blocks, bound, on_cpu)


def _sized(host: Bytes, blocks: Int64s) -> Flags:
    """Flags of the blocks that say how many bytes they decompress to."""
    sized = np.isin(blocks[:, KIND], (STORED, DEFLATE, SNAPPY_BLOCK))
    frames = np.flatnonzero(blocks[:, KIND] == ZSTD_FRAME)
    sized[frames] = host[blocks[frames, SOURCE] + 4] & _ZSTD_SIZED != 0
    return sized


def _hard_gzip(host: Bytes, start: Int64s, blocks: Int64s) -> Int64s:
    """Let blocks of deflate streams stand for their members, and give the payloads that may have several, or very small ones."""
    gzip = np.flatnonzero(blocks[:, KIND] == DEFLATE)
    stop = blocks[gzip, STOP]
    blocks[gzip, SOURCE] = begin = start[blocks[gzip, PAYLOAD]]
    blocks[gzip, BOUND] = _words(host, stop - _COUNT_BYTES)
    several = np.zeros(len(gzip), bool)
    magics(host.ctypes.data, begin + 3, stop, several)
    return blocks[gzip[several | (blocks[gzip, BOUND] < _LEAST_CHECKED)], PAYLOAD]


def _words(host: Bytes, at: Int64s) -> Int64s:
    """Little-endian words of 32 bits, anywhere."""
    return host[at[:, None] + np.arange(4)].view("<u4")[:, 0].astype(np.int64)


class Inflater:
    """Decompresses what a plan lists.

    Parameters
    ----------
    device : kernels.runtime.Runtime
    host : uint8 array
        Bytes of the chunk, in host memory.
    source : int
        Device address of the first of them.
    todo : InflatePlan
    options : Options
    """

    def __init__(self, device: "Runtime", host: Bytes, source: int, todo: InflatePlan, options: Options) -> None:
        self.device, self.host, self.source, self.todo, self.options = device, host, source, todo, options

    def part(self, piece: slice, entries: Entries) -> InflatedOnDevice:
        """Decompress the payloads of ``entries``, which are the ``piece`` of the plan's. Those with a damaged stream get a code."""
        todo = self.todo
        result = InflatedOnDevice(self.source + todo.start[piece], todo.size[piece].copy())
        first, last = np.searchsorted(todo.blocks[:, PAYLOAD], (piece.start, piece.stop)).tolist()
        slow = todo.on_cpu[piece].copy()
        if first < last:
            blocks = todo.blocks[first:last]
            slow[self._on_device(blocks, blocks[:, PAYLOAD] - piece.start, result)] = True
        self.on_cpu(piece, np.flatnonzero(slow & entries.is_intact), entries, result)
        return result

    def _on_device(self, blocks: Int64s, of: Int64s, result: InflatedOnDevice) -> Int64s:
        """Inflate blocks, and give the numbers of the payloads that did not come out right."""
        device, room = self.device, blocks[:, BOUND]
        arena = device.empty(int(room.sum()))
        result.kept.append(arena)
        address, sizes = arena.address + np.cumsum(room) - room, room.copy()
        fine, sized = np.ones(len(blocks), bool), _sized(self.host, blocks)
        for kind in np.unique(blocks[:, KIND]).tolist():
            those = np.flatnonzero(blocks[:, KIND] == kind)
            begin, length = self.source + blocks[those, SOURCE], blocks[those, STOP] - blocks[those, SOURCE]
            if kind == STORED:
                device_copy(device, begin, sizes[those], address[those])
                continue
            sizes[those], fine[those] = device.inflate(kind, begin, length, room[those], address[those])
            fine[those] &= (sizes[those] == room[those]) | ~sized[those]
            if kind == DEFLATE:
                fine[those] &= self._right(address[those], sizes[those], blocks[those, STOP])
        self._join(of, address, sizes, result)
        return np.unique(of[~fine])

    def _join(self, of: Int64s, address: Int64s, sizes: Int64s, result: InflatedOnDevice) -> None:
        """Note where payloads are, of each of whose blocks ``of`` has the number; moved together where a block does not follow another."""
        packed, first = np.unique(of, return_index=True)
        last = np.append(first[1:], len(of)) - 1
        ends = np.cumsum(sizes)
        result.address[packed], result.size[packed] = address[first], ends[last] - ends[first] + sizes[first]
        if ((address[:-1] + sizes[:-1] != address[1:]) & (of[:-1] == of[1:])).any():
            moved = self.device.empty(int(sizes.sum()))
            device_copy(self.device, address, sizes, moved.address + ends - sizes)
            result.address[packed] = moved.address + ends[first] - sizes[first]
            result.kept.append(moved)

    def _right(self, address: Int64s, size: Int64s, stop: Int64s) -> Flags:
        """Flags of the gzip members whose CRC-32 is that of what came out, which nvCOMP does not look at."""
        from kolumn.kernels.decode import bad_checksums

        whole = np.flatnonzero(size >= _LEAST_CHECKED)
        members = Entries.zeros(len(whole))
        members.position, members.size, members.layout = address[whole], size[whole], legacy.LAYOUT.number
        members.crc = _words(self.host, stop[whole] - _TRAILER_BYTES)
        right = np.zeros(len(size), bool)
        right[whole] = ~bad_checksums(self.device, 0, self.device.upload(members.array), len(members))
        return right

    def on_cpu(self, piece: slice, slow: Int64s, entries: Entries, result: InflatedOnDevice) -> None:
        """Decompress payloads of ``entries``, the ``piece`` of the plan, with codecs of the CPU: those with the numbers ``slow``."""
        if not len(slow):
            return
        self.todo.on_cpu[piece][slow] = True
        start, size, codec = (one[piece][slow] for one in (self.todo.start, self.todo.size, self.todo.codec))
        done = inflate(self.host, start, size, codec, entries.magic[slow], self.options.max_batch_bytes, self.options.max_ratio)
        arena = self.device.upload(done.arena[: int(done.size.sum())])
        result.address[slow], result.size[slow] = arena.address + done.start, done.size
        result.kept.append(arena)
        result.by_cpu += len(slow)
        for i in np.flatnonzero(done.code):
            b = int(slow[i])
            entries.code[b], entries.where[b] = done.code[i], done.where[i] - start[i]
            result.found[b] = done.found[int(i)]


def device_copy(device: "Runtime", source: Int64s, size: Int64s, target: Int64s) -> None:
    """Copy pieces within the device; ``target`` are addresses of one piece of memory without gaps, or of slots."""
    from kolumn.kernels.columns.gather import Copy, copy

    where = device.upload(np.ascontiguousarray(np.stack([source, target, size]), np.int64))
    n = len(source)
    device.launch(copy, n, Copy(where.address, where.address + 8 * n, where.address + 16 * n))
