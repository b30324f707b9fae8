"""Finds segments: files, directories, globs, URLs and lists become `Segment`s. This module handles names, not formats.

    <log directory>/<topic>-<partition>/<20-digit base offset>.log

`kolumn.source.redpanda` has the names of Redpanda's segments, of which offsets here are raw ones.
``.deleted`` and ``.cleaned`` files are not live data. A ``.swap`` file is the finished replacement of segments that a crash left in place
(`kolumn.log.live` finds out which). Directories named ``…-delete``, ``…-stray`` and ``…-future`` are left out of a log directory.
`docs/explanation/formats.md` has Kafka's rules, by version. A source may also be in memory: a buffer, or a file object that is read to its
end.
"""

import os
import re
import reprlib
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from kolumn.core.arrays import Int64s
from kolumn.core.errors import ArgumentError, CorruptBatchError, KolumnError, MissingPathError
from kolumn.source import names as naming
from kolumn.source import redpanda, redpanda_folders, storage
from kolumn.source.identity import names_of_files, of_growing
from kolumn.source.names import CLEANED, DELETED, INDEXES, LOG, MANIFEST, PARTITION, SWAP, base_and_copy
from kolumn.source.redpanda import Raft
from kolumn.source.side_files import TIER_CHECKPOINT
from kolumn.source.storage import FolderEntry, Identity
from kolumn.source.tier_file import Access
from kolumn.source.tier_manifest import AivenManifest, manifest_of, objects_of, read_manifests

HIGHEST = 2**63 - 1
_BASE_OFFSET = re.compile(r"[0-9]{20}")
_LOGS = (LOG, SWAP, f"{LOG}{CLEANED}", f"{LOG}{DELETED}")


class Order:
    """The order of the segments of one log, by their base offsets; ``orphans`` are names of index files without a log."""

    def __init__(self, bases: set[int], orphans: Iterable[str]) -> None:
        ordered = sorted(bases)
        self._after = dict(pairwise(ordered))
        self._before = {following: base for base, following in self._after.items()}
        self._lost: dict[int, list[str]] = {}
        for name in sorted(orphans):
            base = int(storage.base_name(name).partition(".")[0])
            if ordered:
                self._lost.setdefault(ordered[max(0, bisect_right(ordered, base) - 1)], []).append(name)

    def of(self, base: int) -> dict[str, Any]:
        """The attributes of a segment with this base offset that depend on its neighbours."""
        return {"following": self._after.get(base), "preceding": self._before.get(base), "orphans": tuple(self._lost.get(base, ()))}


class NamedNeighbours:
    """What the names of the files in a folder of this machine tell about the order of its segments; ``live`` are those that count."""

    def __init__(self, names: list[str]) -> None:
        lowest = unfinished_from(names)
        bases = {name: base_and_copy(name)[0] for name in names if name.endswith((LOG, SWAP))}
        if None in bases.values():
            for name in [name for name, base in bases.items() if base is None]:
                own = redpanda.named(storage.base_name(name))
                bases[name] = None if own is None else own.base
        swaps = ((name, base) for name, base in bases.items() if name.endswith(SWAP) and base is not None)
        unfinished = {name for name, base in swaps if lowest is not None and base >= lowest}
        self.live = {storage.base_name(name): base for name, base in bases.items() if name not in unfinished}
        # An index without a log counts only if there is something in it.
        lost = [name for name in alone(names) if (entry := storage.look(name)) is not None and entry.size]
        self.order = Order({base for base in self.live.values() if base is not None}, lost)


def alone(names: Iterable[str]) -> list[str]:
    """Names of index files that have no log next to them."""
    logs, indexes = set[str](), list[tuple[str, str]]()
    for name in names:
        stem = name.rpartition("/")[2].partition(".")[0]
        if name.endswith(_LOGS):
            logs.add(stem)
        elif name.endswith(INDEXES) and _BASE_OFFSET.fullmatch(stem):
            indexes.append((stem, name))
    return [name for stem, name in indexes if stem not in logs]


