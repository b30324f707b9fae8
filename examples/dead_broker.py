"""A small disk of a broker that died: `python examples/dead_broker.py DIRECTORY [PART]`.

Three topics, and the topic in which a schema registry kept their schemas:

    orders-0, orders-1   Avro by three versions of a schema; some orders are cancelled by a tombstone
    clicks-0             JSON; one batch of it was damaged
    payments-0           transactions of a real Kafka broker, committed and aborted
    _schemas-0           subject orders-value, versions 1 to 3

PART, from 0 to 1, is where in the first segment of the clicks the damage is: 0.51 unless said. Two disks with damage in different places
are what two replicas often are.
"""

import json
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import kolumn

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "data" / "corpus"
MORNING = 1_790_000_000_000  # 2026-09-21, in milliseconds
CUSTOMERS = ["ada", "barbara", "edsger", "grace", "leslie", "tony"]

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "amount", "type": "double"},
    {"name": "items", "type": {"type": "array", "items": ITEM}, "default": []},
    {"name": "coupon", "type": ["null", "string"], "default": None},
]
# Version 1 had three fields; the others came later.
VERSIONS = [{"type": "record", "name": "Order", "fields": FIELDS[:fields]} for fields in (3, 4, 5)]


def _long(value: int) -> bytes:
    """Avro's zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(value: str) -> bytes:
    return _long(len(value.encode())) + value.encode()


def order(rng: random.Random, id: int, version: int) -> bytes:
    """An order as a registry's serializer writes it: magic byte, schema id, Avro."""
    body = _long(id) + _text(rng.choice(CUSTOMERS)) + struct.pack("<d", round(rng.uniform(5, 500), 2))
    if version > 1:
        items = [_text(f"sku-{rng.randrange(50)}") + _long(rng.randrange(1, 5)) for _ in range(rng.randrange(1, 4))]
        body += _long(len(items)) + b"".join(items) + b"\0"
    if version > 2:
        body += b"\0" if rng.random() < 0.7 else b"\2" + _text("WELCOME10")
    return b"\0" + struct.pack(">I", version) + body


def orders(partition: int, count: int) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Key, value and time of each record; every fiftieth order is cancelled."""
    rng = random.Random(partition)
    for i in range(count):
        id = 2 * i + partition
        yield f"order-{id}".encode(), order(rng, id, 1 + 3 * i // count), MORNING + 900 * i
        if i % 50 == 49:
            yield f"order-{id - 20}".encode(), None, MORNING + 900 * i + 5


def clicks(count: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Clicks on pages, as JSON."""
    rng = random.Random(7)
    for i in range(count):
        click = {"user": rng.choice(CUSTOMERS), "page": f"/p/{rng.randrange(40)}", "ms": rng.randrange(20, 2000)}
        yield f"session-{rng.randrange(200)}".encode(), json.dumps(click).encode(), MORNING + 90 * i


def schemas() -> Iterator[tuple[bytes, bytes, int]]:
    """The versions as Confluent's registry keeps them."""
    for number, schema in enumerate(VERSIONS, 1):
        key = {"keytype": "SCHEMA", "subject": "orders-value", "version": number, "magic": 1}
        value = {"subject": "orders-value", "version": number, "id": number, "schema": json.dumps(schema), "deleted": False}
        yield json.dumps(key).encode(), json.dumps(value).encode(), MORNING


def _write(records: Iterator[tuple[bytes, bytes | None, int]], folder: Path, **how: Any) -> None:
    keys, values, times = zip(*records, strict=True)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
    }
    kolumn.write(pa.table(columns), folder, **how)


def make(disk: Path, part: float = 0.51) -> None:
    """Write the disk; what already exists is replaced."""
    shutil.rmtree(disk, ignore_errors=True)
    for partition in (0, 1):
        _write(orders(partition, 5_000), disk / f"orders-{partition}")
    _write(clicks(20_000), disk / "clicks-0", segment_bytes=800_000)
    _write(schemas(), disk / "_schemas-0")
    shutil.copytree(CORPUS / "transactional" / "txn-zstd-0", disk / "payments-0")
    # A sector that the disk no longer holds: zeros in the middle of a batch.
    segment = min((disk / "clicks-0").glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(int(segment.stat().st_size * part))
        file.write(bytes(512))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    make(Path(sys.argv[1]), *map(float, sys.argv[2:]))
