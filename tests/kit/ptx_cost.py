"""What launches cost, counted while the machine runs them: instructions of warps, and the parts of memory that they touch.

A warp issues an instruction once for all of its lanes that are there. So a basic block counts as often as the lane was there that was
there most often: lanes that take different ways at a fork cost both. Lanes that are at different steps of a loop, as those that run a
program for typed values, cost more than that: they may not meet. The k-th time since the last synchronisation that lanes of a warp
are at a load or store counts as together: a *request*. It touches *sectors* of 32 bytes, in *lines* of 128. Shared memory has 32 banks
of 4 bytes: a request to it takes as many *turns* as there are different words in one bank.
"""

from dataclasses import dataclass, field

import numpy as np

from kit.ptx import Launch
from kit.ptx_memory import TRACE_COLUMNS
from kolumn.core.arrays import Int64s
from kolumn.kernels.machine.kernel import WARP

ROOM = 1 << 23
"""Accesses of a launch that can be counted."""


@dataclass(frozen=True)
class Cost:
    """Of a launch."""

    kernel: str
    n: int  # items
    warps: int
    instructions: int  # that warps issue
    longest: int  # instructions of the warp that has most
    # To global memory.
    requests: int
    lines: int
    sectors: int
    waits: int  # requests for loads from global memory of the warp that has most
    fresh: int  # those of the warp that has most of them which touch a line that the warp has not touched before
    turns: int  # of shared memory
    read: int
    written: int  # read, written: Bytes of the sectors that are read, and written, each counted once


@dataclass
class Costs:
    """Costs of all launches of a machine: ``Machine(after=[costs.add], trace=costs.room)``."""

    launches: list[Cost] = field(default_factory=list)
    room: Int64s = field(default_factory=lambda: np.zeros((ROOM, TRACE_COLUMNS), np.int64))

    def add(self, launch: Launch) -> None:
        """Count a launch."""
        issued = launch.issued
        begin, end = launch.shared
        in_shared = (launch.trace[:, 2] >= begin) & (launch.trace[:, 2] < end)
        line, thread, address, width, syncs = launch.trace[~in_shared].T
        request = _requests(line, thread, syncs)
        reads, last = width > 0, address + np.abs(width) - 1
        ends = {
            shift: _different(request, address >> shift) + _different(request, last >> shift, than=address >> shift) for shift in (7, 5)
        }
        touched = np.zeros(len(reads), bool)
        touched[np.unique((thread // WARP << 48) | (address >> 7), return_index=True)[1]] = True
        waits, fresh = (_most(request[which], thread[which] // WARP) for which in (reads, reads & touched))
        read, written = (32 * len(np.unique(address[which] >> 5)) for which in (reads, ~reads))
        turns, requests = _turns(launch.trace[in_shared]), len(np.unique(request))
        work = (launch.kernel.name, launch.n, int((issued > 0).sum()), int(issued.sum()), int(issued.max()))
        self.launches.append(Cost(*work, requests, ends[7], ends[5], waits, fresh, turns, read, written))


def _most(request: Int64s, warp: Int64s) -> int:
    """Requests of the warp that has most of these."""
    return int(np.bincount(np.unique(np.stack([request, warp]), axis=1)[1]).max()) if len(request) else 0


def _requests(line: Int64s, thread: Int64s, syncs: Int64s) -> Int64s:
    """Number of the request that each access belongs to."""
    order = np.lexsort((np.arange(len(line)), syncs, thread, line))
    line, thread, syncs = line[order], thread[order], syncs[order]
    fresh = np.ones(len(line), bool)
    fresh[1:] = (line[1:] != line[:-1]) | (thread[1:] != thread[:-1]) | (syncs[1:] != syncs[:-1])
    begin = np.maximum.accumulate(np.where(fresh, np.arange(len(line)), 0))
    time = np.arange(len(line)) - begin
    warp = thread // WARP
    fields = (line, 14), (warp, 15), (syncs, 15), (time, 19)
    assert len(line) == 0 or all(int(one.max()) < 1 << bits for one, bits in fields)
    found, key = np.zeros(len(line), np.int64), np.zeros(len(line), np.int64)
    for one, bits in fields:
        found = (found << bits) | one
    key[order] = found
    return np.unique(key, return_inverse=True)[1]


def _different(request: Int64s, place: Int64s, than: Int64s | None = None) -> int:
    """Different places of each request, summed; with ``than`` of the accesses alone that reach beyond it."""
    if than is not None:
        request, place = request[place != than], place[place != than]
    if not len(request):
        return 0
    order = np.lexsort((place, request))
    request, place = request[order], place[order]
    return 1 + int(((request[1:] != request[:-1]) | (place[1:] != place[:-1])).sum())


def _turns(trace: Int64s) -> int:
    """Turns of shared memory."""
    if not len(trace):
        return 0
    request, word = _requests(trace[:, 0], trace[:, 1], trace[:, 4]), trace[:, 2] >> 2
    pairs = np.unique(np.stack([request, word]), axis=1)
    banks, counts = np.unique(pairs[0] * 32 + (pairs[1] & 31), return_counts=True)
    most = np.zeros(int(banks.max()) // 32 + 1, np.int64)
    np.maximum.at(most, banks // 32, counts)
    return int(most.sum())