def unfinished_from(names: Iterable[str]) -> int | None:
    """The lowest offset of a ``.cleaned`` file, of a log or of any other file; None without any."""
    offsets = [naming.offset_in(name) for name in names if name.endswith(CLEANED)]
    return min([offset for offset in offsets if offset is not None], default=None)


NAME = "<memory>"  # name of a segment in memory in errors and in the column ``segment``
_LONGEST_PATH = 4096
"""Fewer bytes without a zero among them are more likely to be a path: the offset at the beginning of a segment has zeros."""


class InMemory(NamedTuple):
    name: str
    memory: pa.Buffer


def in_memory(source: Any) -> InMemory | None:
    """The bytes of a source that is in memory; None for a path, a list of paths, and what else is no bytes. Buffers of bytes are not
    copied, and must not change while the data made from them are in use. A file object is read from its present position to its end. An
    ArgumentError if the bytes are not contiguous, the file is open for text or closed, or bytes look like a path."""
    if isinstance(source, str | os.PathLike):
        return None
    if isinstance(source, InMemory):
        return source
    if hasattr(source, "read") and not _is_buffer(source):
        return _of_file(source)
    if not _is_buffer(source):
        return None
    view = memoryview(source)
    if not view.c_contiguous:
        raise ArgumentError(f"source: expected contiguous bytes, found {view.nbytes} bytes with strides {view.strides}")
    if isinstance(source, bytes | bytearray) and 0 < len(source) < _LONGEST_PATH and 0 not in source:
        shown = f"{reprlib.repr(source)}: bytes are read as a segment, and these look like a path"
        raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {shown}")
    return InMemory(NAME, source if isinstance(source, pa.Buffer) else pa.py_buffer(view.cast("B") if view.nbytes else b""))


def named_parts(source: Any) -> list[Any]:
    """The paths in a source; none if it is in memory."""
    if isinstance(source, str | os.PathLike):
        return [source]
    return [] if source is None or isinstance(source, InMemory) or hasattr(source, "read") or _is_buffer(source) else list(source)


def _is_buffer(source: object) -> bool:
    if isinstance(source, pa.Buffer):
        return True
    try:
        with memoryview(source) as view:  # type: ignore[arg-type]
            # Arrays of strings are lists of paths.
            return view.format in ("B", "b", "c")
    except (TypeError, ValueError, BufferError):
        return False


def _of_file(file: Any) -> InMemory:
    try:
        data = file.read_buffer() if hasattr(file, "read_buffer") else file.read()
    except (ValueError, OSError) as error:
        raise ArgumentError(f"source: {reprlib.repr(file)} cannot be read: {error}") from error
    if not _is_buffer(data):
        shown = f"{reprlib.repr(file)}, which returns {type(data).__name__} and not bytes: open a file with mode 'rb'"
        raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {shown}")
    name = getattr(file, "name", None)
    return InMemory(name if isinstance(name, str) else NAME, data if isinstance(data, pa.Buffer) else pa.py_buffer(data))


SIDE_FILES = (*INDEXES, ".txnindex", ".snapshot")  # suffixes of the files that are next to a log and share its name
SIDES = (*SIDE_FILES, TIER_CHECKPOINT)

Listed = list[FolderEntry]
_OF_FOLDER = ("following", "preceding", "orphans", "beside", "listed")


