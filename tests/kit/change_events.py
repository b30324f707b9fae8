"""Change events of Debezium's tutorial, the table ``inventory.customers``, as Kafka Connect's converters write them: JSON with its schema
and without, and Avro. Source: https://debezium.io/documentation/reference/stable/tutorial.html, ``tutorial.adoc`` of debezium/debezium.
"""

import io
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kolumn

TOPIC = "dbserver1.inventory.customers"
Row = dict[str, Any]
SALLY, GEORGE, EDWARD, ANNE = (
    {"id": id, "first_name": first, "last_name": last, "email": email}
    for id, first, last, email in (
        (1001, "Sally", "Thomas", "sally.thomas@acme.com"),
        (1002, "George", "Bailey", "gbailey@foobar.com"),
        (1003, "Edward", "Walker", "ed@walker.com"),
        (1004, "Anne", "Kretchmar", "annek@noanswer.org"),
    )
)
ANNE_MARIE = ANNE | {"first_name": "Anne Marie"}
Event = tuple[str, Row | None, Row | None, int]
"""Operation, row before, row after, time."""
TUTORIAL: list[tuple[int, Event | None]] = [
    (1001, ("r", None, SALLY, 1490634537160)),
    (1002, ("r", None, GEORGE, 1490634537160)),
    (1003, ("r", None, EDWARD, 1490634537160)),
    (1004, ("r", None, ANNE, 1490634537160)),
    (1004, ("u", ANNE, ANNE_MARIE, 1490635059389)),
    (1004, ("d", ANNE_MARIE, None, 1490635078612)),
    (1004, None),
]
"""Keys and events in the order of the tutorial: a snapshot, an update, a deletion and the tombstone after it."""
LEFT = [SALLY, GEORGE, EDWARD]
_FIELDS: list[dict[str, Any]] = [
    {"type": "int32", "optional": False, "field": "id"},
    *({"type": "string", "optional": False, "field": name} for name in ("first_name", "last_name", "email")),
]
_SOURCE = {"version": "0.8.3.Final", "name": "dbserver1", "server_id": 0, "ts_sec": 0, "file": "mysql-bin.000003", "pos": 154, "row": 0}
_OF_SOURCE = {
    "version": "string",
    "name": "string",
    "server_id": "int64",
    "ts_sec": "int64",
    "file": "string",
    "pos": "int64",
    "row": "int32",
}


def connect_schema(fields: list[dict[str, Any]] = _FIELDS) -> dict[str, Any]:
    """The schema of events about rows with some fields."""
    rows = [{"type": "struct", "fields": fields, "optional": True, "name": f"{TOPIC}.Value", "field": name} for name in ("before", "after")]
    source = [{"type": type, "optional": False, "field": name} for name, type in _OF_SOURCE.items()]
    return {
        "type": "struct", "optional": False, "name": f"{TOPIC}.Envelope", "version": 1,
        "fields": [
            *rows,
            {"type": "struct", "fields": source, "optional": False, "name": "io.debezium.connector.mysql.Source", "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
    }  # fmt: skip


def payload(event: Event) -> dict[str, Any]:
    op, before, after, time = event
    return {"before": before, "after": after, "source": _SOURCE, "op": op, "ts_ms": time}


def in_json(event: Event | None, fields: list[dict[str, Any]] | None = _FIELDS) -> bytes | None:
    """An event beside its schema; alone without fields; None for a tombstone."""
    if event is None:
        return None
    return json.dumps(payload(event) if fields is None else {"schema": connect_schema(fields), "payload": payload(event)}).encode()


def key_in_json(id: int) -> bytes:
    schema = {"type": "struct", "fields": _FIELDS[:1], "optional": False, "name": f"{TOPIC}.Key"}
    return json.dumps({"schema": schema, "payload": {"id": id}}).encode()


AVRO_FIELDS: list[dict[str, Any]] = [{"name": "id", "type": "int"}, *({"name": name, "type": "string"} for name in list(SALLY)[1:])]


def avro_schema(fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Of events, as Confluent's AvroConverter registers it; ``fields`` of the row are those of Avro."""
    types = {"string": "string", "int32": "int", "int64": "long"}
    source = [{"name": name, "type": types[type]} for name, type in _OF_SOURCE.items()]
    row = {"type": "record", "name": "Value", "fields": fields or AVRO_FIELDS, "connect.name": f"{TOPIC}.Value"}
    return {
        "type": "record", "name": "Envelope", "namespace": TOPIC, "connect.name": f"{TOPIC}.Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "namespace": "io.debezium.connector.mysql", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip


def in_avro(event: Event | None, id: int, schema: dict[str, Any]) -> bytes | None:
    """An event after Confluent's prefix with the id of the schema."""
    import fastavro  # Tests of cuDF take schemas from here, on a machine that may lack it.

    if event is None:
        return None
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), payload(event))
    return struct.pack(">bi", 0, id) + stream.getvalue()


def write_topic(folder: Path, events: Iterable[tuple[int, Event | None]] = TUTORIAL, in_what: str = "json") -> Path:
    """The topic of some events in a folder; of "avro" the topic `_schemas` beside it."""
    path, schema, events = folder / f"{TOPIC}-0", avro_schema(), list(events)
    if in_what == "avro":
        values = [in_avro(event, 1, schema) for _, event in events]
        _write_schemas(folder, schema)
    else:
        values = [in_json(event, _FIELDS if in_what == "json" else None) for _, event in events]
    keys = [key_in_json(id) for id, _ in events]
    kolumn.write(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), path)
    return path


def _write_schemas(folder: Path, schema: dict[str, Any]) -> None:
    subject = f"{TOPIC}-value"
    key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
    value = {"subject": subject, "version": 1, "id": 1, "schema": json.dumps(schema), "deleted": False}
    columns = {"key": pa.array([json.dumps(key).encode()]), "value": pa.array([json.dumps(value).encode()])}
    kolumn.write(pa.table(columns), folder / "_schemas-0")
