"""Several writers' schemas in one topic, on the device: each payload goes by the schema that its own prefix or header names."""

import json
import random
import zlib
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kit.device_columns import compared, resident, to_arrow
from kit.emulated import Emulated, run_loops
from kolumn.kernels.fields.records import DevicePayloads
from kolumn.kernels.values.bodies import DeviceFramer
from kolumn.options import Options
from kolumn.readers.types import with_types
from kolumn.values.schemas.schema import Schema, fingerprint_of

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "customer", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "items", "type": {"type": "array", "items": ITEM}, "default": []},
]
VERSIONS = [
    {"type": "record", "name": "Order", "fields": FIELDS[:2]},
    {"type": "record", "name": "Order", "fields": [{"name": "gone", "type": "double"}, *FIELDS[:3]]},
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *reversed(FIELDS[1:])]},
]
GUIDS = [UUID(int=(high << 64) + 7) for high in (1 << 63, 0, 4)]
"""Of each version; they differ in the first half, and the second is an id that names another version."""
SCHEMAS = {7: VERSIONS[0], 3: VERSIONS[1], 12: VERSIONS[2], 40: '"string"', **dict(zip(GUIDS, VERSIONS, strict=True))}
FINGERPRINT = b"\xc3\1" + fingerprint_of(Schema("AVRO", str(VERSIONS[1]).replace("'", '"').replace("None", "null"))).to_bytes(8, "little")
PREFIXES = [
    [b"\0\0\0\0\7", bytes(8) + b"\7", b"\1" + GUIDS[0].bytes, b"\3\0" + GUIDS[0].bytes],
    [b"\0\0\0\0\3", bytes(8) + b"\3", b"\1" + GUIDS[1].bytes, FINGERPRINT],
    [b"\0\0\0\0\x0c", bytes(8) + b"\x0c", b"\3\0" + GUIDS[2].bytes],
]
"""Of each version: an id of Confluent's or Apicurio's, a GUID, AWS Glue's, the fingerprint of a single object."""
ROWS = 200


def orders(rng: random.Random) -> list[bytes | None]:
    """Orders of all versions; some are cut, changed or missing, or have a schema that nobody knows."""
    made: list[bytes | None] = []
    for row in range(ROWS):
        version = rng.randrange(3)
        items = [{"sku": "s" * rng.randrange(3)} for _ in range(rng.randrange(3))]
        order = {"id": row, "customer": f"c{row % 5}", "note": rng.choice([None, "a note"]), "items": items, "gone": 0.5}
        names = [one["name"] for one in VERSIONS[version]["fields"]]
        body = encoded(VERSIONS[version], {name: order[name] for name in names})
        prefix = rng.choice(PREFIXES[version])
        value = prefix + body
        # The last two are of no schema that is known, and of one that has nothing in common with the reader's.
        others = [b"\0\0\0\0\x63" + body, b"\0\0\0\0\x28" + body]
        made.append(rng.choice([value] * 9 + [value[:-1], value + b"\0", body, prefix, b"\0\0\0", b"", None, *others]))
    return made