@dataclass(frozen=True)
class Segment:
    path: str
    topic: str | None  # this and the partition are from the directory's name, None if it is not ``topic-partition``
    partition: int | None
    base_offset: int | None  # from the file's name, if it has Kafka's 20 digits
    size: int  # bytes, when it was found: a segment is never read past that
    format: str = "kafka"  # that the caller named; carried along, not used here
    # Base offsets of its neighbours in the directory: it is rolled if another one follows; else it is active, or names have no offsets.
    following: int | None = field(default=None, compare=False)
    preceding: int | None = field(default=None, compare=False)
    # Index files without a log between this segment and the next, and before the first one.
    orphans: tuple[str, ...] = field(default=(), compare=False)
    twin: str | None = field(default=None, compare=False)  # another segment of its directory that has some of the same offsets
    identity: Identity | None = field(default=None, compare=False)  # when it was found: no other file is read
    memory: Any = field(default=None, compare=False, repr=False)  # pa.Buffer of a segment in memory; its path is a name for messages
    copy_id: str | None = None  # of a segment in a tier, which may have several copies of the same offsets in one directory
    # Offsets of a tier's copy that belong to the log (start_offset <= offset < end_offset); None for no bound.
    start_offset: int | None = field(default=None, compare=False)
    end_offset: int | None = field(default=None, compare=False)
    # Of a segment in Aiven's tier, where ``path`` is the manifest; positions are those in the segment.
    manifest: AivenManifest | None = field(default=None, compare=False, repr=False)
    access: Access = field(default=Access(), compare=False)  # how a segment of a tier is opened
    # At a URL, suffixes of the files with its name that were listed with it, so what was not there needs no request; and how many files and
    # folders were listed. None and 0 if its folder was not.
    beside: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    listed: int = field(default=0, compare=False, repr=False)
    raft: Raft | None = field(default=None, compare=False)  # of Redpanda's segments: base offset and neighbours are raw offsets
    fault: CorruptBatchError | None = field(default=None, compare=False)  # why nothing of it can be read: its manifest

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition; "" and -1 where it has none."""
        return self.topic or "", -1 if self.partition is None else self.partition

    @property
    def term(self) -> int | None:
        """The leader epoch of its entries, if its name tells it instead of their headers."""
        return None if self.raft is None else self.raft.term

    @property
    def lowest(self) -> int | None:
        """The lowest offset that is read from it, as far as names tell."""
        return self.base_offset if self.start_offset is None else self.start_offset

    @property
    def is_bounded(self) -> bool:
        """Whether only some of its offsets are read."""
        return (self.start_offset, self.end_offset) != (None, None)

    @property
    def state(self) -> str:
        """One of "rolled", "active", and "unknown" if its name contains no base offset."""
        return "unknown" if self.base_offset is None else "active" if self.following is None else "rolled"

    def has_beside(self, suffix: str) -> bool:
        return self.beside is None or suffix in self.beside

    @property
    def is_swap(self) -> bool:
        return self.path.endswith(SWAP)


@dataclass(frozen=True)
class Range:
    """Bytes [start, end) of a segment, cut at entries. Tasks get ranges, not the bytes themselves. ``floor`` is the last offset before
    ``start``, or -1: after damage it helps to recognise entries. ``transactions`` are those of the log, if needed. Of a log in several
    copies, only records with start_offset <= offset < end_offset are read (None for no bound; if equal, only damage is reported), none with
    an offset in the sorted array ``without``, and ``fault`` is an error that replaces the whole range. With ``offsets`` the bounds are raw
    offsets, which have those of the read in them: what `kolumn.copies.raw_offsets` tells, or the delta before ``start``."""

    segment: Segment
    start: int
    end: int
    floor: int = -1
    transactions: Any = field(default=None, compare=False)
    start_offset: int | None = None
    end_offset: int | None = None
    fault: Any = field(default=None, compare=False)
    without: Any = field(default=None, compare=False, repr=False)
    offsets: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.fault is None and self.segment.fault is not None:
            object.__setattr__(self, "fault", self.segment.fault)
        if not self.is_bounded and self.segment.is_bounded:
            object.__setattr__(self, "start_offset", self.segment.start_offset)
            object.__setattr__(self, "end_offset", self.segment.end_offset)

    @property
    def is_bounded(self) -> bool:
        return self.start_offset is not None or self.end_offset is not None

    @property
    def is_lost(self) -> bool:
        """Whether none of its offsets is read."""
        return self.start_offset is not None and self.start_offset == self.end_offset

    def counts(self, base: Int64s, last: Int64s) -> Any:
        """Whether entries with these base and last offsets can have records that are read; takes numbers and arrays."""
        low, high = (-1 if self.start_offset is None else self.start_offset), (HIGHEST if self.end_offset is None else self.end_offset)
        return (last >= low) & (base < high)

    @classmethod
    def whole(cls, segment: Segment) -> "Range":
        if segment.fault is not None or segment.start_offset is not None or segment.end_offset is not None:
            return cls(segment, 0, segment.size, (segment.base_offset or 0) - 1)
        # Without ``__init__``, which costs more than the rest of the plan of a small segment; what is not set has its default.
        whole = object.__new__(cls)
        whole.__dict__.update(segment=segment, start=0, end=segment.size, floor=(segment.base_offset or 0) - 1)
        return whole


def find_segments(
    source: object, topic: str | None = None, partition: int | None = None, faults: bool = False, listed: Listed | None = None
) -> list[Segment]:
    """Segments of ``source``, in the order of topic, partition and base offset within each of its parts.

    A source is a segment file of any name, a topic-partition directory, a log directory of many, or a glob of such; on this machine or at a
    URL, which may be a bucket's prefix; or several of those. What `in_memory` takes is one segment without topic, partition and base
    offset. ``topic`` and ``partition`` replace those in directory names. ``listed`` takes every file and folder that was listed, also those
    that are no segments. A segment of a tier whose manifest cannot be used is returned with its ``fault`` if ``faults``, else that is
    raised; an ArgumentError if the source does not exist, or contains no segment.
    """
    held = in_memory(source)
    if held is None:
        segments, known = [], _Known()
        for name in naming.names_in(source):
            segments += _find(name, known, listed)
        segments = _unique(segments) if len(segments) > 1 else segments
    else:
        segments = [Segment(held.name, None, None, None, held.memory.size, memory=held.memory)]
    raw = False
    for segment in segments:
        raw = raw or segment.raft is not None
        if segment.fault is not None and not faults:
            raise segment.fault
    segments = _in_order(segments) if raw else segments
    if topic is not None:
        segments = [replace(segment, topic=topic) for segment in segments]
    return segments if partition is None else [replace(segment, partition=partition) for segment in segments]


def _in_order(segments: list[Segment]) -> list[Segment]:
    """Segments, of which Redpanda's are in the order of offsets where several of a folder are: their names are in another one."""
    folders: dict[str, list[int]] = {}
    for i, segment in enumerate(segments):
        if segment.raft is not None:
            folders.setdefault(storage.parent(segment.path), []).append(i)
    ordered = list(segments)
    for places in folders.values():
        for i, segment in zip(places, _by_terms([segments[i] for i in places]), strict=False):
            ordered[i] = segment
    return ordered


