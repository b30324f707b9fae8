"""`space`: the size of segments as they are and in each format, from the lengths of the fields of their records.

Bytes are counted by purpose, field by field for each layout. Nothing is encoded: only what a codec saves is tried, on a part of the
batches. Besides, the sizes as a picture, and the table of the KIP-98 draft.
"""

from collections import Counter
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.copies.transactions import transactions_of_log
from kolumn.core import keywords
from kolumn.core.arrays import AnyArray, Int64s
from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import known_keywords
from kolumn.core.packages import missing_package
from kolumn.core.results import Result, counted
from kolumn.cpu_fallback.encode import sizes as loops
from kolumn.damage.findings import OnDamage
from kolumn.decode.host.aborted import Transactions
from kolumn.formats import enriched, layouts, redpanda, v2
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.formats.varint import uvarint_size, varint_size
from kolumn.log.pieces import Piece, pieces
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.storage import parent
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.encoders import ENCODERS, encode, times_of
from kolumn.writers.entries import Groups, RecordsIn, codec_of, take_apart
from kolumn.writers.regroup import Changes, Losses, Regrouped, regrouped, with_data
from kolumn.writers.write import settings

TARGETS = (("kafka", 0), ("kafka", 1), ("kafka", 2), ("enriched", 1), ("kip98-draft", 2), ("v3-compact", 3), ("kip87", 2))
PARTS = ("keys", "values", "headers", "offsets", "timestamps", "lengths", "crc", "producer", "attributes", "compression")
"""Purposes of bytes. ``headers`` are those of records; ``lengths`` includes counts and the surplus bytes of overlong varints;
``attributes`` are all other fixed fields; ``compression`` is what a codec saves, a negative number."""
_CRC, _PRODUCER = 4, 14
_TAG = 9  # bytes of the broker timestamp of an enriched message
_WHOLE_BYTES, _STRETCH_BYTES, _EVERY = 1 << 20, 1 << 18, 16
"""Compressed are the first bytes of each codec, and then one stretch of so many, counted before compression."""


@dataclass(repr=False)
class Space(Result):
    """Size of the records in one format.

    Attributes
    ----------
    format : str
        "as it is" for the segments themselves.
    magic : int, optional
    bytes, records : int
    parts : Counter of str
        Bytes by purpose, `PARTS`.
    lost : Losses
        Records and fields that the format cannot store.
    codec : str
        "" if batches keep their codec.
    estimated : int
        How many of the bytes were estimated. Of the batches with a codec, the first MiB before compression and then 256 KiB of each
        4 MiB are compressed; the size of the others is what these make likely. 0 if all sizes are exact, as without a codec.
    """

    format: str
    magic: int | None
    bytes: int
    records: int
    parts: Counter[str]
    lost: Losses
    codec: str = ""
    estimated: int = 0

    def __str__(self) -> str:
        name = " ".join(filter(None, (self.format, "" if self.magic is None else f"magic {self.magic}", self.codec)))
        return f"{name}: {counted(self.bytes, 'byte')}{', estimated,' if self.estimated else ''} for {counted(self.records, 'record')}"


@known_keywords()
def space(
    source: keywords.Source,
    *,
    codec: keywords.Codec | None = None,
    source_format: keywords.Format = "kafka",
    on_damage: OnDamage | None = None,
    private_keys: keywords.Keys | None = None,
    **options: Unpack[keywords.WholeOptions],
) -> list[Space]:
    """Count the bytes of segments by purpose, as they are and as each format would encode them. No file is written.

    Sizes follow from the lengths of fields. What a codec saves is measured on a part of the batches, see `Space.estimated`.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    codec : str, optional
        Codec of the encoded batches; by default each keeps its own, except that zstd, which older formats lack, becomes gzip.
    source_format : str
        Format of the source.
    on_damage, private_keys
        As in `kolumn.scan`.
    errors, check_crcs, …
        All others as in `kolumn.scan`.

    Returns
    -------
    list of Space
        The first one is the source itself. Formats without transactions store the records of committed transactions as plain records.
    """
    chosen = Options.of(format=source_format, private_keys=private_keys, **options)
    segments = live_segments(source, chosen).one_log(of_tiers=True)
    asked = None if codec is None else codec_of(codec)
    source_space = Space("as it is", None, 0, 0, Counter(), Losses())
    spaces = [Space(format, magic, 0, 0, Counter(), Losses()) for format, magic in TARGETS]
    sizes = [_FormatSizes(space, asked) for space in spaces]
    targets = [settings(format, magic, "none", None, 16384, None) for format, magic in TARGETS]
    transactions: dict[str, Transactions] = {}
    for segment in segments:
        folder = parent(segment.path)
        if folder not in transactions:
            transactions[folder] = transactions_of_log(segment, segments, chosen)
        changes = [Changes(how, None, transactions[folder] if layouts.holds_messages(how.layout) else None) for how in targets]
        for piece in pieces(segment, chosen, on_damage):
            source_space.parts.update(anatomy(piece))
            source_space.records += piece.records.num_rows
            for size, change in zip(sizes, changes, strict=True):
                size.add(piece, change)
    for space in (source_space, *spaces):
        space.bytes = sum(space.parts.values())
    return [source_space, *spaces]


