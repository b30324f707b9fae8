"""Orders with a list of items, as Avro, Protobuf and JSON: about 48, 49 and 143 bytes each."""

import io
import json
import random
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "ts", "type": "long"},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}],
                },
            },
        },
    ],
}
ARROW = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("customer", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("note", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("items", pa.list_(pa.struct([pa.field("sku", pa.string()), pa.field("qty", pa.int32())]))),
    ]
)


def orders(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Records as Python's."""
    rng = random.Random(seed)
    return [
        {
            "id": rng.randrange(1 << 20),
            "customer": f"customer-{rng.randrange(1000)}",
            "amount": round(rng.random() * 1000, 2),
            "note": None if rng.random() < 0.5 else "leave at door",
            "ts": 1_700_000_000_000 + rng.randrange(1 << 20),
            "items": [{"sku": f"s{rng.randrange(100)}", "qty": rng.randrange(1, 9)} for _ in range(rng.randrange(3))],
        }
        for _ in range(count)
    ]


@cache
def message() -> Any:
    """The class of an order, and the set of files that describes it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="bench", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    item, order = file.message_type.add(name="Item"), file.message_type.add(name="Order")
    item.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    item.field.add(name="qty", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    for number, (name, kind) in enumerate(
        {"id": field.TYPE_INT64, "customer": field.TYPE_STRING, "amount": field.TYPE_DOUBLE, "note": field.TYPE_STRING,
         "ts": field.TYPE_INT64}.items(), 1
    ):  # fmt: skip
        one = order.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
        if name == "note":
            one.oneof_index, one.proto3_optional = 0, True
    order.field.add(name="items", number=6, type=field.TYPE_MESSAGE, type_name=".bench.Item", label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order")), descriptor_pb2.FileDescriptorSet(file=[file])


def as_avro(rows: list[dict[str, Any]]) -> list[bytes]:
    """Bodies without a prefix."""
    schema, made = fastavro.parse_schema(AVRO), []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        made.append(out.getvalue())
    return made


def as_protobuf(rows: list[dict[str, Any]]) -> list[bytes]:
    """Messages."""
    order = message()[0]
    return [order(**{name: value for name, value in row.items() if value is not None}).SerializeToString() for row in rows]


def as_json(rows: list[dict[str, Any]]) -> list[bytes]:
    """Objects without spaces."""
    return [json.dumps(row, separators=(",", ":")).encode() for row in rows]
