"""`diff`: what two replicas, tiers or backups have that is not the same, partition by partition, and where their leaders parted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any, Unpack

import pyarrow as pa

from kolumn.copies.copies import Key
from kolumn.copies.ranges import every_range
from kolumn.core import keywords
from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.core.results import Result, counted
from kolumn.core.schema import LEFT_OUT_SCHEMA
from kolumn.core.text import in_column
from kolumn.damage.findings import MOST_ROWS, html_table
from kolumn.decode.observed import moment
from kolumn.options import Options
from kolumn.readers.plan import LiveSegments, live_segments
from kolumn.source.segments import Segment
from kolumn.source.side_files import CHECKPOINT, METADATA, TIER_CHECKPOINT, Epochs, read_epochs, read_topic_id
from kolumn.source.storage import beside, with_suffix
from kolumn.tools.comparing.records import LiveKeys, Pair
from kolumn.tools.comparing.sides import Side
from kolumn.tools.comparing.windows import BROKEN, CONTENT, KINDS, ONLY, STORAGE, Comparison, Unlike

_MOMENT = pa.timestamp("ms", tz="UTC")
DIFFERENCE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("kind", pa.string()), ("side", pa.string()), ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()), ("producers", pa.list_(pa.int64())),
        ("firstTimestamp", _MOMENT), ("lastTimestamp", _MOMENT), ("leaderEpochA", pa.int32()), ("leaderEpochB", pa.int32()),
        ("segmentA", pa.string()), ("positionA", pa.int64()), ("segmentB", pa.string()), ("positionB", pa.int64()), ("reason", pa.string()),
    ]
)  # fmt: skip
_EPOCHS = pa.list_(pa.struct([("epoch", pa.int32()), ("firstOffset", pa.int64())]))
PARTITIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("nameB", pa.string()), ("isEqual", pa.bool_()),
        ("topicIdA", pa.string()), ("topicIdB", pa.string()), ("topicIdsDiffer", pa.bool_()),
        ("commonEpoch", pa.int32()), ("divergenceOffset", pa.int64()), ("beyondA", pa.int64()), ("beyondB", pa.int64()),
        ("firstDifference", pa.int64()),
        *((f"{name}{side}", pa.int64()) for side in "AB" for name in ("logStart", "logEnd", "records", "bytes")),
        ("epochsA", _EPOCHS), ("epochsB", _EPOCHS),
    ]
)  # fmt: skip
RECORDS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("kind", pa.string()), ("fields", pa.list_(pa.string())),
        *(
            (f"{name}{side}", kind)
            for side in "AB"
            for name, kind in (
                ("key", pa.binary()), ("valueSize", pa.int64()), ("valueHash", pa.string()), ("timestamp", _MOMENT),
                ("producerId", pa.int64()), ("producerEpoch", pa.int16()), ("leaderEpoch", pa.int32()), ("isControl", pa.bool_()),
            )
        ),
    ]
)  # fmt: skip
SIDED_LEFT_OUT_SCHEMA = LEFT_OUT_SCHEMA.insert(0, pa.field("side", pa.string()))
_HELD = 1024  # rows that wait to become columns


@dataclass(frozen=True, repr=False)
class Difference(Result):
    """Result of a comparison.

    Attributes
    ----------
    differences : pa.Table
        One row for neighbouring offsets of a partition with the same kind of difference. ``kind`` is "only in A", "only in B" or "content
        differs": records; "storage differs": both have the records, in other batches, another codec or format, or with another leader
        epoch, as ``reason`` says; "damaged in A" or "damaged in B": bytes that cannot be read, with the offsets between the intact ones
        around them, and as ``records`` how many were lost, or how many the other side has there. ``reason`` of "only in …" says where
        the other side does not go so far: "below A's log start", as retention makes it, and "above A's log end", as a follower that lags.
        ``bytes`` are those of whole batches, or of keys and values where batches of both sides had to be opened. ``producers`` are at
        most 1000 producer ids, times outside of the years 1 to 9999 are null. Leader epoch, segment and position are those of the first
        record on each side.
    partitions : pa.Table
        One row for each topic-partition: records, bytes, log start and log end of each side; topic ids and whether they differ, in
        which case these are two topics of one name, and no replicas. ``commonEpoch`` is the largest leader epoch of both sides, and
        ``divergenceOffset`` the smaller of its end offsets (KIP-101, KIP-279): the first offset at which two leaders went on by
        themselves. It is null if one log is the beginning of the other, or no epoch is known. ``beyondA`` and ``beyondB`` are the records
        from there on that only that side has.
    records : pa.Table
        With ``records=True`` one row for each record that differs, with size and SHA-256 of its value.
    left_out : pa.Table
        Files and folders of both sides that are no part of a log, each with its reason.
    records_left_out : int
        Records that differ and are not in ``records``, since it has ``max_records`` rows.
    """

    differences: pa.Table
    partitions: pa.Table
    records: pa.Table
    left_out: pa.Table
    records_left_out: int = 0

    @property
    def equal(self) -> bool:
        """Whether no record differs and nothing is damaged. Differences of storage do not count."""
        return not set(self.differences["kind"].unique().to_pylist()) - {STORAGE}

    @property
    def identical(self) -> bool:
        """Whether batches are equal too."""
        return self.differences.num_rows == 0

    def __str__(self) -> str:
        kinds = Counter(self.differences["kind"].to_pylist())
        differ = "; ".join(f"{kind} in {counted(number, 'stretch')}" for kind, number in kinds.items())
        return f"{'equal' if self.equal else 'different'}: {counted(self.partitions.num_rows, 'partition')}{differ and f'; {differ}'}"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{self}</b></p>"]
        for table in (self.partitions, self.differences, self.records, self.left_out):
            if table.num_rows:
                rows = table.slice(0, MOST_ROWS).to_pylist()
                parts.append(html_table(table.schema.names, [list(row.values()) for row in rows], table.num_rows))
        return "".join(parts)


@known_keywords(keywords.refused(("errors",), "diff reports damage as a difference"))
def diff(  # type: ignore[misc]  # check_crcs has another default
    a: keywords.Source,
    b: keywords.Source,
    *,
    compacted: bool = False,
    records: bool = False,
    max_records: int = 10_000,
    check_crcs: bool = False,
    private_keys: keywords.Keys | None = None,
    **options: Unpack[keywords.WholeOptions],
) -> Difference:
    """Compare two copies of topic-partitions: replicas, a folder and a tier, backups, or whole log directories.

    Both sides are walked by the headers of batches, in the order of offsets. Batches are equal if their offsets, checksum, size, leader
    epoch and producer are, and then nothing of them is read or decompressed. Where batches differ, records are compared by offset: key,
    value, headers, timestamp, producer, sequence, and whether they are transactional or control records, as far as both formats can hold
    them. Memory holds some thousand headers of each side, the records of some batches, and the result.

    Parameters
    ----------
    a, b
        As in `kolumn.scan`. Partitions are matched by topic and partition. If each side has one partition, these are compared whatever
        their names.
    compacted : bool
        Compare what a compacted topic says: the last record of each key, without records of aborted transactions. A record that
        compaction has removed on one side is no difference, nor is a removed tombstone. Where batches differ all keys of both sides are
        read, and memory holds them and 32 to 128 bytes for each.
    records : bool
        List each record that differs.
    max_records : int
        How many of these at most; the others are counted.
    check_crcs : bool
        Compare the checksum of every batch with its bytes. Without, damage inside of a batch whose header is equal on both sides is not
        seen, since its bytes are not read; and where a wrong length happens to lead to the beginning of a later batch, those between
        are told as missing.
    private_keys, topic, …
        All others as in `kolumn.scan`. ``replicas`` decides about several copies of a partition within one side.

    Returns
    -------
    Difference

    Raises
    ------
    ArgumentError
        An option is invalid; a side has no segments, or overlapping copies of a partition with ``replicas="raise"``.
    KolumnError
        A file cannot be read, or changes meanwhile.
    """
    if max_records < 0:
        raise ArgumentError(f"max_records={max_records}: expected at least 0")
    chosen = replace(Options.of(private_keys=private_keys, check_crcs=check_crcs, **options), errors="skip")
    live = tuple(live_segments(source, chosen) for source in (a, b))
    tables = _Tables(max_records if records else 0)
    for key, names, sides in _matched(live):
        partition = _Partition(key, names, sides, chosen, tables)
        keys = LiveKeys(partition.sides, partition.parted) if compacted else None
        Comparison(partition.sides, partition.add, keys, partition.list_records if records else None).run()
        tables.partitions.append(partition.row())
    left_out = [
        one.left_out().add_column(0, "side", pa.array([name] * one.left_out().num_rows, pa.string()))
        for name, one in zip("AB", live, strict=True)
    ]
    return tables.result(pa.concat_tables(left_out).cast(SIDED_LEFT_OUT_SCHEMA))


_Sided = tuple[list[Segment], list[Segment]]


def _matched(live: tuple[LiveSegments, ...]) -> Iterable[tuple[Key, str | None, _Sided]]:
    """Topic-partitions of both sides with their segments, and the name on side B if it is another one."""
    by_key: list[dict[Key, list[Segment]]] = []
    for one in live:
        own: dict[Key, list[Segment]] = {}
        for segment in one.segments:
            own.setdefault(segment.key, []).append(segment)
        by_key.append(own)
    left, right = by_key
    if len(left) == len(right) == 1 and left.keys() != right.keys():
        (key, segments), (other, others) = *left.items(), *right.items()
        yield key, f"{other[0]}-{other[1]}", (segments, others)
        return
    for key in sorted(left.keys() | right.keys()):
        yield key, None, (left.get(key, []), right.get(key, []))


class _Tables:
    """Rows of the result, of which some wait to become columns."""

    def __init__(self, max_records: int) -> None:
        self.partitions: list[dict[str, Any]] = []
        self.room, self.more = max_records, 0
        self.differences, self.records = _Rows(DIFFERENCE_SCHEMA), _Rows(RECORDS_SCHEMA)

    def result(self, left_out: pa.Table) -> Difference:
        partitions = pa.Table.from_pylist(self.partitions, PARTITIONS_SCHEMA)
        return Difference(self.differences.table(), partitions, self.records.table(), left_out, self.more)


class _Rows:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema, self.held, self.parts = schema, list[dict[str, Any]](), [schema.empty_table()]

    def add(self, row: dict[str, Any]) -> None:
        self.held.append(row)
        if len(self.held) == _HELD:
            self._settle()

    def _settle(self) -> None:
        self.parts.append(pa.Table.from_pylist(self.held, self.schema))
        self.held = []

    def table(self) -> pa.Table:
        self._settle()
        return pa.concat_tables(self.parts)


@dataclass
class _Partition:
    """A topic-partition while it is compared."""

    key: Key
    other_name: str | None
    segments: _Sided
    options: Options
    tables: _Tables
    first: int | None = None
    is_equal: bool = True
    kept: list[tuple[int, int, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        ranges = [every_range(own, self.options) if own else [] for own in self.segments]
        self.sides = Side("A", ranges[0], self.options), Side("B", ranges[1], self.options)

    @property
    def names(self) -> dict[str, Any]:
        topic, partition = self.key
        return {"topic": in_column(topic) or None, "partition": partition if partition >= 0 else None}

    def add(self, stretch: Unlike) -> None:
        """Add a row of the table of differences."""
        kind = KINDS[stretch.kind]
        if kind != STORAGE:
            self.is_equal = False
            self.first = stretch.first if self.first is None else min(self.first, stretch.first)
            self.kept.append((stretch.first, stretch.last, kind, stretch.records or 0))
        low, high = map(moment, stretch.times or (None, None))
        (segment_a, position_a), (segment_b, position_b) = (place or (None, None) for place in stretch.places)
        self.tables.differences.add(
            self.names
            | {
                "kind": kind, "side": "both" if kind in (CONTENT, STORAGE) and None not in stretch.places else _side(stretch),
                "firstOffset": stretch.first, "lastOffset": stretch.last if stretch.last >= stretch.first else None,
                "records": stretch.records, "bytes": stretch.bytes, "producers": sorted(stretch.producers), "firstTimestamp": low,
                "lastTimestamp": high, "leaderEpochA": stretch.epochs[0], "leaderEpochB": stretch.epochs[1], "segmentA": segment_a,
                "positionA": position_a, "segmentB": segment_b, "positionB": position_b, "reason": stretch.reason,
            }
        )  # fmt: skip

    def list_records(self, pair: Pair, numbers: Int64s, kinds: Int64s) -> None:
        """Add rows to the table of records; those for which there is no room are counted."""
        tables = self.tables
        listed = min(len(numbers), tables.room)
        tables.room, tables.more = tables.room - listed, tables.more + len(numbers) - listed
        for number, kind in zip(numbers[:listed].tolist(), kinds[:listed].tolist(), strict=True):
            fields = [name for name, flags in pair.fields.items() if flags[number]]
            row: dict[str, Any] = self.names | {"offset": int(pair.offset[number]), "kind": KINDS[kind], "fields": fields}
            for side, record in enumerate((pair.record(0, number), pair.record(1, number))):
                row |= {} if record is None else {f"{name}{'AB'[side]}": value for name, value in _record(record).items()}
            tables.records.add(row)

    def row(self) -> dict[str, Any]:
        """The row of the table of partitions, after the comparison."""
        ids = [_topic_id(own) for own in self.segments]
        ends = [side.end for side in self.sides]
        epochs = self._epochs([tuple(side.epochs) for side in self.sides], ends)
        common, offset = _divergence(epochs, ends)
        row = self.names | {
            "nameB": self.other_name and in_column(self.other_name), "isEqual": self.is_equal, "topicIdA": ids[0], "topicIdB": ids[1],
            "topicIdsDiffer": None not in ids and ids[0] != ids[1], "commonEpoch": common, "divergenceOffset": offset,
            "beyondA": self._beyond(offset, 0), "beyondB": self._beyond(offset, 1), "firstDifference": self.first,
        }  # fmt: skip
        for side, known in zip(self.sides, epochs, strict=True):
            if side.ranges:
                row |= {
                    f"logStart{side.name}": side.start, f"logEnd{side.name}": side.end, f"records{side.name}": side.records,
                    f"bytes{side.name}": side.bytes,
                    f"epochs{side.name}": [{"epoch": epoch, "firstOffset": first} for epoch, first in known],
                }  # fmt: skip
        return row

    def parted(self, epochs: list[Epochs], ends: list[int]) -> int | None:
        """The divergence, by leader epochs of batches and log ends."""
        return _divergence(self._epochs(epochs, ends), ends)[1]

    def _epochs(self, epochs: list[Epochs], ends: list[int]) -> list[Epochs]:
        return [_epochs(*known) for known in zip(self.segments, epochs, ends, strict=True)]

    def _beyond(self, offset: int | None, number: int) -> int | None:
        """Records from the divergence on that only one side has."""
        if offset is None:
            return None
        kinds = (ONLY[number], CONTENT, BROKEN[1 - number])
        count = 0
        for first, last, kind, records in self.kept:
            if kind in kinds and last >= offset:
                # The stretch in which the divergence lies has records before it.
                count += records if first >= offset else self.sides[number].records_in(offset, last)
        return count


def _side(stretch: Unlike) -> str:
    return "AB"[stretch.places[0] is None]


def _record(record: dict[str, Any]) -> dict[str, Any]:
    value = record["value"]
    return {
        "key": record["key"], "valueSize": None if value is None else len(value),
        "valueHash": None if value is None else sha256(value).hexdigest(),
        "timestamp": moment(record["timestampMs"]), "producerId": record["producerId"],
        "producerEpoch": record["producerEpoch"], "leaderEpoch": record["leaderEpoch"], "isControl": record["isControl"],
    }  # fmt: skip


def _topic_id(segments: list[Segment]) -> str | None:
    local = next((segment for segment in segments if segment.copy_id is None and segment.memory is None), None)
    return None if local is None else read_topic_id(beside(local.path, METADATA))


def _epochs(segments: list[Segment], walked: Epochs, end: int) -> Epochs:
    """Leader epochs of a log: of a checkpoint that its batches do not contradict, else of the batches."""
    newest = {segment.path.rpartition("/")[0]: segment for segment in segments if segment.memory is None}
    known = [tuple(pair for pair in epochs or () if pair[1] <= end) for epochs in map(_checkpoint, newest.values())]
    sure = [*walked, *((epoch, end - 1) for epoch, _ in walked[-1:])]
    agreed = [epochs for epochs in known if epochs and all(_epoch_at(epochs, offset) == epoch for epoch, offset in sure)]
    return max(agreed, key=lambda epochs: epochs[-1], default=walked)


def _checkpoint(segment: Segment) -> Epochs | None:
    if segment.manifest is not None:
        return segment.manifest.epochs
    name = beside(segment.path, CHECKPOINT) if segment.copy_id is None else with_suffix(segment.path, TIER_CHECKPOINT)
    return read_epochs(name)


def _epoch_at(epochs: Epochs, offset: int) -> int | None:
    return next((epoch for epoch, first in reversed(epochs) if first <= offset), None)


def _divergence(epochs: list[Epochs], ends: list[int]) -> tuple[int | None, int | None]:
    """The largest common leader epoch, and the smaller of its end offsets; no offset if one log is the beginning of the other."""
    common = max({epoch for epoch, _ in epochs[0]} & {epoch for epoch, _ in epochs[1]}, default=None)
    if common is None:
        return None, None
    own = [_end_of(common, known, end) for known, end in zip(epochs, ends, strict=True)]
    for number in (0, 1):
        if epochs[number][-1][0] == common and ends[number] <= own[1 - number]:
            return common, None
    return common, min(own)


def _end_of(epoch: int, epochs: Epochs, end: int) -> int:
    return next((after for (known, _), (_, after) in pairwise((*epochs, (0, end))) if known == epoch), end)