@dataclass
class _CountedEntries:
    """Entries of one layout with ``size``, in format 3 with ``payload`` too, and their records: the first of each, and the one after the
    last. ``tagged`` (uint8) flags enriched messages that have a broker timestamp."""

    entries: Entries
    given: RecordsIn
    first: Int64s
    stop: int
    tagged: AnyArray | None = None

    @property
    def counts(self) -> Int64s:
        return np.diff(np.append(self.first, self.stop))


def anatomy(piece: Piece) -> Counter[str]:
    """Bytes of each of `PARTS` in the entries of a piece; together they are the bytes of the entries."""
    parts: Counter[str] = Counter()
    for layout in np.unique(piece.entries.layout).tolist():
        some = piece.entries.layout == layout
        entries, counts, records = piece.entries, piece.counts, piece.records
        if not some.all():
            entries, counts, records = entries[some], counts[some], records.filter(pa.array(np.repeat(some, counts)))
        tagged = np.asarray(pc.is_valid(records["brokerTimestampMs"])) if layout == enriched.LAYOUT.number else None
        table = pa.Table.from_batches([records.select(["offset", "timestampMs", "key", "value", "headers"])])
        first = np.cumsum(counts) - counts
        parts.update(_count(_CountedEntries(entries, take_apart(table, 0), first, records.num_rows, tagged), layout))
    return parts


def _of_clients(piece: Piece, lost: Losses) -> Piece:
    """A piece of a log of Redpanda without batches of its own, as a conversion leaves them out."""
    data = with_data(piece.entries, lost)
    records = piece.records.filter(pa.array(np.repeat(data, piece.counts)))
    return replace(piece, entries=piece.entries[data], counts=piece.counts[data], records=records, partial=piece.partial[data])


def _count(what: _CountedEntries, layout: int) -> Counter[str]:
    """Bytes of each of `PARTS` in entries of a layout. What is left of an entry's size is ``compression`` if it has a codec, else
    ``lengths``: fields may be longer than they need to be."""
    by_loop, packed = np.zeros((2, loops.WIDTH), np.int64), what.entries.codec != NONE
    parts: Counter[str] = Counter()
    records, first, stop, rows = what.given.records, what.first, what.stop, np.ascontiguousarray(what.entries.array)
    if layouts.holds_records(layout):
        loops.count_batches(records, layouts.attribute_bytes(layout), first, stop, rows, by_loop)
    elif layouts.is_set(layout):
        loops.count_sets(records, first, stop, rows, by_loop)
    else:
        loops.count_payloads(records, first, stop, rows, by_loop)
    for has_codec in (False, True):
        some = packed == has_codec
        if not some.any():
            continue
        own = Counter(dict(zip(PARTS, by_loop[int(has_codec)].tolist(), strict=False)))
        entries, counts = what.entries[some], what.counts[some]
        number, total = len(entries), int(counts.sum())
        if layouts.holds_records(layout):
            own.update(_batch_headers(entries, total, layout))
        elif layouts.is_set(layout):
            # Sets of the KIP-98 draft: every message has its length, its timestamp and its checksum.
            own.update(
                lengths=4 * number, offsets=12 * number, timestamps=8 * (total + number), crc=_CRC * (total + number),
                producer=_PRODUCER * number, attributes=total + 3 * number,
            )  # fmt: skip
        elif layout == enriched.LAYOUT.number:
            tagged = 0 if what.tagged is None else int(what.tagged[np.repeat(some, what.counts)].sum())
            own.update(_tagged_messages(total + has_codec * number, tagged))
        else:
            timed = entries.magic >= 1
            own.update(_plain_messages(total + has_codec * number, int(counts[timed].sum()) + has_codec * int(timed.sum())))
        own["compression" if has_codec else "lengths"] += int(entries.size.sum()) - sum(own.values())
        parts.update(own)
    return parts


