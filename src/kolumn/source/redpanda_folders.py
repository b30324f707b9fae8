"""Where Redpanda's segments are below a folder: of a node by the names of folders, of a bucket by the manifests of partitions.

`kolumn.source.redpanda` has the names. A folder that was named is that of a partition, a topic, a namespace, a whole data directory or
bucket, or of the objects or the manifests of a cluster in it. It is looked into only if it has no segments in Kafka's way. In a bucket only
what manifests name is valid; without manifests the names of segments count.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kolumn.core.errors import Code, CorruptBatchError, KolumnError, StorageError, shown
from kolumn.core.threads import TIER, workers
from kolumn.source import redpanda, storage
from kolumn.source.redpanda import KAFKA, MANIFEST_BIN, MANIFEST_JSON, META, OWN_NAMESPACES, TX, Raft
from kolumn.source.redpanda_manifest import MOST_BYTES, Manifest, Stored, parse
from kolumn.source.storage import FolderEntry, base_name, within

logger = logging.getLogger(__name__)
Listed = list[FolderEntry]
_SPILLOVER = re.compile(r"manifest\.bin\.([0-9]{1,19})\.([0-9]{1,19})\..+")
_LEVELS = 5  # folders above that of a partition's manifest, up to the bucket
_LOOKED_INTO = 3  # folders with the names of those above topics
_PROBED = 100  # folders in which one of a partition is looked for, to find out whether they are those of topics


class InBucket(NamedTuple):
    """A segment that a manifest names: its object, or the name that it should have and why it cannot be read."""

    file: FolderEntry
    topic: str
    partition: int
    base: int | None
    raft: Raft | None
    copy_id: str
    fault: CorruptBatchError | None = None


@dataclass
class Found:
    """What is below a folder: the files of each partition's folder of a node, and what manifests name."""

    folders: list[Listed] = field(default_factory=list)
    objects: list[InBucket] = field(default_factory=list)


def find(folder: str, entries: Listed | None, listed: Listed | None) -> Found:
    """What is in a folder and below it; ``listed`` takes what was listed and is not walked into."""
    return _Walk(listed).all_of(folder, entries)


def of_manifest(file: FolderEntry) -> list[InBucket] | None:
    """What a manifest that was named itself names; None for other files."""
    if not _is_manifest(file):
        return None
    walk = _Walk(None)
    walk.manifests.append([file, *(one for one in storage.listing(storage.parent(file.name) or ".") if _SPILLOVER.search(one.name))])
    return walk.objects()


