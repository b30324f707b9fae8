"""A small disk of a broker that died: `python examples/dead_broker.py DIRECTORY [PART]`.

Four topics, and the topic in which a schema registry kept their schemas:

    orders-0, orders-1   Avro by three versions of a schema; some orders are cancelled by a tombstone
    clicks-0             JSON; one batch of it was damaged
    payments-0           transactions of a real Kafka broker, committed and aborted
    shipments-0          Protobuf; each value says which message of its .proto file it is
    _schemas-0           subject orders-value, versions 1 to 3, and subject shipments-value

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
CARRIERS = 3
SHIPMENT = """\
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";

message Address {
  string city = 1;
  string country = 2;
}

message Shipment {
  enum Carrier {
    UNKNOWN = 0;
    POST = 1;
    COURIER = 2;
  }
  message Parcel {
    int32 grams = 1;
  }
  int64 order = 1;
  Carrier carrier = 2;
  Address address = 3;
  repeated Parcel parcels = 4;
  google.protobuf.Timestamp sent = 5;
}
"""
ADDRESSES = [("London", "GB"), ("Rome", "IT"), ("Eindhoven", "NL"), ("New York", "US")]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _long(value: int) -> bytes:
    """Avro's zigzag varint."""
    return _varint((value << 1) ^ (value >> 63))


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


def _field(number: int, value: int | bytes) -> bytes:
    """A field of Protobuf: a varint, or bytes after their length. A number that is 0 is left out."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(value) if value else b""


def shipments(count: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Shipments of the orders, as a registry's serializer writes them: magic byte, schema id, message indexes, Protobuf."""
    rng = random.Random(11)
    # One index, 1: the second message of the file.
    prefix = b"\0" + struct.pack(">I", len(VERSIONS) + 1) + _long(1) + _long(1)
    for id in range(count):
        city, country = rng.choice(ADDRESSES)
        sent = MORNING + 900 * id + 60_000
        body = _field(1, id) + _field(2, rng.randrange(CARRIERS)) + _field(3, _field(1, city.encode()) + _field(2, country.encode()))
        body += b"".join(_field(4, _field(1, rng.randrange(50, 5_000))) for _ in range(rng.randrange(1, 4)))
        body += _field(5, _field(1, sent // 1000) + _field(2, sent % 1000 * 1_000_000))
        yield f"order-{id}".encode(), prefix + body, sent


def schemas() -> Iterator[tuple[bytes, bytes, int]]:
    """The versions as Confluent's registry keeps them."""
    for number, schema in enumerate(VERSIONS, 1):
        key = {"keytype": "SCHEMA", "subject": "orders-value", "version": number, "magic": 1}
        value = {"subject": "orders-value", "version": number, "id": number, "schema": json.dumps(schema), "deleted": False}
        yield json.dumps(key).encode(), json.dumps(value).encode(), MORNING
    key = {"keytype": "SCHEMA", "subject": "shipments-value", "version": 1, "magic": 1}
    value = {"subject": "shipments-value", "version": 1, "id": len(VERSIONS) + 1, "schemaType": "PROTOBUF", "schema": SHIPMENT}
    yield json.dumps(key).encode(), json.dumps({**value, "deleted": False}).encode(), MORNING


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
    _write(shipments(1_500), disk / "shipments-0")
    # A sector that the disk no longer holds: zeros in the middle of a batch.
    segment = min((disk / "clicks-0").glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(int(segment.stat().st_size * part))
        file.write(bytes(512))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    make(Path(sys.argv[1]), *map(float, sys.argv[2:]))
