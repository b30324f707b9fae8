"""Finds segments: files, directories, globs, URLs and lists become `Segment`s. This module handles names, not formats.

    <log directory>/<topic>-<partition>/<20-digit base offset>.log

`tier_names` has the names in tiers, where segments have ids too. ``.deleted`` and ``.cleaned`` files are not live data. A ``.swap`` file
is the finished replacement of segments that a crash left in place (`kolumn.entries.replaced` finds out which). Directories named
``…-delete``, ``…-stray`` and ``…-future`` are left out of a log directory. `docs/explanation/formats.md` has Kafka's rules, by version.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kolumn.arrays import Int64s
from kolumn.errors import ArgumentError, CorruptBatchError, KolumnError, MissingPathError
from kolumn.source import storage, tier_names
from kolumn.source.aiven_file import Access
from kolumn.source.aiven_manifest import AivenManifest, manifest_of, objects_of, read_manifests
from kolumn.source.folder_scan import names_of_files
from kolumn.source.given_names import checked, names_in, nearby, real_names
from kolumn.source.log_names import INDEXES, LOG, PARTITION, SWAP, base_and_copy, place_in
from kolumn.source.memory import in_memory
from kolumn.source.neighbours import NamedNeighbours, Order, orphans_of, unfinished_from
from kolumn.source.side_files import TIER_CHECKPOINT
from kolumn.source.storage import FolderEntry, Identity
from kolumn.source.tier_names import MANIFEST

SIDE_FILES = (*INDEXES, ".txnindex", ".snapshot")
"""Suffixes of the files that are next to a log and share its name."""
SIDES = (*SIDE_FILES, TIER_CHECKPOINT)

HIGHEST = 2**63 - 1
Listed = list[FolderEntry]
_OF_FOLDER = ("following", "preceding", "orphans", "beside", "listed")


@dataclass(frozen=True)
class Segment:
    """A segment file.

    Attributes
    ----------
    path : str
    topic, partition
        From the directory's name, split at the last dash; None if it is not ``topic-partition``.
    base_offset : int, optional
        From the file's name, if it has Kafka's 20 digits.
    size : int
        Bytes, when it was found. A segment is never read past that.
    format : str
        The format that the caller named; carried along, not used here.
    following, preceding : int, optional
        Base offsets of its neighbours in the directory. It is rolled if another one follows; else it is active, or names have no offsets.
    orphans : tuple of str
        Index files without a log between this segment and the next, and before the first one.
    twin : str, optional
        Another segment of its directory that has some of the same offsets.
    identity : Identity, optional
        Identity of the file when it was found: `kolumn.source.segment_file` reads no other file.
    memory : pa.Buffer, optional
        The bytes of a segment that is in memory; its path is a name for messages.
    copy_id : str, optional
        Id in the name of a segment of a tier, which may have several copies of the same offsets in one directory.
    start_offset, end_offset : int, optional
        Offsets of a tier's copy that belong to the log and are read from it (start_offset <= offset < end_offset); None for no bound.
    manifest : AivenManifest, optional
        Of a segment in Aiven's tier, where ``path`` is the manifest; positions are those in the segment.
    access : Access
        How a segment of a tier is opened.
    beside, listed : tuple of str or None, int
        At a URL, suffixes of the files with its name that were listed with it: what was not there needs no request; and how many files and
        folders were listed. None and 0 if its folder was not.
    fault : CorruptBatchError, optional
        Why nothing of it can be read: its manifest is malformed or missing.
    """

    path: str
    topic: str | None
    partition: int | None
    base_offset: int | None
    size: int
    format: str = "kafka"
    following: int | None = field(default=None, compare=False)
    preceding: int | None = field(default=None, compare=False)
    orphans: tuple[str, ...] = field(default=(), compare=False)
    twin: str | None = field(default=None, compare=False)
    identity: Identity | None = field(default=None, compare=False)
    memory: Any = field(default=None, compare=False, repr=False)
    copy_id: str | None = None
    start_offset: int | None = field(default=None, compare=False)
    end_offset: int | None = field(default=None, compare=False)
    manifest: AivenManifest | None = field(default=None, compare=False, repr=False)
    access: Access = field(default=Access(), compare=False)
    beside: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    listed: int = field(default=0, compare=False, repr=False)
    fault: CorruptBatchError | None = field(default=None, compare=False)

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
        """Whether there may be a file of its name with this suffix."""
        return self.beside is None or suffix in self.beside

    @property
    def is_swap(self) -> bool:
        """Whether this file replaces other segments of its directory."""
        return self.path.endswith(SWAP)


@dataclass(frozen=True)
class Range:
    """Bytes [start, end) of a segment, cut at entries. Tasks get ranges, not the bytes themselves.

    ``floor`` is the last offset before ``start``, or -1: after damage it helps to recognise entries. ``transactions`` are those of the
    log, if needed. Of a log in several copies, only records with start_offset <= offset < end_offset are read (None for no bound; if
    equal, only damage is reported), and ``fault`` is an error that replaces the whole range.
    """

    segment: Segment
    start: int
    end: int
    floor: int = -1
    transactions: Any = field(default=None, compare=False)
    start_offset: int | None = None
    end_offset: int | None = None
    fault: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.fault is None and self.segment.fault is not None:
            object.__setattr__(self, "fault", self.segment.fault)
        if not self.is_bounded and self.segment.is_bounded:
            object.__setattr__(self, "start_offset", self.segment.start_offset)
            object.__setattr__(self, "end_offset", self.segment.end_offset)

    @property
    def is_bounded(self) -> bool:
        """Whether only some of its offsets are read."""
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
        """The range of a whole segment."""
        if segment.fault is not None or segment.start_offset is not None or segment.end_offset is not None:
            return cls(segment, 0, segment.size, (segment.base_offset or 0) - 1)
        # Without ``__init__``, which costs more than the rest of the plan of a small segment; what is not set has its default.
        found = object.__new__(cls)
        found.__dict__.update(segment=segment, start=0, end=segment.size, floor=(segment.base_offset or 0) - 1)
        return found


def find_segments(
    source: object, topic: str | None = None, partition: int | None = None, faults: bool = False, listed: Listed | None = None
) -> list[Segment]:
    """Segments of ``source``, in the order of topic, partition and base offset within each of its parts.

    Parameters
    ----------
    source : str, PathLike, iterable of those, or bytes in memory
        A segment file of any name, a topic-partition directory, a log directory of many, or a glob of such; on this machine or at a
        URL, which may be a bucket's prefix. What `in_memory` takes is one segment without topic, partition and base offset.
    topic, partition
        Topic and partition, instead of those in directory names.
    faults : bool
        Whether a segment of a tier whose manifest cannot be used is returned, with its ``fault``.
    listed : list, optional
        Takes every file and folder that was listed, also those that are no segments.

    Raises
    ------
    ArgumentError
        The source does not exist, or contains no segment.
    CorruptBatchError
        A manifest cannot be used, unless ``faults``.
    """
    segments: list[Segment] = []
    places = Places()
    held = in_memory(source)
    for part in names_in(source) if held is None else ():
        segments += _find(part, places, listed)
    unique = _unique(segments) if held is None else [Segment(held.name, None, None, None, held.memory.size, memory=held.memory)]
    for one in unique:
        if one.fault is not None and not faults:
            raise one.fault
    given: dict[str, Any] = {name: value for name, value in (("topic", topic), ("partition", partition)) if value is not None}
    return [replace(segment, **given) for segment in unique] if given else unique


def _as_it_is(segment: Segment) -> Segment:
    """A segment that may be being written, with size, identity and tail taken at the same moment."""
    if segment.following is not None or (segment.identity is not None and segment.identity.tail is not None):
        return segment
    if segment.manifest is not None or segment.fault is not None or storage.is_url(segment.path):
        return segment
    now = storage.growing(segment.path)
    return segment if now is None else _changed(segment, size=now.size, identity=now)


class Places:
    """Adds information from their directories to segments that were named one by one; each directory is listed once."""

    def __init__(self) -> None:
        self._known: dict[str, NamedNeighbours | dict[str, Segment]] = {}

    def of(self, segment: Segment) -> Segment:
        """The segment, with the attributes that depend on its neighbours."""
        base = segment.base_offset
        if base is None or not segment.path.endswith((LOG, SWAP)):
            return segment
        folder = storage.parent(segment.path)
        if folder not in self._known:
            self._known[folder] = _neighbours(folder or ".")
        known = self._known[folder]
        if isinstance(known, NamedNeighbours):
            return segment if segment.copy_id is not None or not known.has(segment.path) else _changed(segment, **known.order.of(base))
        found = known.get(storage.base_name(segment.path))
        return segment if found is None else _changed(segment, **{name: getattr(found, name) for name in _OF_FOLDER})


def _neighbours(folder: str) -> NamedNeighbours | dict[str, Segment]:
    try:
        if not storage.is_url(folder):
            names = names_of_files(folder)
            if not any(name.endswith(MANIFEST) for name in names):
                return NamedNeighbours(names)
        return {storage.base_name(one.path): one for one in segments_in(folder)}
    except KolumnError:
        # The file itself may still be readable.
        return {}


def _unique(segments: list[Segment]) -> list[Segment]:
    """Each file once, even if it is named by several links or relative paths; if the topic differs, each topic keeps it."""
    inodes = [one.identity and one.identity.inode for one in segments]
    if None not in inodes and len(set(inodes)) == len(inodes):
        return segments
    found: dict[tuple[str | None, int | None, str], Segment] = {}
    for segment, name in zip(segments, real_names(one.path for one in segments), strict=True):
        found.setdefault((segment.topic, segment.partition, name), segment)
    return list(found.values())


def _find(name: str, places: Places, listed: Listed | None) -> list[Segment]:
    name = storage.plain(name)
    found, below = storage.look_into(name)
    if found is None:
        caught = storage.matches(name)
        if not caught:
            raise MissingPathError(f"{name}: no such file or directory")
        return [segment for one in caught for segment in _matched(one, places, listed)]
    if not found.is_folder:
        manifest = manifest_of(found)
        return _of_manifests([manifest]) if manifest else [_as_it_is(places.of(one)) for one in _segments([checked(found)])]
    segments = in_directory(found.name, entries=below, listed=listed)
    if not segments:
        there = nearby(found.name, in_directory)
        raise ArgumentError(f"{name}: no segment (*.log) in this directory nor in topic-partition directories one level below it{there}")
    return segments


def _matched(found: FolderEntry, places: Places, listed: Listed | None) -> list[Segment]:
    """Segments for a glob's match. A glob often matches index files and checkpoints too, so only directories and segments are used."""
    if found.is_folder:
        return in_directory(found.name, listed=listed)
    if listed is not None:
        listed.append(found)
    if found.name.endswith(MANIFEST):
        return _of_manifests([found])
    is_segment = found.is_regular and found.name.endswith((LOG, SWAP, ".checkpoint"))
    return [_as_it_is(places.of(one)) for one in _segments([found])] if is_segment else []