class _Walk:
    def __init__(self, listed: Listed | None) -> None:
        self.listed = listed
        self.seen: dict[str, Listed] = {}  # files of partitions' folders
        self.folders: list[Listed] = []
        self.manifests: list[Listed] = []  # with the files beside them

    def all_of(self, folder: str, entries: Listed | None) -> Found:
        self._into(folder, storage.listing(folder) if entries is None else entries)
        # Where there are manifests, names of objects do not count.
        return Found(objects=self.objects()) if self.manifests else Found(self.folders)

    def _tell(self, entries: Iterable[FolderEntry]) -> None:
        if self.listed is not None:
            self.listed += entries

    def _into(self, folder: str, entries: Listed) -> None:
        """Walk a folder of any kind."""
        files, folders = [one for one in entries if not one.is_folder], [one for one in entries if one.is_folder]
        names = {base_name(one.name) for one in folders}
        self._files(folder, files)
        special, _ = _split(folders, lambda name: redpanda.is_prefix(name) or name in (META, KAFKA, *OWN_NAMESPACES))
        # Topics may have such names too.
        is_above = bool(special) and not self._are_topics(special[:_LOOKED_INTO])
        if any(map(_is_partition, names)):
            self._topic(folders)
        elif is_above and any(map(redpanda.is_prefix, names)):
            self._bucket(folders)
        elif is_above and META in names:
            self._prefix(folders)
        elif is_above:
            self._namespaces(folders)
        elif self._are_topics(folders):
            self._namespace(folders)
        else:
            self._tell(folders)

    def _files(self, folder: str, files: Listed) -> None:
        """The files of one folder, which may be that of a partition."""
        self.seen[folder] = files
        if any(_is_manifest(file) for file in files):
            self.manifests.append(files)
        if any(redpanda.named(base_name(file.name)) is not None for file in files):
            self.folders.append(files)
        self._tell(files)

    def _below(self, folders: Listed) -> Iterator[tuple[FolderEntry, Listed]]:
        """Each folder with what is in it."""
        if folders:
            for entry, below in zip(folders, storage.listings([one.name for one in folders]), strict=False):
                yield entry, storage.listing(entry.name) if below is None else below

    def _topic(self, folders: Listed) -> None:
        partitions, others = _split(folders, _is_partition)
        self._tell(others)
        partitions.sort(key=lambda one: redpanda.partition_number(base_name(one.name)) or 0)
        for entry, entries in self._below(partitions):
            self._files(entry.name, [one for one in entries if not one.is_folder])

    def _namespace(self, folders: Listed) -> None:
        for entry, entries in self._below(folders):
            if any(one.is_folder and _is_partition(base_name(one.name)) for one in entries):
                self._topic([one for one in entries if one.is_folder])
                self._tell(one for one in entries if not one.is_folder)
            else:
                self._tell([entry])

    def _namespaces(self, folders: Listed) -> None:
        """Folders of namespaces: of a node, of a prefix in a bucket or of its manifests."""
        topics, others = _split(folders, lambda name: name == KAFKA)
        self._tell(others)
        for _, entries in self._below(topics):
            self._namespace([one for one in entries if one.is_folder])

    def _prefix(self, folders: Listed) -> None:
        """Folders below one prefix of a bucket: that of manifests, and namespaces of objects."""
        metas, others = _split(folders, lambda name: name == META)
        before = len(self.manifests)
        for _, entries in self._below(metas):
            self._namespaces([one for one in entries if one.is_folder])
        # Far away, only what manifests name is listed, by its keys.
        if len(self.manifests) == before or not _is_far(others):
            self._namespaces(others)

    def _bucket(self, folders: Listed) -> None:
        prefixes, others = _split(folders, redpanda.is_prefix)
        self._tell(others)
        before, rest = len(self.manifests), list[FolderEntry]()
        first, second = _split(prefixes, redpanda.holds_manifests)
        for _, entries in self._below(first):
            below = [one for one in entries if one.is_folder]
            if any(base_name(one.name) == META for one in below):
                self._prefix(below)
            else:
                rest += below
        if len(self.manifests) > before and _is_far(prefixes):
            return
        self._namespaces(rest)
        for _, entries in self._below(second):
            self._namespaces([one for one in entries if one.is_folder])

    def _are_topics(self, folders: Listed) -> bool:
        for folder in folders[:_PROBED]:
            with suppress(KolumnError):
                if any(one.is_folder and _is_partition(base_name(one.name)) for one in storage.listing(folder.name)):
                    return True
        return False

    def objects(self) -> list[InBucket]:
        """What the manifests name, by topic and partition."""
        with workers(TIER) as pool:
            logs = list(pool.map(_read_log, self.manifests))
        folders = sorted({storage.parent(key) for log in logs for key, _ in log.segments} - {*self.seen})
        with workers(TIER) as pool:
            for folder, entries in zip(folders, pool.map(_listing, folders), strict=True):
                self.seen[folder] = entries
                self._tell(entries)
        there = {one.name: one for entries in self.seen.values() for one in entries if not one.is_folder}
        found = [one for log in logs for one in log.objects(there)]
        return sorted(found, key=lambda one: (one.topic, one.partition, -1 if one.base is None else one.base))


def _split(folders: Listed, is_one: Callable[[str], bool]) -> tuple[Listed, Listed]:
    chosen = [one for one in folders if is_one(base_name(one.name))]
    return chosen, [one for one in folders if not is_one(base_name(one.name))]


def _is_partition(name: str) -> bool:
    return redpanda.partition_number(name) is not None


def _is_manifest(file: FolderEntry) -> bool:
    return base_name(file.name) in (MANIFEST_BIN, MANIFEST_JSON) and not file.is_folder


def _is_far(folders: Listed) -> bool:
    return bool(folders) and storage.is_url(folders[0].name)


def _listing(folder: str) -> Listed:
    """What is in a folder; nothing if it does not exist."""
    try:
        return storage.listing(folder)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


@dataclass
class _Log:
    """What manifests say of one partition: the keys of its segments, and what cannot be read."""

    manifest: FolderEntry
    topic: str
    partition: int
    start: int | None = None  # first offset of consumers
    segments: list[tuple[str, Stored]] = field(default_factory=list)
    faults: list[tuple[str, int | None, CorruptBatchError]] = field(default_factory=list)  # a name, the first offset, and why

    def objects(self, there: dict[str, FolderEntry]) -> Iterator[InBucket]:
        for name, base, fault in self.faults:
            yield InBucket(FolderEntry(name, 0, False), self.topic, self.partition, base, None, base_name(name), fault)
        for key, stored in self.segments:
            file, copy_id = there.get(key), base_name(key)
            raft = Raft(stored.term, stored.delta, stored.delta_end, key + TX if key + TX in there else None, stored.last, self.start)
            if file is None:
                what = f"an object of {stored.size} bytes, which {self.manifest.name} names"
                fault = CorruptBatchError(key, 0, Code.SEGMENT_MISSING, expected=what, found="no such object")
                yield InBucket(FolderEntry(key, 0, False), self.topic, self.partition, stored.base, raft, copy_id, fault)
                continue
            if file.size != stored.size:
                text = "%s: has %d bytes, and %d in %s: what is there is read"
                logger.warning(text, shown(key), file.size, stored.size, shown(self.manifest.name))
            yield InBucket(file, self.topic, self.partition, stored.base, raft, copy_id)