def _as_they_are(segments: list[Segment]) -> list[Segment]:
    """Segments, of which those that may be being written have size, identity and tail taken at the same moment."""
    for i, segment in enumerate(segments):
        if segment.following is not None or (segment.identity is not None and segment.identity.tail is not None):
            continue
        if segment.manifest is not None or segment.fault is not None or storage.is_url(segment.path):
            continue
        if (now := of_growing(segment.path)) is not None:
            segments[i] = _changed(segment, size=now.size, identity=now)
    return segments


_Known = dict[str, NamedNeighbours | dict[str, Segment]]
"""What is known of the directories of segments that were named one by one; each is listed once."""


def _beside_others(segment: Segment, folders: _Known) -> Segment:
    """A segment that was named, with the attributes that depend on its neighbours."""
    if segment.raft is not None and segment.copy_id is not None:
        aborted = storage.look(segment.path + redpanda.TX)
        return segment if aborted is None else _with_aborted(segment, (aborted.name,))
    base = segment.base_offset
    if base is None or not segment.path.endswith((LOG, SWAP)):
        return segment
    folder, name = storage.parent(segment.path), storage.base_name(segment.path)
    if folder not in folders:
        folders[folder] = _neighbours(folder or ".")
    known = folders[folder]
    if isinstance(known, NamedNeighbours):
        return segment if segment.copy_id is not None or name not in known.live else _changed(segment, **known.order.of(base))
    listed = known.get(name)
    return segment if listed is None else _changed(segment, **{name: getattr(listed, name) for name in _OF_FOLDER})


