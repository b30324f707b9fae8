"""A read of committed records that stops at an open transaction."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from kolumn.core.amounts import age
from kolumn.core.errors import shown
from kolumn.core.times import moment

_MOST = 3  # partitions that have a line of their own


@dataclass(frozen=True)
class StoppedAt:
    """Where a read of committed records stops before the end of a log, as a consumer does, since an open transaction begins there.

    Attributes
    ----------
    log : str
        Topic and partition, ``orders-0``; the path where no folder is named so.
    offset : int, optional
        Where the transaction begins: the last stable offset. None of a part of Redpanda's log that does not tell.
    producer_id : int
    producer_epoch : int, optional
        None where the log does not have the first batch of the transaction.
    since_ms : int, optional
        Timestamp of that batch, likewise.
    records : int, optional
        How many records after the offset the read asked for and did not return, without those of aborted and open transactions. None of a
        format whose headers do not tell it.
    is_estimate : bool
        Whether headers tell only about how many records these are; with 0 records there may be some.
    folder : str
        Of segments of the log.
    counted : tuple of (int, int)
        Ranges of offsets in which records were counted.
    """

    log: str
    offset: int | None
    producer_id: int
    producer_epoch: int | None = None
    since_ms: int | None = None
    records: int | None = 0
    is_estimate: bool = False
    folder: str = field(default="", compare=False, repr=False)
    counted: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        epoch = "" if self.producer_epoch is None else f" (epoch {self.producer_epoch})"
        since = "is open"
        if self.since_ms is not None:
            since = f"has been open since {moment(self.since_ms)} ({age(max(0, time.time() * 1000 - self.since_ms))})"
        place = "" if self.offset is None else f" at offset {self.offset}"
        return f"{shown(self.log)} stops{place}: a transaction of producer {self.producer_id}{epoch} {since}; {self._said}"

    @property
    def left(self) -> int | str | None:
        """How many committed records are not read, for people."""
        return f"about {self.records}" if self.is_estimate and self.records is not None else self.records

    def is_of(self, other: "StoppedAt") -> bool:
        """Whether both are the same place of a log."""
        return (self.log, self.folder, self.offset) == (other.log, other.folder, other.offset)

    def overlaps(self, other: "StoppedAt") -> bool:
        """Whether some records may be counted in both."""
        return any(low < end and start < high for low, high in self.counted for start, end in other.counted)

    @property
    def _said(self) -> str:
        if self.records is None:
            return "committed records after it are not read"
        if not self.records:
            left = "there may be committed records after it, which are not read"
            return left if self.is_estimate else "no committed record comes after it"
        return f"{self.left} committed record{' after it is' if self.records == 1 else 's after it are'} not read"


def joined(stopped: Iterable[StoppedAt]) -> list[StoppedAt]:
    """One for each log, from those of parts of it."""
    logs: dict[tuple[str, int], StoppedAt] = {}
    for own in stopped:
        key = own.log, own.producer_id
        other = logs.get(key)
        if other is not None:
            records = None if own.records is None or other.records is None else own.records + other.records
            offset = own.offset if other.offset is None else other.offset
            is_estimate = own.is_estimate or other.is_estimate
            own = replace(other, offset=offset, records=records, is_estimate=is_estimate, counted=other.counted + own.counted)
        logs[key] = own
    return list(logs.values())


def lines(stopped: list[StoppedAt], advice: str) -> Iterator[str]:
    """A line for each of the first logs, and one for the others; the last one ends with what can be done."""
    if not stopped:
        return
    more = stopped[_MOST:]
    texts = list(map(str, stopped[:_MOST]))
    if more:
        counts = [own.records for own in more]
        count = sum(filter(None, counts))
        about = "at least " if None in counts else "about " if any(own.is_estimate for own in more) else ""
        left = f"{about}{count} committed records" if count or not about else "committed records"
        texts.append(f"and {len(more)} more stop likewise; {left} in them {'may not be' if about and not count else 'are not'} read")
    yield from texts[:-1]
    yield f"{texts[-1]}. {advice}"
