"""Batches of Redpanda become batches of format 2 and the other way round: another header, and the same records with the same checksum.

Redpanda counts offsets of its log in batches of its own too, of which consumers know nothing: raw offsets. In a log of Kafka there are
neither such batches nor such offsets.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kolumn.copies.raw_offsets import RawOffsets, logs_of, own_of, refuse_start_delta
from kolumn.core.arrays import Bytes, Int64s
from kolumn.core.errors import shown
from kolumn.cpu_fallback.encode.batches import swap_headers
from kolumn.cpu_fallback.machine.address import PAD
from kolumn.decode.host.aborted import Transactions
from kolumn.formats import layout as contents
from kolumn.formats.entries import Entries
from kolumn.source.segments import Range, Segment
from kolumn.writers.entries import Encoded
from kolumn.writers.regroup import Losses, with_data

logger = logging.getLogger("kolumn")


@dataclass(frozen=True)
class ConsumerOffsets:
    """What the raw offsets of one segment are for consumers: one from ``after[i]`` on is too large by ``delta[i]``. ``is_last``: it is the
    last segment of its log."""

    after: Int64s
    delta: Int64s
    is_last: bool

    def of(self, raw: Int64s) -> Int64s:
        return raw - self.delta[np.maximum(np.searchsorted(self.after, raw, side="right") - 1, 0)]

    def of_one(self, raw: int) -> int:
        return int(self.of(np.array([raw], np.int64))[0])

    def of_transactions(self, known: Transactions) -> Transactions:
        """The same transactions among the offsets of the segment; those outside of it stay outside."""
        aborted = ((producer, self.of_one(first), self.of_one(last)) for producer, first, last in known.aborted)
        return Transactions(tuple(aborted), tuple((producer, self.of_one(first)) for producer, first in known.open))


def offsets_of_logs(segments: Iterable[Segment], start_delta: int | None) -> dict[Segment, ConsumerOffsets]:
    """What the offsets of some segments of logs of Redpanda are for consumers, by headers; raw ones where that is not known."""
    made, untold = dict[Segment, ConsumerOffsets](), 0
    for log in logs_of(segments):
        parts = [Range.whole(segment) for segment in sorted(log, key=lambda one: one.base_offset or 0)]
        known = RawOffsets(parts, start_delta)
        untold += known.is_untold
        _tell_of_deleted(log)
        for part in parts:
            own, begin = Entries.joined([Entries.room(0), *own_of(part)]), known.before(part)
            if begin is None:
                own = own[:0]
            after, lengths = own.last_offset + 1, own.last_offset + 1 - own.base_offset
            delta = np.cumsum(np.append(begin or 0, lengths))
            if begin is not None and (against := known.learn(part, int(delta[-1]))) is not None:
                logger.warning("%s: %s", shown(part.segment.path), against)
            made[part.segment] = ConsumerOffsets(np.append(-1, after), delta, part is parts[-1])
    refuse_start_delta(start_delta, untold, "convert")
    return made


def _tell_of_deleted(log: list[Segment]) -> None:
    """Warn of records that a manifest says were deleted: batches stay whole, and a broker of Kafka has a file for what is deleted."""
    for segment in log:
        if segment.raft is not None and segment.raft.log_start:
            logger.warning(
                "%s: the manifest says that records before offset %d were deleted, and those that are there are in the result: note that "
                "offset in log-start-offset-checkpoint of the new log directory, or records that were deleted come back",
                shown(segment.path), segment.raft.log_start,
            )  # fmt: skip
            return


def as_format_2(
    source: Bytes, origin: int, entries: Entries, segment: Segment, offsets: ConsumerOffsets, lost: Losses
) -> tuple[Bytes, int, Entries]:
    """Batches of Redpanda as batches of format 2, in memory of their own: the bytes, the position of the first one, and the batches. Those
    that no consumer gets are left out, and counted as lost."""
    some = entries[with_data(entries, lost)]
    if not len(some):
        return source, origin, some
    start, end = int(some.position[0]), int(some[-1].end)
    copied = np.zeros(end - start + PAD, np.uint8)
    copied[: end - start] = source[start - origin : end - origin]
    delta = some.base_offset - offsets.of(some.base_offset)
    some.base_offset, some.last_offset = some.base_offset - delta, some.last_offset - delta
    some.leader_epoch = -1 if segment.term is None else segment.term
    swap_headers(copied.ctypes.data - start, some.array)
    return copied, start, some


def as_redpanda(made: Encoded, lost: Losses) -> Encoded:
    """Batches of format 2 as batches of Redpanda; what is lost of them is counted."""
    lost.note(contents.HORIZONS, int(made.entries.delete_horizon.sum()))
    done = Encoded(made.data.copy(), made.entries.copy())
    swap_headers(done.data.ctypes.data, done.entries.array)
    return done