def in_directory(folder: str, above: tuple[Any, ...] = (), entries: Listed | None = None, listed: Listed | None = None) -> list[Segment]:
    """Segments of a folder and of its subfolders. ``above`` are the parent folders so far: a link may lead back to one of them."""
    unusable: list[str] | None = None if listed is None else []
    entries = storage.listing(folder, unusable) if entries is None else entries
    folders: list[tuple[tuple[str, int], str, bool]] = []
    for name in [one.name for one in entries if one.is_folder]:
        last = storage.base_name(name)
        if (match := PARTITION.fullmatch(last)) is not None and not match["state"]:
            folders.append(((match["topic"], int(match["partition"])), name, False))
        elif (found := tier_names.place_of(last, storage.base_name(folder))) is not None:
            folders.append((found, name, True))
    # A link leads back only to a folder with others in it.
    real = storage.real_folder(folder) if folders else None
    if real is not None and real in above:
        return []
    if listed is not None:
        listed += [*entries, *(FolderEntry(one, 0, False, is_regular=False) for one in unusable or ())]
    own = [one if one.following is not None else _as_it_is(one) for one in _segments_here(entries)]
    if not folders:
        return own
    folders.sort()
    for (_, name, tiered), below in zip(folders, storage.listings([name for _, name, _ in folders]), strict=True):
        some = in_directory(name, (*above, real), below, listed)
        own += [one for one in some if one.copy_id is not None and one.topic is not None] if tiered else some
    return own


