"""Segments for the questions about cliffs: headers, transactions, null values, and directories of many small segments.

They are deterministic, written once to ``build/bench``, and independent of Kolumn's own encoders, as those of `bench.data`.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from bench import data

BYTES = 32 << 20
TRANSACTIONS = 2000
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_COMMIT_KEY, _COMMIT_VALUE = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)
_THREE = [(b"traceparent", b"00-4bf92f3577b34da6-00f067aa0ba902b7-01"), (b"origin", b"checkout"), (b"attempt", b"1")]


def headers(codec: str) -> Path:
    """A segment of 32 MiB in batches of 16 KiB, whose records have three headers each."""
    return _once(f"headers_{codec}-0", _plain(codec, data.VALUE_BYTES, _THREE))


def nulls() -> Path:
    """A segment of 32 MiB in batches of 16 KiB, whose values are null."""
    return _once("nulls-0", _plain("none", None, []))


def transactions() -> Path:
    """A segment of 32 MiB with `TRANSACTIONS` committed transactions, of one batch and a marker each."""
    return _once("transactions-0", _committed())


def many_segments(segments: int, batches: int, partitions: int = 50) -> Path:
    """A directory of small segments, each with the same number of 16 KiB batches, in topic-partitions ``t-0``, ``t-1`` ...

    Zero batches make segments of one record.
    """
    folder = data.FOLDER / f"many_{segments}_{batches}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        whole = b"".join(data.batches("none", batches * data.BATCH_BYTES)) if batches else _batch(0, [_record(0, b"key", b"value", [])])
        count = data.records(whole)
        for partition in range(partitions):
            inner = partial / f"t-{partition}"
            inner.mkdir(parents=True, exist_ok=True)
            for i in range(segments // partitions):
                (inner / f"{i * count:020d}.log").write_bytes(data.rebase(whole, i * count))
        partial.rename(folder)
    return folder


def _plain(codec: str, value_bytes: int | None, record_headers: list[tuple[bytes, bytes]]) -> Iterator[bytes]:
    done, offset, text = 0, 0, data.text(1 << 20)
    some = [None] if value_bytes is None else [text[at : at + value_bytes] for at in range(0, len(text) - value_bytes, value_bytes)]
    each = data.BATCH_BYTES // len(_record(1000, b"key%08d" % 0, some[0], record_headers))
    while done < BYTES:
        values = (some[(offset + i) % len(some)] for i in range(each))
        records = [_record(i, b"key%08d" % (offset + i), value, record_headers) for i, value in enumerate(values)]
        yield (batch := _batch(offset, records, codec))
        done, offset = done + len(batch), offset + each


def _committed() -> Iterator[bytes]:
    offset, value = 0, b"v" * 100
    each = (BYTES // TRANSACTIONS) // len(_record(100, b"key%08d" % 0, value, []))
    for number in range(TRANSACTIONS):
        producer = 1000 + number % 50, number % 3000
        records = [_record(i, b"key%08d" % (offset + i), value, []) for i in range(each)]
        yield _batch(offset, records, "none", _TRANSACTIONAL, producer, offset)
        offset += each
        yield _batch(offset, [_record(0, _COMMIT_KEY, _COMMIT_VALUE, [])], "none", _TRANSACTIONAL | _CONTROL, (producer[0], producer[1]))
        offset += 1


def _record(delta: int, key: bytes, value: bytes | None, record_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = b"\0" + data.varint(delta) + data.varint(delta) + data.varint(len(key)) + key
    body += b"\1" if value is None else data.varint(len(value)) + value
    body += data.varint(len(record_headers))
    for name, content in record_headers:
        body += data.varint(len(name)) + name + data.varint(len(content)) + content
    return data.varint(len(body)) + body


def _batch(
    base: int, records: list[bytes], codec: str = "none", attributes: int = 0, producer: tuple[int, int] = (-1, -1), sequence: int = -1
) -> bytes:
    payload, first = data.COMPRESS[codec](b"".join(records)), data.BASE_TIMESTAMP + base
    attributes |= data.CODECS.index(codec)
    count = len(records)
    covered = struct.pack(">hiqqqhii", attributes, count - 1, first, first + count - 1, *producer, sequence, count) + payload
    return struct.pack(">qiibI", base, 9 + len(covered), 0, 2, crc32c(covered)) + covered


def _once(name: str, made: Iterator[bytes]) -> Path:
    path = data.FOLDER / name / f"{0:020d}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.writelines(made)
        partial.rename(path)
    return path
