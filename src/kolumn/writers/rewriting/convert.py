"""`convert`: segments rewritten in another format."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Self, TypeVar, Unpack

import numpy as np

from kolumn.copies.copies import one_directory
from kolumn.copies.transactions import transactions_of_log
from kolumn.core import keywords
from kolumn.core.arrays import Bytes, Flags
from kolumn.core.errors import ArgumentError, CorruptBatchError
from kolumn.core.keywords import known_keywords
from kolumn.core.results import Result, counted
from kolumn.damage.findings import Damage, Skipped, Tally
from kolumn.decode.host.aborted import Transactions
from kolumn.formats import layouts, redpanda, table, v3_compact
from kolumn.formats.entries import Entries
from kolumn.formats.layout import LEADER_EPOCHS, TRANSACTIONS, Format
from kolumn.log.pieces import Piece, intact, pieces_of, tell
from kolumn.options import Options
from kolumn.readers.plan import live_segments
from kolumn.source.names import file_name
from kolumn.source.segments import Segment
from kolumn.source.storage import base_name, beside, is_url, parent, within
from kolumn.writers.entries import Encoded, EntrySettings, Splice, codec_of
from kolumn.writers.names import term_in
from kolumn.writers.outgoing import Place, name_of, outgoing, parent_of, refuse_data_folder
from kolumn.writers.regroup import LOST_ABORTED, LOST_OPEN, Changes, Losses, down_converted, regroup
from kolumn.writers.rewriting.swapped import ConsumerOffsets, as_format_2, as_redpanda, offsets_of_logs
from kolumn.writers.write import SegmentFiles, settings

_COMPACT = tuple(layout.number for layout in v3_compact.FORMAT.own_layouts)


@dataclass(repr=False)
class Rewriting(Result):
    """What conversions and compactions count; their docstrings say more."""

    segments: list[str] = field(default_factory=list)
    records: int = 0
    skipped: Skipped = field(default_factory=Skipped)

    @property
    def damage(self) -> list[CorruptBatchError]:
        """The error of each damaged stretch that was left out."""
        return self.skipped.errors

    def add(self, other: Self) -> None:
        for name, value in vars(self).items():
            more = getattr(other, name)
            if isinstance(value, Skipped):
                value.add(more)
            elif isinstance(value, Losses):
                value.update(more)
            else:
                setattr(self, name, value + more)


_Rewriting = TypeVar("_Rewriting", bound=Rewriting)


@dataclass(repr=False)
class Conversion(Rewriting):
    """Result of a conversion.

    Attributes
    ----------
    segments : list of str
        The segments that it wrote.
    batches, records : int
        Batches and records in those segments.
    copied : int
        Batches that were copied byte for byte.
    lost : Losses
        How often each loss happened, by the names that `losses` lists.
    skipped : Skipped
        The damaged stretches that ``errors="skip"`` left out, as `kolumn.verify` finds them, their bytes and records.
    damage : list of CorruptBatchError
        The error of each of these stretches.
    """

    batches: int = 0
    copied: int = 0
    lost: Losses = field(default_factory=Losses)

    def __str__(self) -> str:
        batches, segments = counted(self.batches, "batch"), counted(len(self.segments), "segment")
        lost = "".join(f"; {what}: {count} lost" for what, count in self.lost.items())
        return self.skipped.after(f"{counted(self.records, 'record')} in {batches}, {segments}{lost}")


@known_keywords()
def losses(source_format: keywords.Format, format: keywords.Format = "kafka", magic: int | None = None) -> list[str]:
    """What a conversion may lose, by name; what it did lose is counted in `Conversion.lost`.

    Parameters
    ----------
    source_format, format, magic
        As in `convert`.
    """
    how = settings(format, magic, "none", None, 1, None)
    if source_format not in layouts.FORMAT_NAMES:
        raise ArgumentError(f"source_format={source_format!r}: expected one of {', '.join(layouts.FORMAT_NAMES)}")
    source = layouts.format_of(source_format)
    to = layouts.FORMATS[how.format]
    shipped = {what for number, layout in source.magics.items() for what in layout.holds[number]}
    drafts = {what for layout in source.own_layouts for own in layout.holds.values() for what in own}
    lost = (shipped | drafts) - Changes(how, None, None).held
    if source.indexed and not to.indexed:
        # In a segment file alone, whose name has one at most.
        lost |= {LEADER_EPOCHS} & shipped
    return sorted(lost | {LOST_ABORTED, LOST_OPEN} if TRANSACTIONS in lost else lost)


@known_keywords()
def convert(
    source: keywords.Source,
    target: keywords.Path,
    *,
    format: keywords.Format = "kafka",
    magic: int | None = None,
    codec: keywords.Codec | None = None,
    level: int | None = None,
    source_format: keywords.Format = "kafka",
    timestamp: int | None = None,
    drop_transactions: bool = False,
    batch_bytes: int = 16384,
    index_interval_bytes: int = 4096,
    **options: Unpack[keywords.WholeOptions],
) -> Conversion:
    """Rewrite segments in another format: one for each, or more where one has no room; offsets, keys, values and headers as they were.

    Batches stay batches, and keep base and last offset if the target's format has them; single messages are combined into batches
    of ``batch_bytes``. Batches that have the target's format and codec are copied byte for byte.

    From Redpanda, batches of its own are left out, and raw offsets become consumer offsets, if the log begins at offset 0 or a manifest
    tells how many are left out before it; otherwise offsets stay raw. The term in a segment's name becomes the leader epoch. To Redpanda,
    offsets stay. Batches of format 2 get another header, but keep their records and checksum either way. Transactions get no fences, of
    which Redpanda has one before each: their records and markers are what they were.

    Parameters
    ----------
    source
        As in `kolumn.scan`.
    target : str or PathLike
        A segment file (``*.log``) if the source is one segment; else a folder, in which each segment is written to
        ``<topic>-<partition>/<name>.log``; from Redpanda with the base offset of consumers as its name, and to Redpanda to
        ``<topic>/<partition>_0/<base offset>-<term>-v1.log``, one for each leader epoch and without indexes. What is more than a segment
        can hold, 2 GiB or 2^31 offsets, goes on in further segments, named by their base offsets. No file is overwritten. No segment
        appears before all are complete; at a URL they then appear one after the other.
    format, magic
        Of the target, as in `kolumn.write`: "kafka" with 0, 1 or 2, "redpanda", or a draft.
    codec, level
        Of the target's batches; by default each keeps its own.
    source_format : str
        Format of the source, as the option ``format`` of `kolumn.scan`.
    timestamp : int, optional
        A broker's time in ms, which records without a timestamp get as LogAppendTime.
    drop_transactions : bool
        Convert records of committed transactions to plain records, and leave out aborted and open transactions and all markers.
        Without it, transactional batches are an error if the target's format has no transactions.
    batch_bytes, index_interval_bytes : int
        As in `kolumn.write`; ``batch_bytes`` is for batches that are made of single messages.
    errors, check_crcs, …
        All others as in `kolumn.scan`, with the same errors.

    Raises
    ------
    ArgumentError
        An option is invalid, the target exists, or the target's format has no transactions and the source has transactional batches.
    KolumnError
        The target cannot be written. Nothing is left there then, as after an `ArgumentError` or damage.
    """
    job = ConversionJob.of(
        Options.of(format=source_format, **options), format=format, magic=magic, codec=codec, level=level, timestamp=timestamp,
        drop_transactions=drop_transactions, batch_bytes=batch_bytes, index_interval_bytes=index_interval_bytes,
    )  # fmt: skip
    names = list(targets(job.chosen(live_segments(source, job.options).one_log()), target, format))
    done, transactions, offsets = Conversion(), dict[str, Transactions](), job.offsets(segment for segment, _ in names)
    with outgoing(root_of(target), job.claimed(names, target)) as place:
        for segment, name in names:
            folder = parent(segment.path)
            if drop_transactions and folder not in transactions:
                transactions[folder] = transactions_of_log(segment, (one for one, _ in names), job.options)
            of_folder, own = transactions.get(folder), offsets.get(segment)
            write = partial(job.segment, segment, transactions=of_folder, rolls=can_roll(target), offsets=own)
            done.add(written(place, name, write))
    return done


def written(place: Place, name: str, write: Callable[[Path], _Rewriting]) -> _Rewriting:
    """What ``write`` makes of one segment, with the final names of its files."""
    with place(name) as path:
        made = write(path)
    made.segments = [beside(name, file) for file in made.segments]
    return made


def can_roll(target: keywords.Path) -> bool:
    """Whether a segment may become several in a target: in a folder, not in a segment file."""
    return not name_of(target).endswith(".log")


def root_of(target: keywords.Path) -> str:
    """The folder that a run writes below: the target, or the folder of a segment file."""
    name = name_of(target)
    return parent_of(name) if name.endswith(".log") else name


def targets(segments: list[Segment], target: keywords.Path, format: str | None = None) -> Iterator[tuple[Segment, str]]:
    """The name of each converted segment, in a folder as brokers of the ``format`` have it, by default that of the segment. Raises
    `ArgumentError` if two segments would get the same name, several would go into one file, one in memory into a folder, or if the target
    is the folder of another topic-partition."""
    target = name_of(target)
    if target.endswith(".log"):
        if len(segments) != 1:
            raise ArgumentError(f"{target}: the source has {len(segments)} segments; name a folder")
        yield segments[0], target
        return
    seen: dict[str, str] = {}
    for segment in segments:
        if segment.memory is not None:
            raise ArgumentError(f"{target}: a segment in memory has no name for its file in a folder: name a file that ends with .log")
        folder = within(target, _folder_of(segment, format or segment.format)) if segment.topic is not None else target
        name = within(folder, _file_of(segment))
        if name in seen:
            raise ArgumentError(f"{segment.path} and {seen[name]} would both become {name}")
        seen[name] = segment.path
    if not is_url(target) and any(parent(name) != target for name in seen):
        refuse_data_folder(target, directly=True)
    yield from zip(segments, seen, strict=True)


def _folder_of(segment: Segment, format: str) -> str:
    if layouts.format_of(format).indexed:
        return f"{segment.topic}-{segment.partition}"
    own = base_name(parent(segment.path))
    return f"{segment.topic}/{own if re.fullmatch(f'{segment.partition}_[0-9]+', own) else f'{segment.partition}_0'}"


def _file_of(segment: Segment) -> str:
    """The name of a file in a broker's folder, in which a segment of a tier has no id."""
    if segment.copy_id is not None and segment.raft is None and segment.base_offset is not None:
        return file_name(segment.base_offset)
    return f"{base_name(segment.path).removesuffix('.swap').removesuffix('.log')}.log"


