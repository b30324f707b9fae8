"""The size of records in another format, without encoding them: what a codec saves is measured on a part of the batches.

The size of segments in each format, from the lengths of the fields of their records: only what a codec saves has to be tried.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Unpack

import numpy as np

from kolumn.core import keywords
from kolumn.core.arrays import Flags, Int64s
from kolumn.core.keywords import known_keywords
from kolumn.cpu_fallback.encode import sizes
from kolumn.cpu_fallback.encode.sizes import count_payloads
from kolumn.decode.pipeline import OnDamage
from kolumn.formats import layouts
from kolumn.formats.codecs import NONE, ZSTD
from kolumn.formats.codecs.known import NAMES
from kolumn.formats.entries import Entries
from kolumn.log.aborted import Transactions
from kolumn.log.pieces import Piece, pieces
from kolumn.log.transactions import transactions_of_segment
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.segments import Segment
from kolumn.source.storage import parent
from kolumn.tools.anatomy import CountedEntries, anatomy, count, plain_messages, tagged_messages
from kolumn.writers.compress import codec_of
from kolumn.writers.conversion.losses import Losses
from kolumn.writers.conversion.regroup import Regrouped, regrouped
from kolumn.writers.conversion.retarget import Changes
from kolumn.writers.encoders import encoder
from kolumn.writers.entries import Groups
from kolumn.writers.tagged import times_of
from kolumn.writers.write import settings

WHOLE_BYTES, STRETCH_BYTES, EVERY = 1 << 20, 1 << 18, 16
"""Compressed are the first bytes of each codec, and then one stretch of so many, counted before compression."""


@dataclass
class _Sample:
    """Batches of one codec. ``seen`` and the others are bytes of their records: of all, and of compressed ones before and after."""

    seen: int = 0
    plain: int = 0
    packed: int = 0


class FormatSizes:
    """Bytes that records take in one format, by purpose (``parts``); what it cannot store is added to ``lost``.

    ``codec`` None keeps that of each batch. ``codec`` and ``estimated`` are those of `Space`.
    """

    def __init__(self, lost: Losses, codec: int | None) -> None:
        self.lost, self.asked = lost, codec
        self.parts: Counter[str] = Counter()
        self.records, self.codec, self.estimated = 0, "", 0
        self._samples: dict[int, _Sample] = {}

    def add(self, piece: Piece, changes: Changes) -> None:
        """Add the records of a piece."""
        for one in regrouped(piece, changes, self._codec(piece, changes), self.lost):
            self.records += one.given.records.rows
            if one.how.codec == NONE and layouts.holds_messages(one.how.layout):
                self.parts.update(_messages(one))
            else:
                self._entries(one)

    def _codec(self, piece: Piece, changes: Changes) -> int | None:
        """The codec for a piece's entries: one that the format supports."""
        lacks = not layouts.holds_records(changes.how.layout)
        wanted = (piece.entries.codec == ZSTD).any() if self.asked is None else self.asked == ZSTD
        chosen = codec_of("gzip") if lacks and wanted else self.asked
        self.codec = "" if chosen is None else NAMES[chosen]
        return chosen

    def _entries(self, one: Regrouped) -> None:
        groups, how = one.groups(), one.how
        entries, payload = groups.rows(one.given, how), groups.size.copy()
        packed = np.flatnonzero(entries.codec)
        if len(packed):
            payload[packed] = self._compressed(one, groups, entries, packed)
        entries.payload = encoder(how.layout).header_sizes(entries, payload, how)
        entries.size = payload + entries.payload
        tagged = times_of(one.given).tagged if layouts.has_typed_control(how.layout) else None
        self.parts.update(count(CountedEntries(entries, one.given, groups.first, groups.stop, tagged), how.layout))

    def _compressed(self, one: Regrouped, groups: Groups, entries: Entries, packed: Int64s) -> Int64s:
        """Bytes of the records of those entries that have a codec, compressed."""
        sample = self._samples.setdefault(one.how.codec, _Sample())
        plain = groups.size[packed]
        chosen, size = _chosen(plain, sample), np.zeros(len(packed), np.int64)
        if chosen.any():
            size[chosen] = _tried(one, groups, entries, packed[chosen])
        sample.seen += int(plain.sum())
        sample.plain += int(plain[chosen].sum())
        sample.packed += int(size[chosen].sum())
        size[~chosen] = np.round(plain[~chosen] * (sample.packed / max(sample.plain, 1)))
        self.estimated += int(size[~chosen].sum())
        return size


