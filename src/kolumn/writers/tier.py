"""Segments of a tier written anew, in the layout that they came from: that of Kafka's LocalTieredStorage, or of Aiven's tiered-storage.

A broker finds the files of a segment by the id in ``__remote_log_metadata``, a topic that nothing here writes.

* Aiven's objects keep their names, so that they can replace the old ones. A broker asks for no byte above the size that the topic has
  (``RemoteStorageManager.fetchLogSegment``): what is smaller is read to its end, what is larger would be cut. A larger copy gets a new id.
* Kafka's files get a new id. No broker has indexes of it in its cache (``RemoteIndexCache``), and the old copy stays until it is deleted.

A new id needs entries in the topic. They are returned as rows.
"""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from os import path as paths
from os import urandom
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import zstandard
from pyarrow import ArrowException

from kolumn.core.errors import KolumnError, StorageError, shown
from kolumn.decode.host.headers import headers
from kolumn.source import storage
from kolumn.source.names import INDEXES, LOG, MANIFEST, file_name, partition_of
from kolumn.source.read_ahead import fetched, open_ranges
from kolumn.source.segment_file import is_absent, side_bytes
from kolumn.source.segments import HIGHEST, SIDES, Segment, find_segments
from kolumn.source.side_files import TIER_CHECKPOINT, Epochs, epochs_in
from kolumn.source.tier_file import cipher_of
from kolumn.source.tier_manifest import CIPHER_BYTES, INDEX_NAMES, IV_BYTES, AivenManifest, parse
from kolumn.writers.commit.staged_file import StagedFile, writing

REPLACED_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("firstOffset", pa.int64()), ("lastOffset", pa.int64()), ("replaces", pa.string()),
     ("segment", pa.string()), ("segmentId", pa.string()), ("newSegmentId", pa.string()), ("bytes", pa.int64()), ("newBytes", pa.int64())]
)  # fmt: skip
"""A segment that was written anew: its log or manifest in the source, and that below the root of the new tier; both ids, which are equal if
the files can replace the old ones; bytes of the log as brokers have it."""
METADATA_SCHEMA = pa.schema(
    [("topic", pa.string()), ("topicId", pa.string()), ("partition", pa.int32()), ("segmentId", pa.string()), ("message", pa.string()),
     ("remoteLogSegmentState", pa.string()), ("startOffset", pa.int64()), ("endOffset", pa.int64()), ("maxTimestampMs", pa.int64()),
     ("segmentLeaderEpochs", pa.map_(pa.int32(), pa.int64())), ("segmentSizeInBytes", pa.int32()), ("txnIndexEmpty", pa.bool_())]
)  # fmt: skip
"""Entries that ``__remote_log_metadata`` needs, in this order. Names are those of the messages' fields. The fields that are missing here,
the id of a broker and the time, are those of who writes them."""
_PIECE = 8 << 20  # bytes that are copied at a time
_Row = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """What an operator must know of a segment that was written anew: a row of `REPLACED_SCHEMA`, and rows of `METADATA_SCHEMA`."""

    replaced: _Row
    metadata: list[_Row]


def tier_folder(segment: Segment) -> str:
    """Name of the folder with a segment's files, below the root of its tier."""
    folder = storage.parent(segment.path)
    folder = folder if storage.is_url(folder) else paths.abspath(folder)
    last = storage.base_name(folder)
    return last if segment.manifest is None else f"{storage.base_name(storage.parent(folder))}/{last}"


def copy_in_tier(segment: Segment, folder: Path) -> None:
    """Copy the files of a segment of a tier as they are, under their names, into a folder, which is made. Nothing is decrypted. Raises
    `StorageError` if a file cannot be read or written."""
    if segment.manifest is None:
        names = [*(storage.with_suffix(segment.path, suffix) for suffix in SIDES if not is_absent(segment, suffix)), segment.path]
    else:
        names = [segment.manifest.indexes_name, segment.manifest.object_name, segment.path]
    _make(folder)
    for name in names:
        _write(folder / storage.base_name(name), _pieces(name))


