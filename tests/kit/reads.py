"""Reads of logs in Spark, of which some have values of every type, and random queries with the options of their reads."""

import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory

import kolumn
from kit.avro_values import encoded
from kit.corpus import HERE as CORPUS
from kit.protobuf_values import ORDER, body
from kit.queries import COLUMNS, TYPED, Asks, avro_value, json_value, own_logs
from kolumn.core.schema import HEADERS, RECORD_COLUMNS
from kolumn.values.protobuf_schema import file_of

Read = tuple[str, str, dict[str, str]]
"""A name, a path, and options."""
DIGITS = (9, 18, 38, 60)
AVRO = {"type": "record", "name": "Everything", "fields": [
    {"name": "nothing", "type": "null"},
    *({"name": f"a_{kind}", "type": ["null", kind]} for kind in ("boolean", "int", "long", "float", "double", "bytes", "string")),
    {"name": "label", "type": {"type": "enum", "name": "Label", "symbols": ["one", "two"]}},
    {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "span", "type": {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"}},
    *({"name": f"dec{most}", "type": {"type": "bytes", "logicalType": "decimal", "precision": most, "scale": 2}} for most in DIGITS),
    {"name": "items", "type": {"type": "array", "items": {
        "type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}}},
    {"name": "named", "type": {"type": "map", "values": ["null", "long"]}},
    {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}},
    {"name": "inner_local", "type": {"type": "array", "items": {"type": "long", "logicalType": "local-timestamp-micros"}}},
]}  # fmt: skip
"""A field of each type that values have in Spark."""
EVERYTHING = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO)}
NOT_ON_GPU = {"nothing": "void", "local": "timestamp_ntz", "inner_local": "array<timestamp_ntz>"}
TAKEN = [name for name in (field["name"] for field in AVRO["fields"]) if name not in NOT_ON_GPU]  # type: ignore[index]


def everything(i: int) -> dict[str, Any]:
    return {
        "nothing": None, "a_boolean": bool(i % 2), "a_int": -i, "a_long": i << 40, "a_float": i / 2, "a_double": i / 3 if i % 4 else None,
        "a_bytes": b"\xff" * (i % 3), "a_string": None if i % 5 == 0 else f"text {i}", "label": ("one", "two")[i % 2], "digest": b"abcd",
        "day": date(1, 1, 1) if i == 1 else date(2026, 1, 1 + i % 28), "clock": i * 1000, "local": 10**15 + i, "span": bytes(range(12)),
        "moment": datetime(1, 1, 2, tzinfo=UTC) if i == 2 else datetime(2026, 1, 1, 0, 0, i % 60, 1, tzinfo=UTC),
        **{f"dec{most}": Decimal(i).scaleb(-2) for most in DIGITS}, "items": [{"sku": f"s{k}"} for k in range(i % 3)],
        "named": {f"k{k}": k or None for k in range(i % 4)}, "inner": {"x": i / 7}, "inner_local": [i],
    }  # fmt: skip


def orders(root: Path) -> Path:
    for partition in range(3):
        table = {
            "key": pa.array([f"k{i % 5}".encode() for i in range(400)]), "value": pa.array([json_value(i) for i in range(400)]),
            "headers": pa.array([[{"key": f"h{k}", "value": b"x" * k} for k in range(i % 4)] for i in range(400)], HEADERS),
        }  # fmt: skip
        kolumn.write(pa.table(table), root / f"orders-{partition}", batch_bytes=1000)
    return root


def damaged(root: Path) -> Path:
    kolumn.write(pa.table({"value": pa.array([b"v" * 50] * 500)}), root / "bad-0", batch_bytes=2000)
    path = root / "bad-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[3000] ^= 255
    path.write_bytes(data)
    return root


def reads(scratch: Path) -> list[Read]:
    """Of the corpus, and of logs that are made in a folder: orders, damaged, avro."""
    values = pa.array([encoded(AVRO, everything(i)) if i % 9 else None for i in range(300)], pa.binary())
    kolumn.write(pa.table({"value": values}), scratch / "avro" / "avro-0")
    every = ",".join(RECORD_COLUMNS)
    found: list[tuple[str, Path, dict[str, str]]] = [
        *((f"{folder.replace('/', ' ')}", CORPUS / folder, {"columns": every, "splitBytes": "20000"}) for folder in (
            "v0/v0-lz4-0", "v1/v1-lz4-0", "v2-java/java-zstd-0", "transactional/txn-zstd-0",
        )),
        ("committed", CORPUS / "transactional/txn-zstd-0", {"isolationLevel": "read_committed", "columns": "offset,value"}),
        ("string", orders(scratch / "orders"), {"payload": "string", "columns": "key,value,headers,offset"}),
        ("damaged", damaged(scratch / "damaged"), {"errors": "skip"}),
        ("typed", scratch / "avro", EVERYTHING | {"columns": "value,valueValid,offset", "valueColumns": ",".join(TAKEN)}),
    ]  # fmt: skip
    return [(name, str(path), options) for name, path, options in found]


MESSAGE_FIELDS = "id,customer,items.sku,items.qty,items.parts,first.sku,first.parts,label,numbers,paid,price,raw"
"""Of an order, those that kernels decode as Spark has them."""


def _order(make: Any, i: int) -> Any:
    items = [{"sku": f"s{k}", "qty": -k, "parts": [b"x" * k] * 2} for k in range(i % 3)]
    more: dict[str, Any] = {"customer": f"c{i}", "first": items[-1], "label": {"value": "l"}} if items else {}
    return make(id=i << 40, items=items, numbers=[-i, i], paid=i % 2, price=i / 3, raw=b"\xff" * (i % 4), **more)


def messages(scratch: Path, chance: random.Random) -> Read:
    """Of a log of Protobuf: a partition as it is written, which kernels decode, and one of odd encodings, which they leave to the host.
    Some values are malformed.
    """
    kind = file_of(ORDER, None).message("Order")
    make = message_factory.GetMessageClass(kind)
    plain = [_order(make, i).SerializeToString() if i % 9 else (None, b"\xff")[i % 2] for i in range(200)]
    odd = [body(chance, kind, broken=0.02) if i % 9 else None for i in range(200)]
    for number, values in enumerate((plain, odd)):
        path = scratch / "proto" / f"proto-{number}"
        kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), path, codec="lz4", batch_bytes=2000)
    options = {"valueFormat": "protobuf", "valueSchema": ORDER, "valueMessage": "Order", "valueColumns": MESSAGE_FIELDS}
    return "messages", str(scratch / "proto"), options