def _neighbours(folder: str) -> NamedNeighbours | dict[str, Segment]:
    try:
        if not storage.is_url(folder):
            names = names_of_files(folder)
            if not any(name.endswith(MANIFEST) for name in names):
                return NamedNeighbours(names)
        return {storage.base_name(segment.path): segment for segment in segments_in(folder)}
    except KolumnError:
        # The file itself may still be readable.
        return {}


def _unique(segments: list[Segment]) -> list[Segment]:
    """Each file once, even if it is named by several links or relative paths; if the topic differs, each topic keeps it."""
    inodes = {segment.identity and segment.identity.inode for segment in segments}
    if None not in inodes and len(inodes) == len(segments):
        return segments
    unique: dict[tuple[str | None, int | None, str], Segment] = {}
    for segment, name in zip(segments, naming.real_names(segment.path for segment in segments), strict=True):
        unique.setdefault((segment.topic, segment.partition, name), segment)
    return list(unique.values())


def _find(name: str, folders: _Known, listed: Listed | None) -> list[Segment]:
    name = storage.plain(name) if ":" in name else name
    entry, below = storage.look_into(name)
    if entry is None:
        matches = storage.matches(name)
        if (not matches or matches[0].name == name.rstrip("/")) and (bucket := storage.missing_bucket(name)) is not None:
            raise MissingPathError(f"{bucket}: no such bucket")
        if not matches:
            raise MissingPathError(f"{name}: {naming.nothing_there(name)}")
        return [segment for match in matches for segment in _matched(match, folders, listed)]
    if not entry.is_folder:
        manifest = manifest_of(entry)
        if manifest:
            return _of_manifests([manifest])
        if (objects := redpanda_folders.of_manifest(entry)) is not None:
            return _of_bucket(objects)
        return _as_they_are([_beside_others(segment, folders) for segment in _segments([naming.checked(entry)])])
    own: Listed = []
    segments = in_directory(entry.name, entries=below, listed=own)
    if not segments or segments[0].raft is not None:
        segments = _in_redpandas_way(entry.name, below, segments, own)
    if listed is not None:
        listed += own
    if not segments:
        there = naming.nearby(entry.name, in_directory)
        raise ArgumentError(f"{name}: no segment (*.log) in this directory nor in topic-partition directories one level below it{there}")
    return segments


def _matched(entry: FolderEntry, folders: _Known, listed: Listed | None) -> list[Segment]:
    """Segments for a glob's match. A glob often matches index files and checkpoints too, so only directories and segments are used."""
    if entry.is_folder:
        own: Listed = []
        segments = _in_redpandas_way(entry.name, None, in_directory(entry.name, listed=own), own)
        if listed is not None:
            listed += own
        return segments
    if listed is not None:
        listed.append(entry)
    if entry.name.endswith(MANIFEST):
        return _of_manifests([entry])
    is_segment = entry.is_regular and (entry.name.endswith((LOG, SWAP, ".checkpoint")) or redpanda.named(storage.base_name(entry.name)))
    return _as_they_are([_beside_others(segment, folders) for segment in _segments([entry])]) if is_segment else []


def _in_redpandas_way(folder: str, entries: Listed | None, segments: list[Segment], listed: Listed) -> list[Segment]:
    """Segments of a folder that has none in Kafka's way, or Redpanda's by chance: its folders of topics may be named as those of Kafka's
    topic-partitions. If it is Redpanda's, ``listed`` is replaced too."""
    below: Listed = []
    if segments and segments[0].raft is None:
        return segments
    found = redpanda_folders.find(folder, entries, below)
    if not found.folders and not found.objects:
        return segments
    listed[:] = below
    return [*(segment for files in found.folders for segment in _as_they_are(_segments_here(files))), *_of_bucket(found.objects)]


