"""Manifests of Aiven's tiered-storage for Apache Kafka: what is in a segment's object, and where.

    {"version": "1",
     "chunkIndex": {"type": "fixed", "originalChunkSize", "originalFileSize", "transformedChunkSize", "finalTransformedChunkSize"}
                or {"type": "variable", "originalChunkSize", "originalFileSize", "transformedChunks": base64 of a zstd frame},
     "segmentIndexes": {"offset": {"position", "size"}, "timestamp", "producerSnapshot", "leaderEpoch", "transaction": likewise or null},
     "compression": bool,
     "encryption": {"dataKey": "<key id>:<base64>", "aad": base64},           absent if it is not encrypted
     "remoteLogSegmentMetadata": {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": {"topic", "partition"}}, "id"},
                                  "startOffset", "endOffset", "segmentLeaderEpochs": {"<epoch>": offset}}}

A segment is cut into chunks of originalChunkSize bytes, the last one may be short. Each is compressed (one zstd frame) if "compression"
is set, then encrypted, and they stand back to back in the object. Unknown fields are ignored.
"""

import binascii
import json
import logging
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import zstandard

from kolumn.core.arrays import Int64s
from kolumn.core.errors import Code, CorruptBatchError, KolumnError, shown
from kolumn.core.threads import TIER, workers
from kolumn.source import storage
from kolumn.source.names import MANIFEST, stem, tier_partition
from kolumn.source.side_files import TIER_CHECKPOINT, Epochs

logger = logging.getLogger(__name__)
_MOST_BYTES = 16 << 20  # of a manifest, and of an index of chunks
_MOST_CHUNKS = 1 << 20  # of a segment, which has 2 GiB at most; Aiven's chunks have 4 MiB by default
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's rule (``Topic.validate``): a topic's name may become that of a folder
IV_BYTES = 12
CIPHER_BYTES = IV_BYTES + 16  # that AES-GCM adds to a chunk: a random start value before it, a tag after it
_LAST_OFFSET, _LAST_EPOCH = 2**63 - 2, 2**31 - 1
INDEX_NAMES = {
    **{"offset": ".index", "timestamp": ".timeindex", "producerSnapshot": ".snapshot"},
    **{"leaderEpoch": TIER_CHECKPOINT, "transaction": ".txnindex"},
}
"""Names of index files in a manifest, and their suffixes, in the order of their bytes."""


@dataclass(frozen=True)
class Encryption:
    """Name of the key that wraps a segment's data key, the wrapped key, and the data that is authenticated with each chunk."""

    key_id: str
    wrapped: bytes
    aad: bytes


@dataclass(frozen=True)
class AivenManifest:
    name: str  # of the manifest
    topic: str
    partition: int
    first: int  # first and last offset of the segment
    last: int
    segment_id: str
    epochs: Epochs
    size: int  # bytes of the segment, and of all its chunks but the last
    chunk_size: int
    borders: Int64s = field(compare=False)  # positions in the object at which chunks begin, and the end of the last
    compressed: bool
    encryption: Encryption | None
    # Suffix of an index file, and where its stored bytes are in the object of indexes: position and size, -1 if that is malformed.
    indexes: tuple[tuple[str, int, int], ...] = ()

    @property
    def object_name(self) -> str:
        return storage.with_suffix(self.name, ".log")

    @property
    def indexes_name(self) -> str:
        """Name of the object that has the index files back to back, each encrypted as one chunk if the segment is."""
        return storage.with_suffix(self.name, ".indexes")

    @property
    def is_plain(self) -> bool:
        return not self.compressed and self.encryption is None

    @property
    def largest(self) -> int:
        """Bytes of the segment that the largest chunk has."""
        return min(self.chunk_size, self.size)

    def stored(self, first: int, last: int) -> tuple[int, int]:
        """Bytes [start, end) of the object that chunks ``first`` to ``last`` have."""
        return int(self.borders[first]), int(self.borders[last + 1])

    def span(self, chunk: int) -> tuple[int, int]:
        """Bytes [start, end) of the segment that a chunk has."""
        return chunk * self.chunk_size, min((chunk + 1) * self.chunk_size, self.size)


def read_manifest(file: storage.FolderEntry) -> AivenManifest | CorruptBatchError:
    """Read a manifest; the error, with the field, if it is missing or malformed. A KolumnError is raised if a file system far away failed
    again and again: the manifest may be right."""
    if file.size > _MOST_BYTES:
        return _fault(file.name, f"{file.size} bytes, which are too many")
    data = storage.read_bytes(file.name)
    if data is None:
        return _fault(file.name, "no file, or one that cannot be read")
    try:
        return parse(file.name, data)
    except KolumnError as error:
        return _fault(file.name, str(error).removeprefix(f"{file.name}: "))


def _fault(name: str, found: str) -> CorruptBatchError:
    return CorruptBatchError(name, 0, Code.SEGMENT_MISSING, expected="a manifest of a tier's segment", found=found)