def write(path: Path, values: list[bytes | None], keys: list[bytes | None] | None = None, headers: Any = None) -> Path:
    columns = {"key": pa.array(keys or [None] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
    if headers is not None:
        columns["headers"] = pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    kolumn.write(pa.table(columns), path, codec="lz4")
    return path


REGISTRY: dict[str, Any] = {"value_format": "registry", "value_schema": VERSIONS[2], "value_schemas": SCHEMAS}
PTX = pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
"""As loops these kernels run in `test_nested_values.py`."""


@PTX
@pytest.mark.parametrize(
    "options",
    [{}, {"value_as": "struct"}, {"value_columns": ["note", "items.sku"]}, {"value_framing": "confluent"}, {"columns": ["valueSchemaId"]}],
    ids=str,
)
def test_each_value_goes_by_its_own_schema(emulated: Emulated, options: Any, tmp_path: Path) -> None:
    found = compared(write(tmp_path / "a.log", orders(random.Random(1))), **REGISTRY, **options)
    assert {None, 3, 7, 12, 0x63} <= {*found["valueSchemaId"].to_pylist()}
    # Once without any key that is known, and once with those that the host has looked up.
    assert (emulated.launched["fronts"], emulated.launched.get("measure_values", 0)) == (2, (0 if "columns" in options else 1))


@PTX
def test_an_id_and_a_guid_of_the_same_number(emulated: Emulated, tmp_path: Path) -> None:
    """They are the only keys, so each is compared with the other one."""
    values = [b"\0\0\0\0\7" + encoded(VERSIONS[0], {"id": 5, "customer": "c"})]
    values.append(b"\1" + GUIDS[1].bytes + encoded(VERSIONS[1], {"id": 5, "customer": "c", "note": None, "gone": 0.5}))
    assert all(compared(write(tmp_path / "a.log", values), **REGISTRY)["valueValid"].to_pylist())


@PTX
def test_keys_and_values(emulated: Emulated, tmp_path: Path) -> None:
    keys = [None if row % 7 == 0 else b"\0\0\0\0\x28" + encoded("string", f"k{row}") for row in range(ROWS)]
    path = write(tmp_path / "a.log", orders(random.Random(2)), keys)
    of_keys = {"key_format": "registry", "key_schema": '"string"', "key_schemas": SCHEMAS}
    found = compared(path, **REGISTRY, **of_keys, columns=["valueValid", "key", "offset", "value", "keyValid", "keyRaw", "keySchemaId"])
    assert {True, False} == {*found["keyValid"].to_pylist()} == {*found["valueValid"].to_pylist()}
    compared(path, **of_keys)


@PTX
def test_headers_name_schemas(emulated: Emulated, tmp_path: Path) -> None:
    """Of some records; of others a header has another purpose, or names nothing that is known."""
    rng = random.Random(3)
    values, headers = orders(rng), []
    for row in range(ROWS):
        version = rng.choice([0, 2])
        names = [one["name"] for one in VERSIONS[version]["fields"]]
        if row % 3 == 0:
            values[row] = encoded(VERSIONS[version], {name: {"id": row, "items": [], "note": None}.get(name, "x") for name in names})
        named = [[("__value_schema_id", one)] for one in (PREFIXES[version][0], b"\1" + GUIDS[0].bytes, b"\0\0\0\0\x63")]
        headers.append(rng.choice([*named, [], [("trace", b"1")]]))
    path = write(tmp_path / "a.log", values, headers=headers)
    found = compared(path, **REGISTRY)
    assert 30 < sum(found["valueValid"].to_pylist()) < ROWS
    compared(path, **REGISTRY, value_framing="confluent-header", include_headers=True)


@PTX
@pytest.mark.parametrize("known", [True, False])
def test_the_host_decompresses(emulated: Emulated, known: bool, tmp_path: Path) -> None:
    """It decodes the values of the chunk then."""
    values = orders(random.Random(4))
    values[9] = b"\3\5" + GUIDS[0].bytes + zlib.compress(encoded(VERSIONS[0], {"id": 9, "customer": "zlib"}))
    options = REGISTRY if known else {"value_format": "avro", "value_schema": VERSIONS[0], "value_as": "struct"}
    found = compared(write(tmp_path / "a.log", values), **options)
    assert found["valueValid"][9].as_py()
    assert "measure_values" not in emulated.launched


@PTX
def test_later_chunks_know_the_schemas(emulated: Emulated, tmp_path: Path) -> None:
    values = [b"\0\0\0\0\7" + encoded(VERSIONS[0], {"id": row, "customer": "c" * 90}) for row in range(600)]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "t-0", batch_bytes=4000)
    tables = resident(tmp_path / "t-0", "binary", threads=1, chunk_bytes=1 << 14, columns=["value"], **REGISTRY)
    assert len(tables) > 2
    assert (emulated.launched["fronts"], sum(one.num_rows for one in tables)) == (len(tables) + 1, 600)


WRITERS = [
    'syntax = "proto3"; message Order { int32 id = 1; string customer = 2; }',
    'syntax = "proto3"; message Other { int32 x = 1; } message Order { int32 id = 1; repeated string notes = 5; }',
    'syntax = "proto3"; message Other { int32 x = 1; }',
]


@PTX
def test_messages_at_different_places(emulated: Emulated, tmp_path: Path) -> None:
    """Of their writers' files: Confluent's prefix is followed by the place of the message."""
    bodies = [b"\x08\7\x12\1c", b"\x08\7\x2a\1n\x2a\2nn", b"\x08\7"]
    rng, values = random.Random(5), []
    for _ in range(ROWS):
        id, place = rng.randrange(1, 5), rng.choice([b"\0", b"\2\2", b"\2\0"])
        values.append(rng.choice([b"\0\0\0\0" + bytes([id]) + place, b""]) + rng.choice(bodies))
    how = {"value_format": "protobuf", "value_schema": WRITERS[0], "value_message": "Order"}
    schemas = dict(enumerate(WRITERS, 1))
    path = write(tmp_path / "a.log", values)
    for shape in ("struct", "columns"):
        found = compared(path, **how, value_schemas=schemas, value_as=shape)
        assert 20 < sum(found["valueValid"].to_pylist()) < ROWS - 20
    compared(path, **how)
    # Headers choose the message, also where no schemas are given.
    headers = [[("__value_schema_id", b"\0\0\0\0\1" + rng.choice([b"\0", b"\2\2"]))] if row % 3 else [] for row in range(ROWS)]
    values = [rng.choice(bodies) for _ in range(ROWS)]
    found = compared(write(tmp_path / "b.log", values, headers=headers), **how, value_framing="confluent-header")
    assert 20 < sum(found["valueValid"].to_pylist()) < ROWS - 20
    assert emulated.launched["measure_messages"] == 4


@PTX
def test_names_of_messages(emulated: Emulated, tmp_path: Path) -> None:
    """Apicurio's prefix is followed by one, short or whole."""
    schema, names = WRITERS[0].replace("; ", "; package shop; ", 1), (b"Order", b"shop.Order", b"Other", b"Orders")
    fronts = [bytes([len(name) + 2, 10, len(name)]) + name for name in names]
    values = [bytes(8) + b"\1" + fronts[row % 4] + b"\x08\7" for row in range(40)]
    how = {"value_format": "protobuf", "value_message": "shop.Order", "value_framing": "apicurio"}
    found = compared(write(tmp_path / "a.log", values), **how, value_schema=schema, value_schemas={1: schema})
    assert found["valueValid"].to_pylist() == [True, True, False, False] * 10


def test_threads_learn_schemas_by_themselves() -> None:
    """One framer serves all threads of a scan. Here another one learns a schema when this one has just asked for it."""
    (typed,) = with_types(Options.of(**REGISTRY), [], []).typed
    framer, found = DeviceFramer(typed.framer), list[Any]()
    value = b"\0\0\0\0\7" + encoded(VERSIONS[0], {"id": 1, "customer": "c"})

    def learn(device: Emulated) -> None:
        held = device.upload(np.frombuffer(value, np.uint8))
        payloads = DevicePayloads(device.upload(np.array([held.address])), device.upload(np.array([len(value)], np.int32)), 1)
        bodies: Any = framer.bodies(device, payloads, None)
        found.append(to_arrow(bodies.schema_ids(device)).to_pylist())

    class Overtaken(Emulated):
        def downloads(self, wanted: Any) -> Any:
            asked = super().downloads(wanted)
            if len(wanted) > 1:
                (other := Thread(target=learn, args=[Emulated(run_loops)])).start()
                other.join()
            return asked

    learn(Overtaken(run_loops))
    assert found == [[7]] * 2


def test_the_topic_of_the_registry_lies_beside(device: Emulated, tmp_path: Path) -> None:
    """The call finds schemas and the newest one as `kolumn.read` does."""
    pytest.importorskip("pylibcudf", reason="make gpu-packages")
    registered = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(VERSIONS[0]), "deleted": False}
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    write(tmp_path / "_schemas-0", [json.dumps(registered).encode()], [json.dumps(key).encode()])
    write(tmp_path / "orders-0", [b"\0\0\0\0\7" + encoded(VERSIONS[0], {"id": 5, "customer": "c"})])
    table, names = kolumn.read_pylibcudf(tmp_path / "orders-0", value_format="registry")
    assert (names, table.num_rows()) == (kolumn.read(tmp_path / "orders-0", value_format="registry", value_as="columns").column_names, 1)
    assert device.launched["measure_values"] == 1