def in_directory(folder: str, above: tuple[Any, ...] = (), entries: Listed | None = None, listed: Listed | None = None) -> list[Segment]:
    """Segments of a folder and of its subfolders. ``above`` are the parent folders: a link to one of them ends the walk."""
    unusable: list[str] | None = None if listed is None else []
    entries = storage.listing(folder, unusable) if entries is None else entries
    folders: list[tuple[tuple[str, int], str, bool]] = []
    for entry in entries:
        if not entry.is_folder:
            continue
        name, last = entry.name, storage.base_name(entry.name)
        if (match := PARTITION.fullmatch(last)) is not None and not match["state"]:
            folders.append(((match["topic"], int(match["partition"])), name, False))
        elif (partition := naming.tier_partition(last, storage.base_name(folder))) is not None:
            folders.append((partition, name, True))
    # A link leads back only to a folder with others in it.
    real = storage.real_folder(folder) if folders else None
    if real is not None and real in above:
        return []
    if listed is not None:
        listed += entries
    if listed is not None and unusable:
        listed += [FolderEntry(path, 0, False, is_regular=False) for path in unusable]
    own = _as_they_are(_segments_here(entries))
    if not folders:
        return own
    folders.sort()
    for (_, name, tiered), below in zip(folders, storage.listings([name for _, name, _ in folders]), strict=True):
        inside = in_directory(name, (*above, real), below, listed)
        own += [segment for segment in inside if segment.copy_id is not None and segment.topic is not None] if tiered else inside
    return own


def segments_in(folder: str) -> list[Segment]:
    """Segments of a folder alone, those with a ``fault`` too. What is left out was told when the source was listed."""
    return _as_they_are(_segments_here(storage.listing(folder), told=True))


def _segments_here(entries: list[FolderEntry], told: bool = False) -> list[Segment]:
    logs: list[FolderEntry] = []
    manifests: list[FolderEntry] = []
    sizes: dict[str, int] = {}
    has_swaps = False
    for entry in entries:
        if entry.is_folder:
            continue
        name = entry.name
        sizes[name] = entry.size
        if name.endswith((LOG, SWAP)):
            logs.append(entry)
            has_swaps = has_swaps or name.endswith(SWAP)
        elif name.endswith(MANIFEST):
            manifests.append(entry)
        elif "-v1.log." in name and redpanda.named(storage.base_name(name)) is not None:
            logs.append(entry)
    segments = _segments(logs)
    # Kafka deletes swap files at or above the lowest ``.cleaned`` file on start-up (unfinished round).
    if has_swaps and (lowest := unfinished_from(sizes)) is not None:
        segments = [one for one in segments if not (one.is_swap and one.base_offset is not None and one.base_offset >= lowest)]
    if len(segments) > 1:
        segments.sort(key=lambda segment: (-1 if segment.base_offset is None else segment.base_offset, segment.path))
        if segments[-1].raft is not None:
            # A leader that had nothing to write leaves an empty segment, and the next one begins at its offset.
            segments = _by_terms(segments)
            best = {one.base_offset: one for one in sorted(segments, key=lambda one: one.size > 0) if one.copy_id is None}
            others = (one.size or one.raft is None or one.copy_id is not None or best[one.base_offset] is one for one in segments)
            segments = list(compress(segments, others))
            stale = redpanda.stale((one.path, one.base_offset) for one in segments if one.raft is not None and one.copy_id is None)
            segments = [_changed(one, fault=stale[one.path]) if one.path in stale else one for one in segments]
    if segments and segments[-1].raft is not None:
        segments = [_with_aborted(segment, sizes) for segment in segments]
    if manifests:
        # What has an id and no manifest yet has not been copied completely; a broker's own files have no ids.
        stored = objects_of(manifests, [segment.path for segment in segments if segment.copy_id is not None], told)
        segments = [one for one in segments if one.base_offset is not None and one.copy_id is None and one.path not in stored]
    if segments and "://" in segments[0].path and storage.is_url(segments[0].path):
        for segment in segments:
            beside = tuple(suffix for suffix in SIDES if storage.with_suffix(segment.path, suffix) in sizes)
            segment.__dict__.update(beside=beside, listed=len(entries))
    # Index files that are not empty and have no log next to them, not even one that is being deleted.
    orphans = alone(sizes) if len(sizes) > len(logs) else []
    if len(segments) > 1 or orphans:
        segments = with_neighbours(segments, [name for name in orphans if sizes[name]], fresh=True)
    return [*segments, *_of_manifests(manifests)] if manifests else segments