def write_in_tier(segment: Segment, made: Path, folder: Path) -> Written:
    """Write a segment of a tier anew, with another log.

    In memory are one chunk of Aiven's tier, or some MiB, and the index files.

    Parameters
    ----------
    segment
        The segment in the tier, with the private key of its encryption.
    made
        The new log as brokers have it, a file on this machine, with its ``.index`` and ``.timeindex`` beside it. Its last batch ends at the
        same offset. The other index files of the segment stay what they are.
    folder
        Takes the files, and is made. It may have those of other segments.

    Returns
    -------
    Written

    Raises
    ------
    ArgumentError
        There is no private key for the segment's data key.
    KolumnError
        An index file of the segment was changed, its data key cannot be unwrapped, or the last offset of ``made`` is not that of the
        manifest: consumers would wait for offsets that no segment has.
    StorageError
        A file cannot be read or written.
    """
    segment = replace(segment, access=replace(segment.access, holes=False))
    plain = replace(find_segments(str(made))[0], format=segment.format)
    last, newest = _ends(plain)
    manifest, first = segment.manifest, segment.base_offset or 0
    if last < first or (manifest is not None and last != manifest.last):
        expected = f"the last offset {manifest.last} as before" if manifest is not None else "an entry"
        raise KolumnError(f"{segment.path}: expected {expected} in the new log, found the last offset {last}")
    sides = {suffix: data for suffix in SIDES if (data := _side(segment, made, suffix)) is not None}
    is_new = manifest is None or plain.size > segment.size
    number = _new_id() if is_new else segment.copy_id
    stem = file_name(first, f"-{number}") if is_new else storage.base_name(segment.path).removesuffix(MANIFEST)
    _make(folder)
    if manifest is None:
        topic_id, epochs = _topic_id(segment), epochs_in(sides.get(TIER_CHECKPOINT)) or ()
        for suffix, data in sides.items():
            _write(folder / f"{stem}{suffix}", [data])
        _write(folder / f"{stem}{LOG}", _pieces(plain.path))
    else:
        topic_id, epochs = _write_objects(segment, plain, sides, folder / stem, number), manifest.epochs
    name = f"{tier_folder(segment)}/{stem}{LOG if manifest is None else MANIFEST}"
    log = {
        **{"startOffset": first, "endOffset": last, "maxTimestampMs": newest, "segmentSizeInBytes": plain.size},
        **{"segmentLeaderEpochs": _within(epochs, first, last), "txnIndexEmpty": not sides.get(".txnindex")},
    }
    place = {"topic": segment.topic, "partition": segment.partition}
    ids = {"segmentId": segment.copy_id, "newSegmentId": number}
    offsets = {"firstOffset": first, "lastOffset": last}
    row = {**place, **offsets, "replaces": shown(segment.path), "segment": name, **ids, "bytes": segment.size, "newBytes": plain.size}
    entries = _entries(segment.copy_id, number, log) if is_new else []
    return Written(row, [{**place, "topicId": topic_id, **entry} for entry in entries])


def _ends(log: Segment) -> tuple[int, int]:
    """The last offset of a log, and its largest timestamp; -1 if there is none."""
    last = newest = -1
    for entries in headers(log):
        last, newest = max(last, int(entries.last_offset.max())), max(newest, int(entries.max_timestamp.max()))
    return last, newest


def _side(segment: Segment, made: Path, suffix: str) -> bytes | None:
    """A file that is to stand beside the new log; None if there is none."""
    if suffix in INDEXES:
        return b"".join(_pieces(str(made.with_suffix(suffix))))
    if is_absent(segment, suffix):
        return None
    data = side_bytes(segment, suffix)
    if data is None:
        raise KolumnError(f"{segment.path}: expected the {suffix} that the segment has, found none that can be read")
    return data


def _write_objects(segment: Segment, plain: Segment, sides: dict[str, bytes], stem: Path, number: str | None) -> str | None:
    """Write Aiven's objects; returns the id of the topic."""
    data = storage.read_bytes(segment.path) or b""
    # What is written is what was checked: the file may have been replaced since it was listed.
    manifest = parse(segment.path, data)
    top, seal = json.loads(data), _sealing(manifest, segment)
    places: dict[str, _Row | None] = {}
    with StagedFile(Path(f"{stem}.indexes")) as out:
        position = 0
        for name, suffix in INDEX_NAMES.items():
            stored = seal(sides[suffix]) if sides.get(suffix) else b""
            places[name] = {"position": position, "size": len(stored)} if suffix in sides else None
            position += out.write(stored)
    compress = zstandard.ZstdCompressor().compress if manifest.compressed else bytes
    chunks = _pieces(plain.path, _PIECE if manifest.is_plain else manifest.chunk_size)
    sizes = _write(Path(f"{stem}{LOG}"), (seal(compress(chunk)) for chunk in chunks))
    top |= {"segmentIndexes": places, "chunkIndex": _chunk_index(manifest, plain.size, sizes)}
    metadata = top["remoteLogSegmentMetadata"]["remoteLogSegmentId"]
    metadata["id"] = number
    _write(Path(f"{stem}{MANIFEST}"), [json.dumps(top, separators=(",", ":")).encode()])
    topic_id = metadata["topicIdPartition"].get("topicId")
    return topic_id if isinstance(topic_id, str) else None


