"""The topic `_schemas` as registries write it, and values of its schemas."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

import kolumn
from kit.avro_values import encoded
from kolumn.readers.schemas import TopicSchemas, schemas_of
from kolumn.values.schemas.schema import Schema

Record = tuple[bytes | None, bytes | None]
RECORD = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'
GUID = UUID(bytes=hashlib.md5(RECORD.encode()).digest())


def packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def version(subject: str, number: int, id: int, text: str = RECORD, **more: Any) -> Record:
    """A version of a subject as Confluent's registry writes it."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}
    return packed(key), packed({"subject": subject, "version": number, "id": id, **more, "schema": text, "deleted": False} | more)


def gone(subject: str, number: int) -> Record:
    return version(subject, number, 0)[0], None


def delete_subject(subject: str, last: int) -> Record:
    return packed({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}), packed({"subject": subject, "version": last})


def write(folder: Path, records: Iterable[Record], times: Iterable[int] | None = None, **how: Any) -> Path:
    """``times`` are ms since 1970, one of each record."""
    keys, values = zip(*records, strict=True)
    columns: dict[str, Any] = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    if times is not None:
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", "UTC"))
    kolumn.write(pa.table(columns), folder, **{"batch_bytes": 3000, **how})
    return folder


def listed(*where: Any) -> TopicSchemas:
    found = schemas_of(*where)
    assert isinstance(found, TopicSchemas)
    return found


def topic(tmp_path: Path, *records: Record, **how: Any) -> TopicSchemas:
    return listed(write(tmp_path / "_schemas-0", records, **how))


def id_of(schema: Schema | None) -> int | None:
    return None if schema is None else schema.id


def write_values(folder: Path, values: Iterable[bytes | None]) -> Path:
    return write(folder, [(None, value) for value in values])


def framed(id: int, schema: Any, datum: Any) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + encoded(schema, datum)
