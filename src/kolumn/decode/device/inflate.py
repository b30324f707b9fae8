"""Compressed payloads of a chunk on a GPU: framed and decompressed where they are, the rest by the CPU's codecs.

    payloads ──▶ frame ──▶ blocks by kind ──▶ nvCOMP, a call for each kind ──▶ slots ──▶ payloads
                   └─────▶ what nvCOMP can't do, or did not do right ──▶ codecs of the CPU ──▶ copied to the device

A block gets a slot of the size that it can inflate to, never of a guess: where a zstd frame needed more, nvCOMP wrote past its slot, and
it called lz4 blocks right that it had cut (5.3 on an H200). Where all blocks of a payload but the last fill theirs, the payload lies there
in one piece; else its blocks are moved together.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kolumn.core.arrays import AnyArray, Bytes, Flags, Int64s
from kolumn.cpu_fallback.inflate.arena import inflate
from kolumn.cpu_fallback.inflate.blocks import wrong
from kolumn.decode.host.run import Part
from kolumn.formats import legacy
from kolumn.formats.codecs import DEFLATE, LZ4, LZ4_BLOCK, STORED, ZSTD_FRAME
from kolumn.formats.entries import Entries
from kolumn.options import Options

if TYPE_CHECKING:
    from kolumn.kernels.machine.runtime import Runtime


@dataclass
class InflatedOnDevice:
    """Decompressed payloads; those of dictionaries and lists are numbered."""

    address: Int64s  # on the device
    size: Int64s
    kept: list[Any] = field(default_factory=list)  # memory that they are in
    found: dict[int, str] = field(default_factory=dict)  # what is wrong with a damaged stream, in words
    parts: dict[int, Part] = field(default_factory=dict)  # what can be read of entries with wrong records; `put` sends it to the device
    by_cpu: int = 0  # how many went through the codecs of the CPU
    unlike: list[int] = field(default_factory=list)  # as of `host.run.Run`

    def put(self, i: int, part: Part, device: "Runtime") -> None:
        """Replace a payload by what can be read of its entry."""
        there = device.upload(part.payload)
        self.kept.append(there)
        self.address[i], self.size[i], self.parts[i] = there.address, len(part.payload), part

    def of(self, piece: slice) -> "InflatedOnDevice":
        """Some of them. How many went through the CPU's codecs is said of the first."""
        found = {i - piece.start: text for i, text in self.found.items() if piece.start <= i < piece.stop}
        unlike = [i - piece.start for i in self.unlike if piece.start <= i < piece.stop]
        by_cpu = self.by_cpu if not piece.start else 0
        return InflatedOnDevice(self.address[piece], self.size[piece], self.kept, found, {}, by_cpu, unlike)


@dataclass
class InflatePlan:
    """How the payloads of some entries are decompressed."""

    start: Int64s  # positions in the chunk
    size: Int64s
    codec: Int64s  # what has codec 0 is as it is
    blocks: AnyArray  # `kernels.frame.BLOCK`: what nvCOMP decompresses, in the order of the payloads
    bound: Int64s  # bytes that each can decompress to, as far as that is known; of plain ones their size
    on_cpu: Flags  # payloads for the codecs of the CPU

    @classmethod
    def of(cls, start: Int64s, size: Int64s, codec: Int64s, packed: Int64s, framed: tuple[AnyArray, Flags] | None) -> "InflatePlan":
        """The plan for some payloads; those numbered ``packed`` are compressed. ``framed`` are their blocks, and which are for the CPU."""
        from kolumn.kernels.frame import BLOCK

        slow, bound = np.zeros(len(start), bool), size.copy()
        if framed is None:
            return cls(start, size, codec, np.empty(0, BLOCK), bound, slow)
        blocks, slow[packed] = framed
        blocks["payload"] = packed[blocks["payload"]]
        blocks = blocks[~slow[blocks["payload"]]]
        bound[packed] = np.bincount(blocks["payload"], weights=blocks["bound"], minlength=len(start)).astype(np.int64)[packed]
        bound[slow] = 4 * size[slow]
        return cls(start, size, codec, blocks, bound, slow)

    def expected(self, inflates: float) -> AnyArray:
        """To how many bytes each is likely to decompress, as streams that don't say it become ``inflates`` times as large."""
        loose = np.zeros(len(self.bound), bool)
        loose[self.blocks["payload"][~_sized(self.blocks)]] = True
        return np.where(loose, np.minimum(self.bound, inflates * self.size), self.bound)