@dataclass(frozen=True)
class ConversionJob:
    how: EntrySettings
    codec: int | None
    timestamp: int | None
    drop_transactions: bool
    options: Options
    interval: int

    @classmethod
    def of(
        cls, options: Options, *, format: str, magic: int | None, codec: str | None, level: int | None, timestamp: int | None,
        drop_transactions: bool, batch_bytes: int, index_interval_bytes: int,
    ) -> "ConversionJob":  # fmt: skip
        how = settings(format, magic, codec or "none", level, batch_bytes, None)
        return cls(how, None if codec is None else codec_of(codec), timestamp, drop_transactions, options, index_interval_bytes)

    def chosen(self, segments: list[Segment]) -> list[Segment]:
        """The segments. To drop transactions, which may span segments, each partition has to be in one directory."""
        return one_directory(segments, "convert") if self.drop_transactions else segments

    def renames(self, segment: Segment) -> bool:
        """Whether what a segment becomes in a folder gets a name of another kind."""
        return layouts.format_of(segment.format).indexed != self._target.indexed

    def claimed(self, names: list[tuple[Segment, str]], target: keywords.Path) -> list[str]:
        """What must not exist, of a result of `targets`: files, or folders in which they get other names."""
        renamed = can_roll(target)
        return list(dict.fromkeys(parent(name) if renamed and self.renames(one) else name for one, name in names))

    @property
    def _target(self) -> Format:
        return layouts.FORMATS[self.how.format]

    def offsets(self, segments: Iterable[Segment]) -> dict[Segment, ConsumerOffsets]:
        """What the offsets of each segment become, if they do not stay."""
        return offsets_of_logs(filter(self.renames, segments), self.options.start_delta) if self._target.indexed else {}

    def segment(
        self, segment: Segment, place: Path, transactions: Transactions | None, rolls: bool, offsets: ConsumerOffsets | None = None
    ) -> Conversion:
        """Convert one segment, with ``rolls`` into several if one has no room; ``transactions`` are its partition's, if they are dropped,
        and ``offsets`` what its offsets become, if they do not stay. The caller names the files, unless they are renamed in a folder;
        `Conversion.segments` has their names in the folder."""
        done, tally = Conversion(), Tally()
        changes = Changes(self.how, self.timestamp, transactions)
        to = place.parent if rolls and self.renames(segment) else place
        begins, term = segment.base_offset, term_in(to.stem)
        if offsets is not None:
            changes = replace(changes, transactions=transactions and offsets.of_transactions(transactions))
            begins = None if begins is None else offsets.of_one(begins)
        with SegmentFiles(to, 1 << 30, self.interval, self.how.format, rolls, begins) as files:
            for source, origin, entries in intact(segment, self.options, tally):
                if offsets is not None:
                    source, origin, entries = as_format_2(source, origin, entries, segment, offsets, done.lost)
                for encoded in self._converted(source, origin, entries, segment, changes, done, tally.damage):
                    files.append(encoded)
                    if not (self._target.indexed or rolls):
                        epoch = encoded.entries.leader_epoch
                        unnamed = (epoch >= 0) & (epoch != (-1 if term is None else term))
                        done.lost.note(LEADER_EPOCHS, int(encoded.entries.count[unnamed].sum()))
                    done.batches += len(encoded.entries)
                    done.records += int(encoded.entries.count.sum())
            tell(tally, done.skipped)
        paths = files.paths
        if not paths and begins is not None and (offsets is None or offsets.is_last):
            # It says where the log goes on. Others have the name of the segment that follows.
            with SegmentFiles(to / f"{files.name(begins, 0)}.log", 1 << 30, self.interval, self.how.format) as empty:
                paths = empty.paths
        done.segments = [path.name for path in paths]
        return done

    def _converted(
        self, source: Bytes, origin: int, entries: Entries, segment: Segment, changes: Changes, done: Conversion, damage: list[Damage]
    ) -> Iterator[Encoded]:
        """Convert entries in memory: what can't be written from its bytes becomes columns first."""
        first = yield from down_converted(source, origin, entries, changes, self.codec, self.options, done.lost)
        for piece in pieces_of(source, origin, entries[first:], segment, self.options, damage=damage):
            wrong = np.flatnonzero(piece.entries.transactional)
            if len(wrong) and not self.drop_transactions and layouts.holds_messages(self.how.layout):
                row = piece.entries[wrong[0]]
                raise ArgumentError(
                    f"{segment.path}: position {row.position}, base offset {row.base_offset}: the batch is transactional, and "
                    f"format {layouts.FORMAT_NAMES[self.how.format]} with magic {self.how.magic} has no transactions. With "
                    "drop_transactions=True the records of committed ones become plain records and the others are left out"
                )
            # Neighbouring entries that are treated alike form one group.
            stay = self._unchanged(piece, changes)
            for start, stop in pairwise([0, *(np.flatnonzero(np.diff(stay)) + 1).tolist(), len(stay)]):
                some = part(piece, start, stop)
                if stay[start]:
                    done.copied += stop - start
                    out = Splice(some.source, some.origin, with_known_offsets(some))
                    out.keep(slice(None))
                    kept = out.encoded()
                    is_other = not self._target.indexed and some.entries.layout[0] != self.how.layout
                    yield as_redpanda(kept, done.lost) if is_other else kept
                else:
                    yield from regroup(some, changes, self.codec, done.lost)

    def _unchanged(self, piece: Piece, changes: Changes) -> Flags:
        entries = piece.entries
        layout, target = entries.layout, self.how.layout
        same = layouts.among(layout, _COMPACT) if target in _COMPACT else layout == target
        if not self._target.indexed:
            same |= layouts.among(layout, layouts.STREAMED_LAYOUTS)
        same &= (entries.magic == self.how.magic) & ~piece.partial
        if self.codec is not None:
            # Without records there is nothing to compress.
            same &= (entries.codec == self.codec) | (piece.counts == 0)
        if changes.transactions is not None:
            same &= entries.transactional == 0
        if not self._target.indexed:
            same |= entries.batch_type > redpanda.DATA
        return same


def part(piece: Piece, start: int, stop: int) -> Piece:
    if stop - start == len(piece.entries):
        return piece
    counts = piece.counts[start:stop]
    records = piece.records.slice(int(piece.counts[:start].sum()), int(counts.sum()))
    return replace(piece, entries=piece.entries[start:stop], counts=counts, records=records, partial=piece.partial[start:stop])


def with_known_offsets(piece: Piece) -> Entries:
    """The entries with the counts of their records, and offsets that headers lack filled in from the records: indexes need them."""
    entries = piece.entries.copy()
    entries.count = piece.counts
    some = np.flatnonzero(piece.counts)
    if len(some):
        offset, first = piece.records["offset"].to_numpy(), piece.first[some]
        for column, row in ((table.BASE_OFFSET, first), (table.LAST_OFFSET, first + piece.counts[some] - 1)):
            unknown = entries.array[some, column] == table.UNKNOWN
            entries.array[some[unknown], column] = offset[row[unknown]]
    return entries
