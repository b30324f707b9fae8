"""What `kolumn.erase` proves of what it has written: source and target are read again, as columns of all records and as bytes of all files.

The erased keys and values are searched for some MiB at a time; each time the target is read once more.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.arrays import Flags, Int64s
from kolumn.core.errors import shown
from kolumn.decode.host.chunks import header_rows
from kolumn.log.pieces import Piece, piece_of, pieces
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment, find_segments
from kolumn.source.storage import base_name, listing, parent, read_bytes
from kolumn.writers.rewriting.cleaner import per_entry
from kolumn.writers.rewriting.needles import LONGEST, Needles, can_be_searched

VERIFICATION_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("check", pa.string()), ("checked", pa.int64()), ("found", pa.int64()),
        ("alsoKept", pa.int64()), ("firstOffset", pa.int64()), ("ok", pa.bool_()), ("remark", pa.string()),
    ]
)  # fmt: skip
CHECKS = {
    "selection": "records of the target are meant",
    "records": "a record that stays is not as in the source",
    "batches": "batches without erased records are not byte for byte those of the source",
    "payloads": "",
    "bytes": "places in files, outside of the records that stay, with the bytes of an erased key or value, or of one of a header",
}
"""What is wrong if something is found; a record that stays may have the key or value of an erased one, and is counted as ``alsoKept``."""
_KEPT = "records that stay have it too"
_SHORT = "of the keys and values are short or may be numbers: compared as wholes only"
_ROUND_BYTES = 64 << 20
_RAW_BYTES = 8 << 20
_DIGEST_BYTES = 16
_OF_PARTITION = re.compile(r"[0-9]{20}\..*|leader-epoch-checkpoint|partition\.metadata")
Names = dict[Segment, list[str]]


@dataclass
class _Check:
    name: str
    checked: int = 0
    found: int = 0
    kept: int = 0
    first: int | None = None

    def at(self, offsets: Iterable[int]) -> None:
        """Note the lowest offset."""
        self.first = min([*offsets, *([] if self.first is None else [self.first])], default=None)


@dataclass
class _Partition:
    """A topic-partition: its segments with those that were written, and its checks."""

    pairs: list[tuple[Segment, list[Segment]]]
    checks: dict[str, _Check] = field(default_factory=lambda: {name: _Check(name) for name in CHECKS})

    def rows(self, short: int) -> Iterator[dict[str, Any]]:
        segment = self.pairs[0][0]
        for check in self.checks.values():
            texts = [CHECKS[check.name]] if check.found else []
            texts += [_KEPT] if check.kept else []
            texts += [f"{short} {_SHORT}"] if short and check.name == "bytes" else []
            yield {
                "topic": None if segment.topic is None else shown(segment.topic), "partition": segment.partition, "check": check.name,
                "checked": check.checked, "found": check.found, "alsoKept": check.kept, "firstOffset": check.first,
                "ok": not check.found, "remark": "; ".join(texts),
            }  # fmt: skip


@dataclass
class Proof:
    """Compares segments with what was written of them. ``meant`` flags the records of a piece with the ``columns`` that are erased."""

    meant: Callable[[Piece], Flags]
    columns: tuple[str, ...]
    options: Options
    needles: Needles = field(default_factory=Needles)
    short: int = 0

    def table(self, partitions: list[Names]) -> pa.Table:
        own = [_Partition([(one, [self._written(one, name) for name in made]) for one, made in names.items()]) for names in partitions]
        for partition in own:
            for segment, targets in partition.pairs:
                self._compare(segment, targets, partition.checks)
                if self.needles.size > (self.options.memory_bytes or 8 * _ROUND_BYTES) // 8:
                    self._search(own)
        self._search(own)
        return pa.Table.from_pylist([row for partition in own for row in partition.rows(self.short)], VERIFICATION_SCHEMA)

    def _written(self, segment: Segment, name: str) -> Segment:
        return replace(find_segments(name, segment.topic, segment.partition)[0], format=segment.format, access=segment.access)

    def _compare(self, segment: Segment, targets: list[Segment], checks: dict[str, _Check]) -> None:
        untouched, found = bytearray(), 0  # digests of batches, and how much of them is in the target, in this order
        for piece in self._pieces(segment):
            meant = self.meant(piece)
            self.needles.add(piece.records.filter(pa.array(meant)))
            for i in np.flatnonzero(~((per_entry(meant, piece.counts) > 0) | piece.partial)).tolist():
                untouched += _digest(piece, i)

        def kept() -> Iterator[pa.RecordBatch]:
            for piece in self._pieces(segment):
                yield piece.records.filter(pa.array(~self.meant(piece)))

        def there() -> Iterator[pa.RecordBatch]:
            nonlocal found
            for piece in (piece for target in targets for piece in self._pieces(target)):
                meant = self.meant(piece)
                checks["selection"].checked += len(meant)
                checks["selection"].found += int(meant.sum())
                checks["selection"].at(piece.records["offset"].filter(pa.array(meant)).to_pylist()[:1])
                for i in range(len(piece.entries)):
                    if untouched.startswith(_digest(piece, i), found):
                        found += _DIGEST_BYTES
                yield piece.records

        _same(kept(), there(), checks["records"])
        checks["batches"].checked += len(untouched) // _DIGEST_BYTES
        checks["batches"].found += found < len(untouched)

    def _pieces(self, segment: Segment) -> Iterator[Piece]:
        return pieces(segment, self.options, columns=self.columns)

    def _search(self, partitions: list[_Partition]) -> None:
        """Search all of the target for the needles so far, and forget them."""
        for partition in partitions:
            checks, logs = partition.checks, set[str]()
            for target in (target for _, targets in partition.pairs for target in targets):
                self._search_file(target, checks["bytes"], *self._search_records(target, checks))
                # What an object of a tier has in chunks is searched as the segment that it is.
                logs |= {target.path} if target.manifest is None else {target.manifest.object_name}
            stems = {base_name(name).partition(".")[0] for name in logs}
            for file in listing(parent(partition.pairs[0][1][0].path) or "."):
                if not (base_name(file.name).partition(".")[0] in stems or _OF_PARTITION.fullmatch(base_name(file.name))):
                    continue
                if file.name not in logs:
                    data = np.frombuffer(read_bytes(file.name) or b"", np.uint8)
                    checks["bytes"].checked += len(data)
                    checks["bytes"].found += len(self.needles.pattern.find(data)[0])
                checks["bytes"].found += len(self.needles.pattern.find(np.frombuffer(base_name(file.name).encode(), np.uint8))[0])
        self.short += sum(not can_be_searched(needle) for needle in self.needles.all)
        self.needles = Needles()

    def _search_records(self, target: Segment, checks: dict[str, _Check]) -> tuple[Int64s, Flags]:
        """Positions of the entries of a segment, and which have records with needles in them."""
        positions, held = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        for piece in self._pieces(target):
            flags = self.needles.known(piece.records)
            checks["payloads"].checked += len(flags)
            checks["payloads"].kept += int(flags.sum())
            checks["payloads"].at(piece.records["offset"].filter(pa.array(flags)).to_pylist()[:1])
            for column in ("key", "value", "headers"):
                flags |= self._with_needles(piece.records[column])
            checks["bytes"].kept += int(flags.sum())
            positions.append(piece.entries.position.copy())
            held.append(per_entry(flags, piece.counts) > 0)
        return np.concatenate(positions), np.concatenate(held)

    def _with_needles(self, column: pa.Array) -> Flags:
        """Flags of the rows with a needle in them; of headers, in a key or a value."""
        flags = np.zeros(len(column), np.bool_)
        if pa.types.is_list(column.type):
            rows = pc.list_parent_indices(column).to_numpy()
            for part in column.flatten().flatten():
                flags[rows[self._with_needles(part.cast(pa.binary()))]] = True
            return flags
        _, ends, data = column.buffers()
        if ends is None or data is None or not len(column):
            return flags
        bounds = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        start, stop = self.needles.pattern.find(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]])
        row = np.searchsorted(bounds, start + bounds[0], side="right") - 1
        flags[row[stop + bounds[0] <= bounds[row + 1]]] = True
        return flags

    def _search_file(self, target: Segment, check: _Check, positions: Int64s, held: Flags) -> None:
        """Search the bytes of a segment, some MiB at a time. A needle in an entry that a record has is counted there."""
        step, overlap = max(_RAW_BYTES, 2 * LONGEST), max(self.needles.pattern.longest - 1, 0)
        with SegmentFile(target) as file:
            for start in range(0, file.size, step):
                stop = min(start + step + overlap, file.size)
                found, end = self.needles.pattern.find(file.read(start, stop)[: stop - start])
                check.checked += min(step, file.size - start)
                row = np.searchsorted(positions, found + start, side="right") - 1
                for i in np.flatnonzero((found < step) & ~np.append(held, False)[row]).tolist():
                    check.found += row[i] < 0 or not self._is_decoded(file, int(positions[row[i]]), start + int(found[i] + end[i]) // 2)

    def _is_decoded(self, file: SegmentFile, position: int, at: int) -> bool:
        """Whether a byte is part of the records of the entry at ``position``, which are others if it is another one. The bytes of a needle
        may be the end of a field and the length of the next one, or numbers of a compressed stream."""
        entries = next(header_rows(file, position, file.size))[:1]
        if at >= entries[0].end:
            return False
        source, how = file.read(position, entries[0].end).copy(), replace(self.options, errors="skip")
        before = piece_of(source, position, entries.copy(), file.segment, how).records
        source[at - position] ^= 1
        return not before.equals(piece_of(source, position, entries.copy(), file.segment, how).records)


def _digest(piece: Piece, number: int) -> bytes:
    return hashlib.blake2b(piece.entry(number).data, digest_size=_DIGEST_BYTES).digest()


def _same(source: Iterator[pa.RecordBatch], target: Iterator[pa.RecordBatch], check: _Check) -> None:
    """Compare records, one after the other, up to the first that differ. All of both is read: it counts for the other checks."""
    some = (filter(len, source), filter(len, target))
    left, right = (next(side, None) for side in some)
    differ = False
    while left is not None and right is not None and not differ:
        count = min(len(left), len(right))
        row = _first_difference(left.slice(0, count), right.slice(0, count))
        check.checked, differ = check.checked + row, row < count
        left, right = (side.slice(row) if row < len(side) else next(own, None) for side, own in zip((left, right), some, strict=True))
    rest = [side for side in (left, right) if side is not None]
    check.found += len(rest) > 0
    check.at(side["offset"][0].as_py() for side in rest)
    for side in some:
        for _ in side:
            pass


def _first_difference(left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """The first row in which two batches with as many rows differ, or that number of rows."""
    if left.equals(right):
        return len(left)
    return next(row for row in range(len(left)) if not left.slice(row, 1).equals(right.slice(row, 1)))
