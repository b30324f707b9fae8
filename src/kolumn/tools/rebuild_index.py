"""`rebuild_index`: index files from the log, as a broker makes them when it recovers a segment.

The offset index gets an entry for a batch after more bytes than the interval; the time index gets the largest timestamp so far with each of
those, and at the end (``LogSegment.recover``). The transaction index gets an entry for each ABORT marker that ends a transaction.
"""

import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path as LocalPath

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import Errors, Path, Progress, known_keywords
from kolumn.damage.explain import header_error
from kolumn.damage.findings import Damage, Skipped
from kolumn.decode.pipeline import OnDamage
from kolumn.decode.result import Tally
from kolumn.formats import layouts, v2
from kolumn.formats.entries import Entries
from kolumn.log.batch_table import entry_chunks
from kolumn.log.live import without_replaced
from kolumn.log.transactions import begun_at, marker_of
from kolumn.options import Options
from kolumn.source.segment_file import SegmentFile
from kolumn.source.segments import Segment, find_segments
from kolumn.source.storage import is_url, parent, with_suffix
from kolumn.writers.commit.run import Commit
from kolumn.writers.commit.staged_file import StagedFile
from kolumn.writers.segments import IndexEntries

_SUFFIXES = (".index", ".timeindex", ".txnindex")


@dataclass(frozen=True)
class Rebuilt:
    """Result of `rebuild_index`.

    Attributes
    ----------
    files : tuple of str
        The index files that were written, in the order of their segments.
    removed : tuple of str
        Transaction indexes of segments that have no aborted transaction.
    offset_entries, time_entries, transaction_entries : int
        Entries written.
    skipped : Skipped
        Damage of the logs, of which the indexes have nothing.
    """

    files: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    offset_entries: int = 0
    time_entries: int = 0
    transaction_entries: int = 0
    skipped: Skipped = field(default_factory=Skipped)

    @property
    def damage(self) -> list[Damage]:
        """The damaged stretches that were left out."""
        return self.skipped.damage