def _sized(blocks: AnyArray) -> Flags:
    """Flags of the blocks that say how many bytes they decompress to."""
    kind = blocks["kind"]
    sized: Flags = (kind != LZ4_BLOCK) & ((kind != ZSTD_FRAME) | (blocks["more"] != 0))
    return sized


class Inflater:
    """Decompresses what a plan lists. ``host`` gives the bytes of the chunk in host memory, ``source`` is their address on the device."""

    def __init__(self, device: "Runtime", host: Callable[[], Bytes], source: int, todo: InflatePlan, options: Options) -> None:
        self.device, self.host, self.source, self.todo, self.options = device, host, source, todo, options

    def part(self, piece: slice, entries: Entries) -> InflatedOnDevice:
        """Decompress the payloads of ``entries``, which are the ``piece`` of the plan's. Those with a damaged stream get a code."""
        todo = self.todo
        result = InflatedOnDevice(self.source + todo.start[piece], todo.size[piece].copy())
        first, last = np.searchsorted(todo.blocks["payload"], (piece.start, piece.stop)).tolist()
        slow = todo.on_cpu[piece].copy()
        if first < last:
            blocks = todo.blocks[first:last]
            slow[self._on_device(blocks, blocks["payload"] - piece.start, result)] = True
        self.on_cpu(piece, np.flatnonzero(slow & entries.is_intact), entries, result)
        return result

    def _on_device(self, blocks: AnyArray, of: Int64s, result: InflatedOnDevice) -> Int64s:
        """Inflate blocks, and give the numbers of the payloads that did not come out right."""
        device, room = self.device, blocks["bound"]
        arena = device.empty(int(room.sum()))
        result.kept.append(arena)
        address, sizes = arena.address + np.cumsum(room) - room, room.copy()
        fine, sized = np.ones(len(blocks), bool), _sized(blocks)
        for kind in np.unique(blocks["kind"]).tolist():
            those = np.flatnonzero(blocks["kind"] == kind)
            begin, length = blocks["source"][those], blocks["stop"][those] - blocks["source"][those]
            if kind == STORED:
                device_copy(device, begin, sizes[those], address[those])
                continue
            sizes[those], fine[those] = device.inflate(kind, begin, length, room[those], address[those])
            fine[those] &= (sizes[those] == room[those]) | ~sized[those]
            if kind == DEFLATE:
                fine[those] &= self._right(address[those], sizes[those], blocks["more"][those])
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

    def _right(self, address: Int64s, size: Int64s, crc: Int64s) -> Flags:
        """Flags of the gzip members whose CRC-32 is that of what came out, which nvCOMP does not look at."""
        from kolumn.kernels.check import LEAST
        from kolumn.kernels.decode import bad_checksums

        whole = np.flatnonzero(size >= LEAST)
        members = Entries.zeros(len(whole))
        members.position, members.size, members.layout = address[whole], size[whole], legacy.LAYOUT.number
        members.crc = crc[whole]
        right = np.zeros(len(size), bool)
        right[whole] = ~bad_checksums(self.device, 0, self.device.upload(members.array), len(members))
        return right

    def on_cpu(self, piece: slice, slow: Int64s, entries: Entries, result: InflatedOnDevice) -> None:
        """Decompress payloads of ``entries``, the ``piece`` of the plan, with codecs of the CPU: those with the numbers ``slow``."""
        if not len(slow):
            return
        self.todo.on_cpu[piece][slow] = True
        start, size, codec = (column[piece][slow] for column in (self.todo.start, self.todo.size, self.todo.codec))
        self.device.rest()
        done = inflate(self.host(), start, size, codec, entries.magic[slow], self.options.max_batch_bytes, self.options.max_ratio)
        arena = self.device.upload(done.arena[: int(done.size.sum())])
        result.address[slow], result.size[slow] = arena.address + done.start, done.size
        result.kept.append(arena)
        result.by_cpu += len(slow)
        if self.options.remarks:
            those = np.flatnonzero((codec == LZ4) & (done.code == 0))
            source, out = self.host().ctypes.data + start[those], done.arena.ctypes.data + done.start[those]
            flags = wrong(source, size[those], entries.magic[slow[those]], out, done.size[those])
            result.unlike += slow[those[flags]].tolist()
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