def trusted(scratch: Path, chance: random.Random) -> Read:
    """Of batches that a GPU decompresses, of all codecs."""
    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        values = [f"value {chance.randrange(50)} ".encode() * chance.randrange(30) for _ in range(300)]
        kolumn.write(pa.table({"value": pa.array(values)}), scratch / "trusted" / f"trusted-{number}", codec=codec, batch_bytes=20_000)
    return "trusted", str(scratch / "trusted"), {"trusted": "true", "splitBytes": "50000"}


def no_text(scratch: Path, chance: random.Random) -> Read:
    """Of bytes that are called strings."""
    values = pa.array([chance.randbytes(chance.randrange(20)) if i % 7 else None for i in range(300)], pa.binary())
    kolumn.write(pa.table({"value": values, "key": values}), scratch / "bytes" / "bytes-0", batch_bytes=2000)
    return "no text", str(scratch / "bytes"), {"payload": "string", "columns": "key,value,offset"}


def random_queries(scratch: Path, chance: random.Random, kind: str | None) -> Iterator[tuple[str, dict[str, str], str]]:
    """Of a log with values of a kind: a path, options, and a query of ``log``."""
    log = own_logs(scratch / f"own {kind}", chance, avro_value if kind == "avro" else json_value)
    more, columns = TYPED[kind] if kind else {}, [*COLUMNS, *(["valueValid"] if kind else [])]
    named = {re.sub("_(.)", lambda match: match[1].upper(), name): str(one) for name, one in more.items()}
    asks = Asks(chance, kolumn.read(log, columns=columns, **more), kind)
    while True:
        options = {"columns": ",".join(columns), "splitBytes": chance.choice(["5000", "200000"]), **named}
        yield str(log), options, re.sub(r"\boffset\b", "`offset`", asks.query())