def _sealing(manifest: AivenManifest, segment: Segment) -> Callable[[bytes], bytes]:
    """What encrypts a chunk with the segment's data key and a new start value, or returns it as it is."""
    encryption, cipher = manifest.encryption, cipher_of(manifest, segment.access)
    if encryption is None:
        return bytes

    def seal(data: bytes) -> bytes:
        start = urandom(IV_BYTES)
        return start + bytes(cipher.encrypt(start, data, encryption.aad))

    return seal


def _chunk_index(manifest: AivenManifest, size: int, sizes: list[int]) -> _Row:
    """Where chunks are: as Aiven's classes write it, sizes one by one if chunks are compressed."""
    index = {"originalChunkSize": manifest.chunk_size, "originalFileSize": size}
    if manifest.compressed:
        packed = zstandard.ZstdCompressor().compress(_packed(sizes))
        return {"type": "variable", **index, "transformedChunks": b64encode(packed).decode()}
    more = 0 if manifest.encryption is None else CIPHER_BYTES
    final = (size - 1) % manifest.chunk_size + 1 + more
    return {"type": "fixed", **index, "transformedChunkSize": manifest.chunk_size + more, "finalTransformedChunkSize": final}


def _packed(sizes: list[int]) -> bytes:
    """Sizes of chunks, as `kolumn.source.tier_manifest` reads them (``ChunkSizesBinaryCodec``)."""
    count, (*others, last) = len(sizes).to_bytes(4, "big"), sizes
    if not others:
        return count + last.to_bytes(4, "big")
    base = min(others)
    width = max(1, -(-(max(others) - base).bit_length() // 8))
    head = count + base.to_bytes(4, "big") + bytes([width])
    return head + b"".join((size - base).to_bytes(width, "big") for size in others) + last.to_bytes(4, "big")


def _entries(old: str | None, new: str | None, log: _Row) -> list[_Row]:
    update = "RemoteLogSegmentMetadataUpdateRecord"
    return [
        {"segmentId": new, "message": "RemoteLogSegmentMetadataRecord", "remoteLogSegmentState": "COPY_SEGMENT_STARTED", **log},
        {"segmentId": new, "message": update, "remoteLogSegmentState": "COPY_SEGMENT_FINISHED"},
        {"segmentId": old, "message": update, "remoteLogSegmentState": "DELETE_SEGMENT_STARTED"},
        {"segmentId": old, "message": update, "remoteLogSegmentState": "DELETE_SEGMENT_FINISHED"},
    ]


def _within(epochs: Epochs, first: int, last: int) -> list[tuple[int, int]]:
    """The leader epochs of offsets from ``first`` to ``last``, the first of which begins there."""
    ends = [*(start for _, start in epochs[1:]), HIGHEST]
    return [(epoch, max(start, first)) for (epoch, start), end in zip(epochs, ends, strict=False) if start <= last and end > first]


def _topic_id(segment: Segment) -> str | None:
    """The topic's id, the last 22 characters of the name of a folder in Kafka's layout."""
    folder = tier_folder(segment)
    return None if partition_of(folder) is None else folder[-22:]


def _new_id() -> str:
    """A new id as Kafka spells it, and makes it (``Uuid.randomUuid``): without a dash in front."""
    while (number := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return number


def _make(folder: Path) -> None:
    # Without its parents: the folder of a run that has failed must not come back.
    with writing(folder):
        folder.mkdir(0o700, exist_ok=True)


def _write(path: Path, parts: Iterable[bytes]) -> list[int]:
    """Write a file; returns the sizes of its parts."""
    with StagedFile(path) as out:
        return [out.write(part) for part in parts]


def _pieces(name: str, size: int = _PIECE) -> Iterator[bytes]:
    """All bytes of a file, so many at a time."""
    entry = storage.look(name)
    if entry is None:
        raise StorageError(f"{name}: missing")
    try:
        with closing(open_ranges(name)) as file:
            for start in range(0, entry.size, size):
                yield fetched(file, start, min(start + size, entry.size))
    except (OSError, ArrowException) as error:
        raise StorageError(f"{name}: cannot be read: {error}") from error