def _batch_headers(entries: Entries, records: int, layout: int) -> Counter[str]:
    number = len(entries)
    # Redpanda's header has two checksums, and a type in the place of a magic and a leader epoch.
    crcs, others = (2, 3) if layout == redpanda.LAYOUT.number else (1, 7)
    attributes = layouts.attribute_bytes(layout) * records + others * number
    parts = Counter(crc=crcs * _CRC * number, producer=_PRODUCER * number, attributes=attributes)
    if layout in (v2.LAYOUT.number, redpanda.LAYOUT.number):
        return parts + Counter(lengths=8 * number, timestamps=16 * number, offsets=(8 + 4) * number)
    base, highest = entries.base_timestamp.tolist(), (entries.max_timestamp - entries.base_timestamp).tolist()
    times = sum(map(varint_size, base)) + sum(map(varint_size, highest))
    last = sum(map(uvarint_size, (entries.last_offset - entries.base_offset).tolist()))
    lengths = int(entries.payload.sum()) - times - last - (8 + 7 + _CRC + _PRODUCER) * number
    return parts + Counter(timestamps=times, offsets=8 * number + last, lengths=lengths)


def _plain_messages(messages: int, timed: int) -> Counter[str]:
    """Messages of formats 0 and 1, apart from keys and values; ``timed`` of them have a timestamp."""
    return Counter(offsets=8 * messages, crc=_CRC * messages, lengths=12 * messages, attributes=2 * messages, timestamps=8 * timed)


def _tagged_messages(messages: int, tagged: int) -> Counter[str]:
    """Enriched messages, apart from keys and values; ``tagged`` of them have a broker timestamp."""
    timestamps = 4 * messages + _TAG * tagged
    return Counter(offsets=8 * messages, crc=_CRC * messages, lengths=(12 + 4) * messages, attributes=2 * messages, timestamps=timestamps)


@dataclass
class _Sample:
    """Batches of one codec. ``seen`` and the others are bytes of their records: of all, and of compressed ones before and after."""

    seen: int = 0
    plain: int = 0
    packed: int = 0