@known_keywords()
def rebuild_index(
    path: Path,
    *,
    index_interval_bytes: int = 4096,
    errors: Errors = "raise",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> Rebuilt:
    """Write the index files of segments anew, in their folders: ``.index``, ``.timeindex`` and ``.txnindex``.

    Existing ones are replaced, all of them or none. The log is read, and never changed. No broker may be running on it.

    Parameters
    ----------
    path : str or PathLike
        A `topic-partition` directory or a log directory of many, on this machine.
    index_interval_bytes : int
        Bytes between two entries; Kafka's default is 4096.
    errors : str
        "raise" at the first damage, before anything is written, or "skip" it: intact batches after it get entries too.
    on_damage : callable, optional
        Called with a `kolumn.Damage` for each damaged stretch that is left out.
    on_progress : callable, optional
        As in `kolumn.scan`.

    Returns
    -------
    Rebuilt

    Raises
    ------
    ArgumentError
        The path is a URL or has no segments, or the interval is less than 1.
    CorruptBatchError
        Damage, with ``errors="raise"``.
    KolumnError
        A file cannot be written.
    """
    name = str(path)
    if index_interval_bytes < 1:
        raise ArgumentError(f"index_interval_bytes={index_interval_bytes}: expected at least 1")
    if is_url(name):
        raise ArgumentError(f"{name}: index files are written beside a log on this machine, not at a URL")
    if not LocalPath(name).is_dir():
        raise ArgumentError(f"{name}: not a directory: name a topic-partition directory, or a log directory")
    root = LocalPath(name).absolute()
    skipped = Skipped()

    def damaged(piece: Damage) -> None:
        skipped(piece)
        if on_damage is not None:
            on_damage(piece)

    segments = [one for one in without_replaced(find_segments(str(root))) if one.base_offset is not None and not one.is_swap]
    made = [_Indexes(one) for one in segments]
    folders = {parent(one.path): [other for other in made if parent(other.segment.path) == parent(one.path)] for one in segments}
    for own in folders.values():
        _fill(own, Options.of(errors=errors, backend="cpu", threads=1, on_progress=on_progress), index_interval_bytes, damaged)
    return _written(root, made, skipped)


def index_contents(segments: list[Segment], interval: int) -> list[tuple[Segment, str, bytes]]:
    """The index files of the segments of one partition: segment, suffix and bytes. A transaction index without entries has no file.

    Raises `CorruptBatchError` if an entry is damaged.
    """
    made = [_Indexes(one) for one in segments]
    if made:
        _fill(made, Options.of(errors="raise", backend="cpu", threads=1), interval, lambda _: None)
    return [(one.segment, suffix, data) for one in made for suffix, data in one.contents() if data or suffix != ".txnindex"]


class _Indexes:
    """The index files of a segment, in memory: an entry takes 8, 12 or 34 bytes."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.offsets, self.times, self.transactions = io.BytesIO(), io.BytesIO(), io.BytesIO()
        self.entries = IndexEntries(segment.base_offset or 0, self.offsets, self.times)

    def note(self, entries: Entries, interval: int) -> None:
        """Take in intact entries of the segment, at their positions."""
        if len(entries):
            # Damaged bytes before an entry are part of the file.
            self.entries.note(entries.position, entries, interval)

    def contents(self) -> list[tuple[str, bytes]]:
        """Suffixes and bytes of the files."""
        return list(zip(_SUFFIXES, (one.getvalue() for one in (self.offsets, self.times, self.transactions)), strict=True))


def _fill(own: list[_Indexes], options: Options, interval: int, on_damage: OnDamage) -> None:
    """Read the segments of a partition in the order of their offsets."""
    begun = begun_at(own[0].segment)
    for one in own:
        if layouts.format_of(one.segment.format).timed_index:
            raise ArgumentError(f"{one.segment.path}: the index of this draft is written by kolumn.write alone")
        found = Tally()
        with SegmentFile(one.segment) as file:
            for chunk in entry_chunks(file, options, found):
                wrong = chunk.entries[~chunk.entries.is_intact]
                if len(wrong) and options.errors == "raise":
                    start = wrong[0].position - chunk.origin
                    raise header_error(file.path, wrong[0], chunk.source[start : start + wrong[0].size])
                good = chunk.entries.intact()
                one.note(good, interval)
                _note_transactions(file, good, begun, one.transactions)
        one.entries.note_time()
        for piece in found.damage:
            on_damage(piece)


def _note_transactions(file: SegmentFile, entries: Entries, begun: dict[int, int], out: io.BytesIO) -> None:
    for row in entries[entries.transactional == 1]:
        if not row.control:
            begun.setdefault(row.producer_id, row.base_offset)
            continue
        kind = marker_of(file, row)
        first = begun.pop(row.producer_id, None) if kind in (v2.ABORT, v2.COMMIT) else None
        if kind == v2.ABORT and first is not None:
            stable = min(begun.values(), default=row.last_offset + 1)
            out.write(struct.pack(">hqqqq", 0, row.producer_id, first, row.last_offset, stable))


def _written(root: LocalPath, made: Iterable[_Indexes], skipped: Skipped) -> Rebuilt:
    files: list[str] = []
    removed: list[str] = []
    sizes = dict.fromkeys(_SUFFIXES, 0)
    with Commit(root, replace=True) as commit:
        for one in made:
            for suffix, data in one.contents():
                final = LocalPath(with_suffix(one.segment.path, suffix))
                if suffix == ".txnindex" and not data:
                    # A broker makes the file with its first entry.
                    if final.exists():
                        commit.remove(final)
                        removed.append(str(final))
                    continue
                with StagedFile(commit.place(final)) as file:
                    file.write(data)
                files.append(str(final))
                sizes[suffix] += len(data)
    counts = sizes[".index"] // 8, sizes[".timeindex"] // 12, sizes[".txnindex"] // 34
    return Rebuilt(tuple(files), tuple(removed), *counts, skipped)
