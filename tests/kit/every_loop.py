"""Calls every loop of the CPU: every format and codec, views, ranges, headers, damage, writing, conversion, compaction, typed values.

``python -m kit.every_loop CORPUS SCRATCH [MACHINE_CODE]`` prints as JSON which loops ran, and a digest of each answer. With a folder of
machine code for AArch64, `kit.arm` runs the loops.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import kolumn
from kit.guarded import bodies
from kit.wrong_records import cases
from kolumn.cpu_fallback.machine.loops import LOOPS
from kolumn.values.avro import AvroDecoder
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.framing import Framer
from kolumn.values.json import JsonDecoder
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.schemas.collections import given_schemas
from kolumn.values.schemas.schema import Schema


def answers(corpus: Path, scratch: Path) -> Iterator[object]:
    """What Kolumn answers; what it writes is in ``scratch``."""
    for folder in sorted(corpus.glob("*/*-0")):
        source = str(folder)
        yield kolumn.read(source, include_headers=True)
        yield kolumn.read(source, binary="view", threads=1, isolation_level="read_committed", start_timestamp=1)
        yield kolumn.batches(source)
        yield kolumn.read(source, threads=2, chunk_bytes=5000)
    yield from _written(corpus / "v2-java" / "java-zstd-0", scratch)
    yield Framer("auto", given_schemas({1: '"int"'})).bodies(pa.array([bytes([0, 0, 0, 0, 1, 2])]))[1]
    yield ProtobufDecoder('syntax = "proto3"; message A { map<int32, int32> a = 1; }').decode(bodies([bytes([10, 2, 8, 1, 10, 0])]))
    yield AvroDecoder(Schema("AVRO", '"int"')).decode(bodies([bytes([2])]))
    yield JsonDecoder(pa.struct([("a", pa.int64())])).decode(bodies([b"{}", b"["]))
    yield JsonDecoder(JSON_TEXT).decode(bodies([b"{}", b"["]))


def _written(java: Path, scratch: Path) -> Iterator[object]:
    table = kolumn.read(java, include_headers=True).drop_columns(["topic", "partition"])
    plain = table.drop_columns(["headers"])
    for format in ("kafka", "enriched", "kip98-draft", "v3-compact", "kip87"):
        for codec in ("gzip", "none"):
            target = scratch / f"{format}-{codec}-0"
            kolumn.write(table if format in ("kafka", "v3-compact") else plain, target, format=format, codec=codec)
            yield kolumn.read(target, format=format)
    for magic in (0, 1):
        kolumn.write(plain, scratch / f"old-{magic}-0", magic=magic, codec="gzip")
        kolumn.convert(scratch / f"old-{magic}-0", scratch / f"other-{magic}", magic=1 - magic)
        yield _damaged(scratch / f"old-{magic}-0", 40, b"bang", scratch)
    kolumn.write(plain, scratch / "plain-0", magic=1)
    yield _damaged(scratch / "plain-0", 8, (13).to_bytes(4, "big") + b"bang", scratch)
    for position in (8, 100):
        yield _damaged(java, position, (5000).to_bytes(4, "big"), scratch)
    wrong = next(case for case in cases() if case.name == "2 0 middle")
    (scratch / "wrong.log").write_bytes(wrong.data)
    yield kolumn.read(scratch / "wrong.log", errors="skip")
    large = pa.table({"value": pa.array([bytes(1 << 20)] * 12), "offset": range(12)})
    for codec in ("gzip", "zstd", "lz4", "snappy", "none"):
        kolumn.write(large, scratch / f"large-{codec}-0", codec=codec, batch_bytes=12 << 20)
        yield kolumn.read(scratch / f"large-{codec}-0")
    kolumn.convert(scratch / "kafka-none-0", scratch / "compact", format="v3-compact")
    kolumn.compact(scratch / "old-1-0", scratch / "compacted-1", include_active=True, first_dirty_offset=1)
    kolumn.compact(scratch / "enriched-gzip-0", scratch / "compacted-enriched", include_active=True, format="enriched")
    for source, format in ((java, "v3-compact"), (scratch / "v3-compact-none-0", "kafka"), (scratch / "old-1-0", "enriched")):
        kolumn.convert(source, scratch / f"converted-{format}", format=format, source_format="v3-compact" if format == "kafka" else "kafka")
    kolumn.convert(scratch / "kafka-none-0", scratch / "messages", magic=1)
    kolumn.convert(scratch / "kafka-none-0", scratch / "redpanda", format="redpanda")
    kolumn.write(pa.table({"key": [b"a", b"b", b"a"], "value": [b"1", b"2", b"3"], "offset": range(3)}), scratch / "repeated-0")
    kolumn.compact(scratch / "repeated-0", scratch / "compacted-2", include_active=True)
    yield kolumn.space(java)
    yield [path.read_bytes() for path in sorted(scratch.rglob("*")) if path.is_file()]


def _damaged(folder: Path, position: int, value: bytes, scratch: Path) -> object:
    """What `kolumn.verify` says of a copy of a folder's first segment with other bytes at a position."""
    (segment,) = sorted(folder.glob("*.log"))[:1]
    target = scratch / f"{folder.name[:-2]}-damaged-{position}-0"
    target.mkdir()
    data = bytearray(segment.read_bytes())
    data[position : position + len(value)] = value
    (target / segment.name).write_bytes(data)
    return kolumn.verify(target)


def _plain(answer: Any) -> object:
    """An answer without tables and arrays, whose text leaves out what is long."""
    if isinstance(answer, pa.Table | pa.Array):
        return answer.to_pylist()
    if isinstance(answer, tuple):
        return [_plain(one) for one in answer]
    return {name: _plain(one) for name, one in vars(answer).items()} if is_dataclass(answer) else answer


def main(corpus: str, scratch: str, machine_code: str | None = None) -> None:
    """Print the loops that ran and the digests."""
    if machine_code is not None:
        from kit import arm

        arm.use(Path(machine_code))
    texts = (repr(_plain(answer)).replace(scratch, "") for answer in answers(Path(corpus), Path(scratch)))
    found = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    print(json.dumps({"loops": sorted(name for name, loop in LOOPS.items() if loop._run is not None), "digests": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