def segments_in(folder: str) -> list[Segment]:
    """Segments of a folder alone, those with a ``fault`` too. What is left out was told when the source was listed."""
    return [_as_it_is(one) for one in _segments_here(storage.listing(folder), told=True)]


def _segments_here(entries: list[FolderEntry], told: bool = False) -> list[Segment]:
    files = [one for one in entries if not one.is_folder]
    # Nearly all files of some folders are segments.
    others = [one for one in files if one.name[-4:] != LOG]
    if not others:
        segments, manifests = _segments(files), list[FolderEntry]()
    else:
        segments, manifests = (
            _segments([one for one in files if one.name.endswith((LOG, SWAP))]),
            [one for one in others if one.name.endswith(MANIFEST)],
        )
        # Kafka deletes swap files at or above the lowest ``.cleaned`` file on start-up (unfinished round).
        if (lowest := unfinished_from([one.name for one in others])) is not None:
            segments = [one for one in segments if not (one.is_swap and one.base_offset is not None and one.base_offset >= lowest)]
    if len(segments) > 1:
        segments.sort(key=lambda one: (-1 if one.base_offset is None else one.base_offset, one.path))
    if manifests:
        # What has an id and no manifest yet has not been copied completely; a broker's own files have no ids.
        stored = objects_of(manifests, [one.path for one in segments if one.copy_id is not None], told)
        segments = [one for one in segments if one.base_offset is not None and one.copy_id is None and one.path not in stored]
    if segments and "://" in segments[0].path and storage.is_url(segments[0].path):
        names = {file.name for file in files}
        beside = [tuple(some for some in SIDES if storage.with_suffix(one.path, some) in names) for one in segments]
        segments = [_changed(one, beside=own, listed=len(entries)) for one, own in zip(segments, beside, strict=True)]
    placed = with_neighbours(segments, orphans_of(files) if others else (), fresh=True)
    return [*placed, *_of_manifests(manifests)] if manifests else placed


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
    topic, partition = tier_names.place_of(storage.base_name(folder), storage.base_name(storage.parent(folder))) or (None, None)
    base, copy = tier_names.stem(storage.base_name(file.name)) or (None, None)
    return Segment(file.name, topic, partition, base, 0, copy_id=copy, fault=fault)