def _chosen(plain: Int64s, sample: _Sample) -> Flags:
    """Flags of the entries, with ``plain`` bytes before compression, that are compressed."""
    start = sample.seen + np.cumsum(plain) - plain
    chosen: Flags = (start < WHOLE_BYTES) | (start // STRETCH_BYTES % EVERY == 0)
    return chosen


def _tried(one: Regrouped, groups: Groups, entries: Entries, which: Int64s) -> Int64s:
    """Bytes of the records of some entries, compressed; neighbours are encoded together."""
    bounds = [0, *(np.flatnonzero(np.diff(which) != 1) + 1).tolist(), len(which)]
    file, found = encoder(one.how.layout), list[Int64s]()
    for start, stop in pairwise(bounds):
        part = slice(int(which[start]), int(which[stop - 1]) + 1)
        size = file.put(one.given, groups.part(part.start, part.stop), one.how).entries.size
        # The size of a header may depend on what is after it, by one byte.
        about = size - file.header_sizes(entries[part], groups.size[part], one.how)
        found.append(size - file.header_sizes(entries[part], np.maximum(about, 0), one.how))
    return np.concatenate(found)


def _messages(one: Regrouped) -> Counter[str]:
    """Bytes of messages that are entries of their own."""
    by_loop = np.zeros((2, sizes.WIDTH), np.int64)
    rows = one.given.records.rows
    count_payloads(one.given.records, np.zeros(1, np.int64), rows, Entries.zeros(1).array, by_loop)
    if layouts.has_typed_control(one.how.layout):
        found = tagged_messages(rows, int(times_of(one.given).tagged.sum()))
    else:
        found = plain_messages(rows, rows if one.how.magic >= 1 else 0)
    found.update(keys=int(by_loop[0, sizes.KEYS]), values=int(by_loop[0, sizes.VALUES]))
    return found


TARGETS = (("kafka", 0), ("kafka", 1), ("kafka", 2), ("enriched", 1), ("kip98-draft", 2), ("v3-compact", 3), ("kip87", 2))


@dataclass
class Space:
    """Size of the records in one format.

    Attributes
    ----------
    format : str
        "as it is" for the segments themselves.
    magic : int, optional
    bytes, records : int
    parts : Counter of str
        Bytes by purpose, `anatomy.PARTS`.
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


@known_keywords()
def space(
    source: keywords.Source,
    *,
    codec: keywords.Codec | None = None,
    source_format: keywords.Format = "kafka",
    on_damage: OnDamage | None = None,
    keys: keywords.Keys | None = None,
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
    on_damage, keys
        As in `kolumn.scan`.
    errors, check_crcs, …
        All others as in `kolumn.scan`.

    Returns
    -------
    list of Space
        The first one is the source itself. Formats without transactions store the records of committed transactions as plain records.
    """
    chosen = Options.of(format=source_format, keys=keys, **options)
    return _space(live_segments(source, chosen).one_log(of_tiers=True), chosen, None if codec is None else codec_of(codec), on_damage)


def _space(segments: list[Segment], chosen: Options, asked: int | None, on_damage: OnDamage | None) -> list[Space]:
    own = Space("as it is", None, 0, 0, Counter(), Losses())
    found = [Space(format, magic, 0, 0, Counter(), Losses()) for format, magic in TARGETS]
    sizes = [FormatSizes(one.lost, asked) for one in found]
    known: dict[str, Transactions] = {}
    for segment in segments:
        if parent(segment.path) not in known:
            known[parent(segment.path)] = transactions_of_segment(segment, chosen)
        changes = [_changes(format, magic, known[parent(segment.path)]) for format, magic in TARGETS]
        for piece in pieces(segment, chosen, on_damage):
            own.parts.update(anatomy(piece))
            own.records += piece.records.num_rows
            for size, change in zip(sizes, changes, strict=True):
                size.add(piece, change)
    for one, size in zip(found, sizes, strict=True):
        one.parts, one.records, one.codec, one.estimated = size.parts, size.records, size.codec, size.estimated
    for one in (own, *found):
        one.bytes = sum(one.parts.values())
    return [own, *found]


def _changes(format: str, magic: int, transactions: Transactions) -> Changes:
    how = settings(format, magic, "none", None, 16384, None)
    return Changes(how, None, transactions if layouts.holds_messages(how.layout) else None)
