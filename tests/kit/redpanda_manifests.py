"""Manifests and buckets of Redpanda in plain Python: both kinds of manifests, and the keys of objects. Slow and readable."""

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kit.streams import xxh32

NOT_SET = -(2**63)
COLUMNS = (
    *("is_compacted", "size_bytes", "base_offset", "committed_offset", "base_timestamp", "max_timestamp", "delta_offset", "ntp_revision"),
    *("archiver_term", "segment_term", "delta_offset_end", "sname_format", "metadata_size_hint"),
)


@dataclass(frozen=True)
class Meta:
    """A segment as a manifest names it; the fields have the names of the JSON kind."""

    base_offset: int
    committed_offset: int
    size_bytes: int
    segment_term: int = 1
    archiver_term: int = 1
    ntp_revision: int = NOT_SET
    delta_offset: int = 0
    delta_offset_end: int = 0
    sname_format: int = 3
    is_compacted: int = 0
    base_timestamp: int = 1000
    max_timestamp: int = 2000
    metadata_size_hint: int = 0

    @property
    def short(self) -> str:
        return f"{self.base_offset}-{self.segment_term}-v1.log"

    @property
    def name(self) -> str:
        return (
            self.short
            if self.sname_format == 1
            else f"{self.base_offset}-{self.committed_offset}-{self.size_bytes}-{self.segment_term}-v1.log"
        )

    @property
    def suffix(self) -> str:
        return "" if self.archiver_term == NOT_SET else f".{self.archiver_term}"


@dataclass(frozen=True)
class Head:
    """What a manifest says of its partition."""

    topic: str = "t"
    partition: int = 0
    revision: int = 18
    namespace: str = "kafka"
    last_offset: int = 0
    start_offset: int = NOT_SET
    archive_start_offset: int = NOT_SET
    start_kafka_offset: int = NOT_SET

    @property
    def ntp(self) -> str:
        return f"{self.namespace}/{self.topic}/{self.partition}_{self.revision}"


def as_json(head: Head, metas: Iterable[Meta]) -> bytes:
    """``manifest.json``, without fields that are not set."""
    top = {key: value for key, value in asdict(head).items() if value != NOT_SET}
    segments = {meta.short: {key: value for key, value in asdict(meta).items() if value != NOT_SET} for meta in metas}
    for fields in segments.values():
        fields["is_compacted"] = bool(fields["is_compacted"])
    return json.dumps({"version": 1, **top, "segments": segments}).encode()


def as_binary(
    head: Head, metas: Sequence[Meta], replaced: int = 0, spilled: Sequence[Meta] | None = None, frame: int = 64, hints: int = 0
) -> bytes:
    """``manifest.bin``; ``frame`` are the rows of a full frame, a multiple of 16."""
    text = [_sized(value.encode()) for value in (head.namespace, head.topic)]
    old = [_envelope(struct.pack("<QqqqqQi", 0, 0, 9, 1, 1, 10, 3)) for _ in range(replaced)]
    offsets = struct.pack("<qqqqQ", head.last_offset, head.start_offset, NOT_SET, NOT_SET, sum(meta.size_bytes for meta in metas))
    more = struct.pack("<qqqqQ", head.archive_start_offset, NOT_SET, NOT_SET, head.start_kafka_offset, 0)
    parts = [*text, struct.pack("<iq", head.partition, head.revision), _sized(column_store(metas, frame, hints))]
    parts += [struct.pack("<I", replaced), *old, offsets, more]
    parts += [] if spilled is None else [_sized(column_store(spilled, frame, hints)), b"of a newer release"]
    return _envelope(b"".join(parts))


def column_store(metas: Sequence[Meta], frame: int = 64, hints: int = 0) -> bytes:
    columns = b"".join(_column([getattr(meta, name) for meta in metas], frame, name == "base_offset") for name in COLUMNS)
    hint = _envelope(struct.pack("<qII", 1, 2, 3))
    after = struct.pack("<I", hints) + b"".join(struct.pack("<q?I", i, True, 1) + hint for i in range(hints))
    return _envelope(_envelope(columns) + after)


def _column(values: list[int], frame: int, is_delta: bool) -> bytes:
    frames = [_frame(values[i : i + frame], is_delta) for i in range(0, len(values), frame)]
    return _envelope(struct.pack("<I", len(frames)) + b"".join(frames))


def _frame(values: list[int], is_delta: bool) -> bytes:
    """Full groups of 16 are packed, and the rest is the head, which keeps the values of before where it is not full."""
    full = len(values) & ~15
    head = values[full:] + [7] * (16 - len(values) + full)
    tail = b""
    if full:
        initial, data, before = values[0], b"", values[0]
        for i in range(0, full, 16):
            numbers = []
            for value in values[i : i + 16]:
                numbers.append((value - before if is_delta else value ^ before) % 2**64)
                before = value
            data += _packed(numbers)
        tail = _envelope(struct.pack("<qq", initial, before) + _sized(data) + struct.pack("<I", full // 16))
    last = struct.pack("<?", True) + _envelope(struct.pack("<qII", 0, 0, 0))
    return _envelope(struct.pack("<I16q?", 16, *head, bool(full)) + tail + struct.pack("<Q", len(values)) + last)


def _packed(numbers: list[int]) -> bytes:
    """16 numbers in planes of bits."""
    bits = max(number.bit_length() for number in numbers)
    planes, rest = [], bits
    for width in (64,) if bits == 64 else (32, 16, 8):
        if rest >= width:
            planes.append(width)
            rest -= width
    planes += [rest] if rest else []
    out, low = bytes([bits]), 0
    for width in planes:
        plane = sum((number >> low & (1 << width) - 1) << width * i for i, number in enumerate(numbers))
        out += plane.to_bytes(2 * width, "little")
        low += width
    return out


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _envelope(data: bytes, version: int = 0) -> bytes:
    return struct.pack("<BBI", version, 0, len(data)) + data


@dataclass
class Bucket:
    """A bucket in a folder. Without a cluster's id, keys begin with hashes."""

    root: Path
    cluster: str | None = None

    def key(self, head: Head, meta: Meta) -> str:
        revision = head.revision if meta.ntp_revision == NOT_SET else meta.ntp_revision
        path = f"{replace(head, revision=revision).ntp}/{meta.name}"
        return "/".join((self.cluster or f"{xxh32(path.encode()):08x}", f"{path}{meta.suffix}"))

    def manifest_key(self, head: Head, kind: str = "bin") -> str:
        prefix = self.cluster or f"{xxh32(head.ntp.encode()) & 0xF0000000:08x}"
        return f"{prefix}/meta/{head.ntp}/manifest.{kind}"

    def put(self, key: str, data: bytes) -> Path:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


def tx_file(ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """A file ``.tx``, from producer ids, first offsets and those of markers."""
    some = [{"pid.id": producer, "pid.epoch": 0, "first": first, "last": last} for producer, first, last in ranges]
    return json.dumps({"version": 0, "compat_version": 0, "ranges": some}).encode()