def with_neighbours(segments: list[Segment], orphans: Collection[str] = (), fresh: bool = False) -> list[Segment]:
    """Copies of the segments of one log, with the attributes that depend on their neighbours; ``fresh`` segments nobody else has yet."""
    if fresh and len(segments) == 1 and not orphans:
        return segments
    order = Order({base for one in segments if (base := one.base_offset) is not None}, orphans)
    placed = segments if fresh else [_changed(one) for one in segments]
    for one in placed:
        # After a tier's copy may come another copy of the same offsets: `kolumn.replicas.tiers` finds out which follows which.
        if (base := one.base_offset) is not None and one.copy_id is None:
            one.__dict__.update(order.of(base))
    return placed


def _segments(files: Iterable[FolderEntry]) -> list[Segment]:
    """Segments of files, most of which are in one folder: its name is taken apart once."""
    found, places = [], dict[tuple[str, bool], tuple[str | None, int | None]]()
    for name, size, _, _, identity in files:
        base, copy = base_and_copy(name)
        at = name[: name.rfind("/") + 1], copy is not None
        if (place := places.get(at)) is None:
            places[at] = place = place_in(storage.parent(name), copy is not None)
        # Without ``__init__``, which takes longer than the rest of what is done with a name; what is not set has its default.
        one = object.__new__(Segment)
        own = one.__dict__
        own["path"], own["base_offset"], own["size"], own["identity"] = name, base, size, identity
        own["topic"], own["partition"] = place
        if copy is not None:
            own["copy_id"] = copy
        found.append(one)
    return found


def _changed(segment: Segment, **fields: Any) -> Segment:
    """As `dataclasses.replace`, which takes longer than the rest of what is done with a name."""
    found = object.__new__(Segment)
    found.__dict__.update(segment.__dict__, **fields)
    return found