def read_manifests(files: Sequence[storage.FolderEntry]) -> list[AivenManifest | CorruptBatchError]:
    with workers(TIER) as pool:
        return list(pool.map(read_manifest, files))


def objects_of(manifests: list[storage.FolderEntry], names: list[str], told: bool) -> set[str]:
    """Names of the objects that have a manifest. Logs a warning about objects without one, unless ``told``."""
    objects = {storage.with_suffix(manifest.name, ".log") for manifest in manifests}
    unfinished = [name for name in names if name not in objects]
    if unfinished and not told:
        text = "%d objects without a manifest are left out, as copies that were not finished: the first is %s"
        logger.warning(text, len(unfinished), shown(unfinished[0]))
    return objects


def manifest_of(file: storage.FolderEntry) -> storage.FolderEntry | None:
    """The manifest of a file that is one, or that is the object beside one; None of other files."""
    if file.name.endswith(MANIFEST):
        return file
    parts = stem(storage.base_name(file.name))
    return None if parts is None or parts[1] is None else storage.look(storage.with_suffix(file.name, MANIFEST))


def parse(name: str, data: bytes) -> AivenManifest:
    """Parse a manifest; errors as `read_manifest`."""
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise KolumnError(f"{name}: expected a manifest of Aiven's tiered-storage, a JSON object: {error}") from error
    reader = _Reader(name, top, "")
    if str(reader.raw("version")) != "1":
        reader.refuse("version", "1")
    chunks, metadata = reader.member("chunkIndex"), reader.member("remoteLogSegmentMetadata")
    segment = metadata.member("remoteLogSegmentId")
    partition = segment.member("topicIdPartition").member("topicPartition")
    size, chunk_size = chunks.number("originalFileSize", 0), chunks.number("originalChunkSize", 1)
    compressed = reader.raw("compression")
    if not isinstance(compressed, bool):
        reader.refuse("compression", "true or false")
    borders = _borders(chunks, -(-size // chunk_size))
    encryption = _encryption(reader) if reader.fields.get("encryption") is not None else None
    stored = int(borders[-1]) - (0 if encryption is None else (len(borders) - 1) * CIPHER_BYTES)
    if not compressed and stored != size:
        chunks.refuse("originalFileSize", f"the {stored} bytes of its chunks, which are stored without compression")
    topic, first = partition.text("topic"), metadata.number("startOffset", 0, _LAST_OFFSET)
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        partition.refuse("topic", "a topic's name: at most 249 letters, digits, '.', '_' and '-'")
    _compare_names(name, partition, metadata, segment)
    last = metadata.number("endOffset", first, _LAST_OFFSET)
    named = name, topic, partition.number("partition", 0), first, last, segment.text("id"), _epochs(metadata, last)
    return AivenManifest(*named, size, chunk_size, borders, compressed, encryption, _indexes(reader.raw("segmentIndexes")))


class _Reader:
    """Members of a JSON object, checked; ``path`` is its place in the manifest."""

    def __init__(self, name: str, fields: object, path: str) -> None:
        self.name, self.path = name, path
        if not isinstance(fields, dict):
            self.refuse("", "a JSON object", fields)
        self.fields: dict[str, Any] = fields

    def refuse(self, field: str, expected: str, *found: object) -> NoReturn:
        value = found[0] if found else self.fields.get(field)
        where = ".".join(filter(None, (self.path, field))) or "the whole"
        raise KolumnError(f"{self.name}: manifest of a tier's segment, {where}: expected {expected}, found {str(value)[:80]!r}")

    def raw(self, field: str) -> Any:
        return self.fields.get(field)

    def member(self, field: str) -> "_Reader":
        return _Reader(self.name, self.raw(field), ".".join(filter(None, (self.path, field))))

    def number(self, field: str, least: int, most: int = 2**31 - 1) -> int:
        value = self.raw(field)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(field, f"an integer from {least} to {most}")
        return value

    def text(self, field: str) -> str:
        value = self.raw(field)
        if not isinstance(value, str) or not value:
            self.refuse(field, "text")
        return value

    def data(self, field: str, text: str | None = None) -> bytes:
        try:
            return b64decode(self.text(field) if text is None else text, validate=True)
        except (binascii.Error, ValueError):
            self.refuse(field, "base64")


def _compare_names(name: str, partition_reader: _Reader, metadata: _Reader, segment: _Reader) -> None:
    """Refuse a manifest that says something else than its name: a changed byte would move a segment to another log, or over others."""
    folder = storage.parent(name)
    topic, partition = tier_partition(storage.base_name(folder), storage.base_name(storage.parent(folder))) or (None, -1)
    base, copy = stem(storage.base_name(name)) or (None, None)
    for fields, member, named in (
        (partition_reader, "topic", topic),
        (partition_reader, "partition", None if partition < 0 else partition),
        (metadata, "startOffset", base),
        (segment, "id", copy),
    ):
        if named is not None and fields.raw(member) != named:
            fields.refuse(member, f"{named!r}, as in its name")


def _epochs(metadata: _Reader, last: int) -> Epochs:
    starts_by_epoch = metadata.raw("segmentLeaderEpochs") or {}
    if not isinstance(starts_by_epoch, dict) or not all(re.fullmatch(r"[0-9]{1,10}", epoch) for epoch in starts_by_epoch):
        metadata.refuse("segmentLeaderEpochs", "offsets by leader epoch")
    starts = metadata.member("segmentLeaderEpochs") if starts_by_epoch else metadata
    epochs = tuple(sorted((int(epoch), starts.number(epoch, 0, last)) for epoch in starts_by_epoch))
    if any(epoch > _LAST_EPOCH for epoch, _ in epochs) or any(before[1] > after[1] for before, after in pairwise(epochs)):
        metadata.refuse("segmentLeaderEpochs", "offsets that increase with leader epochs")
    return epochs


def _indexes(fields: object) -> tuple[tuple[str, int, int], ...]:
    """Places of index files. They are hints: if anything about them is wrong, all have the size -1, so that none is taken for absent.
    Aiven's classes write all members, null for what is absent, and the files stand back to back."""
    members = fields if isinstance(fields, dict) else {}
    places = [(suffix, *_place(members.get(name, ""))) for name, suffix in INDEX_NAMES.items()]
    stored = sorted(place for _, *place in places if place != [0, 0])
    if any(before[1] < 0 for before in stored) or any(sum(before) != after[0] for before, after in pairwise([[0, 0], *stored])):
        return tuple((suffix, 0, -1) for suffix, _, _ in places)
    return tuple(place for place in places if place[1:] != (0, 0))


def _place(member: object) -> tuple[int, int]:
    """Position and size; (0, 0) of an absent file, (0, -1) if they are malformed."""
    if member is None:
        return 0, 0
    position, size = (member.get("position"), member.get("size")) if isinstance(member, dict) else (None, None)
    if type(position) is not int or type(size) is not int or position < 0 or not 0 <= size <= _MOST_BYTES:
        return 0, -1
    return (position, size) if size else (0, 0)


def _encryption(top: _Reader) -> Encryption:
    reader = top.member("encryption")
    key_id, colon, wrapped = reader.text("dataKey").rpartition(":")
    if not colon:
        reader.refuse("dataKey", "the name of a key, a colon and base64", "no colon")
    return Encryption(key_id, reader.data("dataKey", wrapped), reader.data("aad"))


def _borders(chunks: _Reader, count: int) -> Int64s:
    type = chunks.raw("type")
    if count > _MOST_CHUNKS:
        chunks.refuse("originalChunkSize", f"at most {_MOST_CHUNKS} chunks")
    if type == "variable":
        sizes = _variable(chunks, count)
    elif type == "fixed":
        size, last = chunks.number("transformedChunkSize", 0), chunks.number("finalTransformedChunkSize", 0)
        sizes = np.full(count, size, np.int64)
        sizes[-1:] = last
    else:
        chunks.refuse("type", "fixed or variable")
    borders = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=borders[1:])
    return borders


def _variable(chunks: _Reader, count: int) -> Any:
    """Sizes of chunks: i32 count | 0: end; 1: i32 size; else i32 base | i8 width | (count - 1) times width bytes | i32 last size."""
    frame = chunks.data("transformedChunks")
    try:
        if not 0 < zstandard.frame_content_size(frame) <= _MOST_BYTES:
            chunks.refuse("transformedChunks", f"a zstd frame with a size of at most {_MOST_BYTES} bytes")
        raw = zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as error:
        chunks.refuse("transformedChunks", "a zstd frame", error)
    stored = int.from_bytes(raw[:4], "big", signed=True)
    width = raw[8] if stored > 1 and len(raw) > 8 else 0
    length = 4 if stored == 0 else 8 if stored == 1 else 13 + (stored - 1) * width
    if stored != count or len(raw) != length or (stored > 1 and not 1 <= width <= 4):
        chunks.refuse("transformedChunks", f"sizes of {count} chunks", f"{stored} sizes in {len(raw)} bytes")
    if count < 2:
        return np.frombuffer(raw, ">i4", count, 4).astype(np.int64)
    bytes_of = np.frombuffer(raw, np.uint8, (count - 1) * width, 9).reshape(-1, width).astype(np.int64)
    sizes = bytes_of @ (256 ** np.arange(width - 1, -1, -1, dtype=np.int64)) + int.from_bytes(raw[4:8], "big", signed=True)
    sizes = np.append(sizes, int.from_bytes(raw[-4:], "big", signed=True))
    if (sizes < 0).any():
        chunks.refuse("transformedChunks", "sizes of 0 and more", int(sizes.min()))
    return sizes