def _read(file: FolderEntry) -> Manifest | CorruptBatchError:
    """A manifest; the error if it is missing or malformed. A KolumnError is raised if a file system far away failed again and again."""
    data = None if file.size > MOST_BYTES else storage.read_bytes(file.name)
    if data is None:
        return _fault(file.name, "no file, one that cannot be read, or one that is too large")
    try:
        return parse(file.name, data)
    except KolumnError as error:
        return _fault(file.name, str(error).removeprefix(f"{file.name}: "))


def _fault(name: str, found: str) -> CorruptBatchError:
    return CorruptBatchError(name, 0, Code.SEGMENT_MISSING, expected="a manifest of a partition in Redpanda's bucket", found=found)


def _read_log(files: Listed) -> _Log:
    """The log by the manifest among some files, and the spillover manifests beside it."""
    by_name = {base_name(file.name): file for file in files}
    file = by_name.get(MANIFEST_BIN) or by_name[MANIFEST_JSON]
    place = _Place(file)
    manifest = _read(file)
    if isinstance(manifest, Manifest):
        manifest = place.compared(manifest)
    if not isinstance(manifest, Manifest):
        return _Log(file, place.topic or "", -1 if place.partition is None else place.partition, faults=[(file.name, None, manifest)])
    if manifest.is_deleted:
        # A changed digit there looks alike.
        text = "%s: the log begins at consumer offset %d, by start_kafka_offset, after its last record: all were deleted. %s"
        logger.warning(text, shown(file.name), manifest.start_consumer_offset, "include_deleted_records=True reads them")
    log = _Log(file, manifest.topic, manifest.partition, manifest.start_consumer_offset)
    stored = {one.base: one for one in _older(log, manifest, files)}
    stored |= {one.base: one for one in manifest.segments if manifest.start_offset is None or one.last >= manifest.start_offset}
    log.segments = [(place.key(one, manifest), one) for _, one in sorted(stored.items()) if one.last >= manifest.start]
    return log


def _older(log: _Log, manifest: Manifest, files: Listed) -> Iterator[Stored]:
    """Segments by spillover manifests, below the first offset of the manifest."""
    named = {(int(match[1]), int(match[2])): file for file in files if (match := _SPILLOVER.fullmatch(base_name(file.name))) is not None}
    for span in sorted(named if manifest.spilled is None else manifest.spilled):
        if span[1] < manifest.start:
            continue
        missing = within(storage.parent(log.manifest.name), f"{MANIFEST_BIN}.{span[0]}.{span[1]}")
        file = named.get(span) or FolderEntry(missing, 0, False)
        older = _read(file)
        if not isinstance(older, Manifest):
            log.faults.append((file.name, span[0], older))
        elif (older.namespace, older.topic, older.partition) != (manifest.namespace, manifest.topic, manifest.partition):
            found = f"one of {older.namespace}/{older.topic}/{older.partition}"
            log.faults.append((file.name, span[0], _fault(file.name, found)))
        else:
            yield from older.segments


class _Place:
    """Where a manifest is, and the objects that it names."""

    def __init__(self, file: FolderEntry) -> None:
        self.name = file.name
        name = file.name if storage.is_url(file.name) or file.name.count("/") > _LEVELS else os.path.abspath(file.name)
        self.folder = storage.parent(name)
        above = [self.folder]
        for _ in range(_LEVELS):
            above.append(storage.parent(above[-1]))
        partition, topic, namespace, meta, self.prefix, self.root = above
        # Elsewhere a manifest was put beside the segments that it names.
        self.is_key = base_name(meta) == META and _is_partition(base_name(partition))
        self.namespace = base_name(namespace) if self.is_key else None
        self.topic = base_name(topic) if self.is_key else None
        self.partition = redpanda.partition_number(base_name(partition))

    def compared(self, manifest: Manifest) -> Manifest | CorruptBatchError:
        """A manifest that says the same as its key: a changed byte would make its segments those of another log."""
        found = manifest.namespace, manifest.topic, manifest.partition
        expected = (self.namespace, self.topic, self.partition) if self.is_key else found
        if found == expected:
            return manifest
        return _fault(self.name, "one of {}/{}/{}, which is not what its name says".format(*found))

    def key(self, stored: Stored, manifest: Manifest) -> str:
        """The name of a segment's object."""
        last = f"{stored.name}{stored.suffix}"
        if not self.is_key:
            return within(self.folder, last)
        revision = manifest.revision if stored.revision is None else stored.revision
        path = f"{manifest.namespace}/{manifest.topic}/{manifest.partition}_{revision}"
        if redpanda.is_hash(base_name(self.prefix)):
            return within(self.root, redpanda.hash_of(f"{path}/{stored.name}"), *path.split("/"), last)
        return within(self.prefix, *path.split("/"), last)