def _with_aborted(segment: Segment, names: Collection[str]) -> Segment:
    """A segment with the file of its aborted transactions, if it is of Redpanda's bucket and the file is among some names."""
    name = segment.path + redpanda.TX
    if segment.raft is None or segment.copy_id is None or name not in names:
        return segment
    return _changed(segment, raft=replace(segment.raft, aborted=name))


def _by_terms(segments: list[Segment]) -> list[Segment]:
    """Segments in the order of offsets, and of terms where a leader began at the offset of one before."""
    return sorted(segments, key=lambda one: (-1 if one.base_offset is None else one.base_offset, -1 if one.raft is None else one.raft.term))


def _of_bucket(objects: list[redpanda_folders.InBucket]) -> list[Segment]:
    """Segments that manifests in Redpanda's bucket name. There are no files of a broker beside them."""
    return [
        Segment(
            one.file.name, one.topic or None, None if one.partition < 0 else one.partition, one.base, one.file.size,
            identity=one.file.identity, copy_id=one.copy_id, beside=(), raft=one.raft, fault=one.fault,
        )
        for one in objects
    ]  # fmt: skip


def _of_manifests(files: list[FolderEntry]) -> list[Segment]:
    return [
        _unread(file, one)
        if isinstance(one, CorruptBatchError)
        else Segment(file.name, one.topic, one.partition, one.first, one.size, identity=file.identity, copy_id=one.segment_id, manifest=one)
        for file, one in zip(files, read_manifests(files), strict=True)
    ]


def _unread(file: FolderEntry, fault: CorruptBatchError) -> Segment:
    """The segment of a manifest that cannot be used, as names tell it."""
    folder = storage.parent(file.name)
    topic, partition = naming.tier_partition(storage.base_name(folder), storage.base_name(storage.parent(folder))) or (None, None)
    base, copy = naming.stem(storage.base_name(file.name)) or (None, None)
    return Segment(file.name, topic, partition, base, 0, copy_id=copy, fault=fault)


def with_neighbours(segments: list[Segment], orphans: Collection[str] = (), fresh: bool = False) -> list[Segment]:
    """Copies of the segments of one log, with the attributes that depend on their neighbours; ``fresh`` segments nobody else has yet."""
    order = Order({base for segment in segments if (base := segment.base_offset) is not None}, orphans)
    placed = segments if fresh else [_changed(segment) for segment in segments]
    for segment in placed:
        # After a tier's copy may come another copy of the same offsets: `kolumn.copies.tiers` finds out which follows which.
        if (base := segment.base_offset) is not None and segment.copy_id is None:
            segment.__dict__.update(order.of(base))
    return placed


def _segments(files: Iterable[FolderEntry]) -> list[Segment]:
    """Segments of files, most of which are in one folder: its name is taken apart once."""
    segments = []
    known: dict[tuple[str, bool], tuple[str | None, int | None]] = {}
    for name, size, _, _, identity in files:
        base, copy = base_and_copy(name)
        raft = None
        if base is None and "-v1.log" in name and (own_name := redpanda.named(storage.base_name(name))) is not None:
            base, raft, copy = own_name
        folder = name[: name.rfind("/") + 1], copy is not None
        if (partition := known.get(folder)) is None:
            above = storage.parent(name)
            found = (None, None) if raft is None else redpanda.partition_in(above)
            known[folder] = partition = naming.partition_in(above, copy is not None) if found == (None, None) else found
        # Without ``__init__``, which takes longer than the rest of what is done with a name; what is not set has its default.
        segment = object.__new__(Segment)
        own = segment.__dict__
        own["path"], own["base_offset"], own["size"], own["identity"] = name, base, size, identity
        own["topic"], own["partition"] = partition
        if copy is not None:
            own["copy_id"] = copy
        if raft is not None:
            own["raft"] = raft
        segments.append(segment)
    return segments


def _changed(segment: Segment, **fields: Any) -> Segment:
    """As `dataclasses.replace`, which takes longer than the rest of what is done with a name."""
    changed = object.__new__(Segment)
    changed.__dict__.update(segment.__dict__, **fields)
    return changed