class _FormatSizes:
    """Adds the bytes that records take in one format to its `Space`, and what the format cannot store. ``codec`` None keeps that of each
    batch."""

    def __init__(self, space: Space, codec: int | None) -> None:
        self.space, self.asked = space, codec
        self._samples: dict[int, _Sample] = {}

    def add(self, piece: Piece, changes: Changes) -> None:
        if piece.entries.is_own.any():
            piece = _of_clients(piece, self.space.lost)
        lacks = not layouts.holds_records(changes.how.layout)
        wanted = (piece.entries.codec == ZSTD).any() if self.asked is None else self.asked == ZSTD
        codec = codec_of("gzip") if lacks and wanted else self.asked
        self.space.codec = "" if codec is None else NAMES[codec]
        for part in regrouped(piece, changes, codec, self.space.lost):
            self.space.records += part.given.records.rows
            if part.how.codec == NONE and layouts.holds_messages(part.how.layout):
                self.space.parts.update(_single_messages(part))
            else:
                self._add_entries(part)

    def _add_entries(self, part: Regrouped) -> None:
        groups, how = part.groups(), part.how
        entries, payload = groups.rows(part.given, how), groups.size.copy()
        packed = np.flatnonzero(entries.codec)
        if len(packed):
            payload[packed] = self._compressed(part, groups, entries, packed)
        entries.payload = ENCODERS[how.layout].header_sizes(entries, payload, how)
        entries.size = payload + entries.payload
        tagged = times_of(part.given).tagged if layouts.has_typed_control(how.layout) else None
        self.space.parts.update(_count(_CountedEntries(entries, part.given, groups.first, groups.stop, tagged), how.layout))

    def _compressed(self, part: Regrouped, groups: Groups, entries: Entries, packed: Int64s) -> Int64s:
        sample = self._samples.setdefault(part.how.codec, _Sample())
        plain, size = groups.size[packed], np.zeros(len(packed), np.int64)
        start = sample.seen + np.cumsum(plain) - plain
        tried = (start < _WHOLE_BYTES) | (start // _STRETCH_BYTES % _EVERY == 0)
        if tried.any():
            size[tried] = _tried(part, groups, entries, packed[tried])
        sample.seen += int(plain.sum())
        sample.plain += int(plain[tried].sum())
        sample.packed += int(size[tried].sum())
        size[~tried] = np.round(plain[~tried] * (sample.packed / max(sample.plain, 1)))
        self.space.estimated += int(size[~tried].sum())
        return size


def _tried(part: Regrouped, groups: Groups, entries: Entries, which: Int64s) -> Int64s:
    """Bytes of the records of some entries, compressed; neighbours are encoded together."""
    bounds = [0, *(np.flatnonzero(np.diff(which) != 1) + 1).tolist(), len(which)]
    encoder, sizes = ENCODERS[part.how.layout], list[Int64s]()
    for first, last in pairwise(bounds):
        start, stop = int(which[first]), int(which[last - 1]) + 1
        size = encoder.put(part.given, groups.part(start, stop), part.how).entries.size
        # The size of a header may depend on what is after it, by one byte.
        about = size - encoder.header_sizes(entries[start:stop], groups.size[start:stop], part.how)
        sizes.append(size - encoder.header_sizes(entries[start:stop], np.maximum(about, 0), part.how))
    return np.concatenate(sizes)


def _single_messages(part: Regrouped) -> Counter[str]:
    by_loop, rows = np.zeros((2, loops.WIDTH), np.int64), part.given.records.rows
    loops.count_payloads(part.given.records, np.zeros(1, np.int64), rows, Entries.zeros(1).array, by_loop)
    if layouts.has_typed_control(part.how.layout):
        parts = _tagged_messages(rows, int(times_of(part.given).tagged.sum()))
    else:
        parts = _plain_messages(rows, rows if part.how.magic >= 1 else 0)
    parts.update(keys=int(by_loop[0, loops.KEYS]), values=int(by_loop[0, loops.VALUES]))
    return parts


_PICTURES = (".svg", ".png", ".pdf")


def draw(spaces: list[Space], path: str, source: str = "") -> None:
    """Draw the sizes into a file: a bar for each format, divided by the purpose of the bytes; ``source`` is for the title.

    The saving of a codec is not drawn as a part: a bar is as long as the decompressed entries, and a mark shows the compressed size. A
    label names the parts that a format cannot store. Raises `ArgumentError` if the file's name does not end with the suffix of a picture
    format, `MissingError` without matplotlib, and `KolumnError` if the file cannot be written.
    """
    if Path(path).suffix not in _PICTURES:
        raise ArgumentError(f"{path}: expected a name that ends in {', '.join(_PICTURES)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("pictures need matplotlib", "matplotlib") from error
    figure = Figure(figsize=(10, 0.6 * len(spaces) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    names = [space.format if space.magic is None else f"{space.format}, magic {space.magic}" for space in spaces]
    left = [0.0] * len(spaces)
    for part in PARTS[:-1]:
        widths = [space.parts[part] / 1e6 for space in spaces]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    sizes = [space.bytes / 1e6 for space in spaces]
    axes.plot(sizes, names, "k|", markersize=18, markeredgewidth=2, label="with the codec")
    for number, (space, end) in enumerate(zip(spaces, left, strict=True)):
        # A bar is also shorter because of parts that its format cannot store.
        lost = [part for part in PARTS if part in space.lost]
        if lost:
            label = f"{' and '.join(lost)} lost"
            axes.annotate(label, (max(end, sizes[number]), number), (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.set_title(f"Where the bytes of {source or 'the segments'} go, in each format", wrap=True)
    axes.set_xlabel("MB")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=5, frameon=False)
    picture = BytesIO()
    figure.savefig(picture, format=Path(path).suffix.removeprefix("."))
    with Commit(Path(path).parent, replace=True) as commit, StagedFile(commit.place(Path(path))) as file:
        file.write(picture.getbuffer())


_MESSAGE, _KEY, _TIME = 1024, 100, 1_700_000_000_000


def draft_table() -> list[dict[str, int]]:
    """The table of the KIP-98 draft: bytes beyond those of messages of 1 KiB with a key of 100 bytes, in format 1 and in a set. Rows of
    batch size and both, from encoded bytes without a codec."""
    counts = (1, 3, 10, 50, 100)
    return [{"messages": n, "format 1": _overhead("kafka", 1, n), "kip98-draft": _overhead("kip98-draft", 2, n)} for n in counts]


def _overhead(format: str, magic: int, count: int) -> int:
    key, value = (pa.array([bytes(size)] * count, pa.binary()) for size in (_KEY, _MESSAGE - _KEY))
    columns: dict[str, Any] = {"offset": np.arange(count), "timestampMs": np.full(count, _TIME), "key": key, "value": value}
    encoded, _ = encode(take_apart(pa.table(columns), 0), settings(format, magic, "none", None, 1 << 30, None), last=True)
    return len(encoded.data) - count * _MESSAGE
