"""Values typed from disk alone: the topic `_schemas` lies beside the topic that is read."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kolumn.core.errors import ArgumentError

FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "customer", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "items", "type": {"type": "array", "items": "long"}, "default": []},
]
VERSIONS = [
    {"type": "record", "name": "Order", "fields": FIELDS[:2]},
    {"type": "record", "name": "Order", "fields": [{"name": "gone", "type": "double"}, *FIELDS[:3]]},
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *reversed(FIELDS[1:])]},
]
IDS = [7, 3, 12]
"""Ids do not grow with versions: another subject may have had the same schema before."""
ROWS = 400


def write(folder: Path, keys: list[bytes | None], values: list[bytes | None], **how: Any) -> Path:
    kolumn.write(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), folder, batch_bytes=3000, **how)
    return folder


def framed(id: int, schema: Any, datum: Any) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + encoded(schema, datum)


def registered(subject: str, version: int, id: int, schema: Any) -> tuple[bytes, bytes]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": id, "schema": json.dumps(schema), "deleted": False}
    return json.dumps(key).encode(), json.dumps(value).encode()


def order(i: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Version, what is written, and what the newest schema reads."""
    rng, version = random.Random(i), i % 3
    row = {"id": i, "customer": f"c{i % 5}", "note": rng.choice([None, "a note"]), "items": [rng.getrandbits(40)] * rng.randrange(3)}
    names = {0: ("id", "customer"), 1: ("id", "customer", "note"), 2: ("id", "customer", "note", "items")}[version]
    written = {name: row[name] for name in names} | ({"gone": 0.5} if version == 1 else {})
    return version, written, {"id": i, "customer": row["customer"], "note": written.get("note"), "items": written.get("items", [])}


BROKEN: dict[int, bytes | None] = {
    10: None, 11: b"", 12: b"\0\0\0\0\7", 13: b"\0\0\0\0\x63\0\0", 14: b"no prefix", 15: framed(12, VERSIONS[2], order(2)[2]) + b"\0",
}  # fmt: skip
SEEN = {11: None, 12: 7, 13: 0x63, 14: None, 15: 12}
"""Ids of the broken ones: an id that nobody knows is an id too."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of a broker that is gone."""
    folder = tmp_path_factory.mktemp("disk")
    subjects = [registered("orders-value", n + 1, id, schema) for n, (id, schema) in enumerate(zip(IDS, VERSIONS, strict=True))]
    subjects.append(registered("orders-key", 1, 20, "string"))
    write(folder / "_schemas-0", [key for key, _ in subjects], [value for _, value in subjects])
    values = [BROKEN.get(i, framed(IDS[order(i)[0]], VERSIONS[order(i)[0]], order(i)[1])) for i in range(ROWS)]
    keys: list[bytes | None] = [framed(20, "string", f"k{i}") for i in range(ROWS)]
    write(folder / "orders-0", keys, values, codec="zstd")
    return folder


def expected(i: int) -> dict[str, Any] | None:
    return None if i in BROKEN else order(i)[2]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("source", ["orders-0", "orders-*"])
def test_three_versions_from_a_dead_cluster(disk: Path, source: str, threads: int) -> None:
    found = kolumn.read(
        str(disk / source), value_format="registry", key_format="registry", threads=threads, chunk_bytes=2000,
        columns=["key", "value", "valueValid", "valueSchemaId"],
    )  # fmt: skip
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS)]
    assert found["key"].to_pylist() == [f"k{i}" for i in range(ROWS)]
    assert found["valueValid"].to_pylist() == [i not in BROKEN for i in range(ROWS)]
    ids = [SEEN.get(i) if i in BROKEN else IDS[order(i)[0]] for i in range(ROWS)]
    assert found["valueSchemaId"].to_pylist() == ids


def test_type_is_known_before_anything_is_read(disk: Path) -> None:
    reader = kolumn.scan(disk / "orders-0", value_format="registry", columns=["value", "valueValid", "valueSchemaId"])
    assert reader.schema.field("value").type == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("items", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
            pa.field("note", pa.string()),
            pa.field("customer", pa.string(), nullable=False),
        ]
    )
    assert reader.schema.names == ["value", "valueValid", "valueSchemaId"]
    assert reader.schema.field("valueSchemaId").type == pa.int64()


def test_fields_as_columns_and_a_reader_of_ones_own(disk: Path) -> None:
    found = kolumn.read(
        disk / "orders-0", value_format="registry", value_as="columns", value_columns=["customer", "id"], columns=["offset", "value"]
    )
    rows = [expected(i) for i in range(ROWS)]
    assert {*found.column_names} == {"offset", "customer", "id"}
    assert found["id"].to_pylist() == [row and row["id"] for row in rows]
    assert found["customer"].to_pylist() == [row and row["customer"] for row in rows]
    own = {"type": "record", "name": "Order", "fields": [{"name": "who", "aliases": ["customer"], "type": "string"}]}
    found = kolumn.read(disk / "orders-0", value_format="registry", value_schema=own, columns=["value"])
    assert found["value"].to_pylist() == [row and {"who": row["customer"]} for row in rows]


def test_raw_bytes_of_bad_records_and_errors_on_request(disk: Path) -> None:
    found = kolumn.read(disk / "orders-0", value_format="registry", columns=["value", "valueRaw", "valueValid"])
    bad = found.filter(pa.compute.invert(found["valueValid"]))
    assert bad["valueRaw"].to_pylist() == list(BROKEN.values())
    with pytest.raises(kolumn.KolumnError, match=r"orders-0.*offset 11"):
        kolumn.read(disk / "orders-0", value_format="registry", value_errors="raise")


def test_without_the_topic(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "orders-0").symlink_to(disk / "orders-0")
    with pytest.raises(ArgumentError, match="_schemas"):
        kolumn.read(tmp_path / "orders-0", value_format="registry")
    known = {id: json.dumps(schema) for id, schema in zip(IDS, VERSIONS, strict=True)}
    found = kolumn.read(tmp_path / "orders-0", value_format="registry", value_schemas=known, columns=["value"])
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS)]
    text = json.dumps(VERSIONS[2])
    found = kolumn.read(tmp_path / "orders-0", value_format="avro", value_schema=text, value_schemas=known, columns=["value"])
    assert found["value"].to_pylist() == [expected(i) for i in range(ROWS)]


def test_one_schema_for_all(tmp_path: Path) -> None:
    """Without a collection, a prefix is left out where there is one; a value without one is read from its first byte."""
    rows = [order(3 * k + 2)[2] for k in range(50)]
    values: list[bytes | None] = [framed(99, VERSIONS[2], row) if k % 2 else encoded(VERSIONS[2], row) for k, row in enumerate(rows)]
    folder = write(tmp_path / "orders-0", [None] * 50, values)
    found = kolumn.read(folder, value_format="avro", value_schema=VERSIONS[2])
    assert found["value"].to_pylist() == rows
    assert found["valueSchemaId"].to_pylist() == [99 if k % 2 else None for k in range(50)]


MONEY = [
    {"type": "record", "name": "pay.Money", "fields": [{"name": "units", "type": "long"}]},
    {"type": "record", "name": "pay.Money", "fields": [{"name": "units", "type": "long"}, {"name": "nanos", "type": "int", "default": 7}]},
]
PAYMENTS = [
    {"type": "record", "name": "pay.Payment", "fields": [{"name": "amount", "type": "pay.Money"}]},
    {"type": "record", "name": "pay.Payment", "fields": [
        {"name": "amount", "type": "pay.Money"}, {"name": "at", "type": ["null", "long"]},
    ]},
    {"type": "record", "name": "pay.Payment", "fields": [
        {"name": "at", "type": ["null", "long"], "default": None}, {"name": "amount", "type": "pay.Money"},
    ]},
]  # fmt: skip
VERSION_OF_MONEY = [1, 1, 2]


def payments_disk(folder: Path) -> list[dict[str, Any]]:
    """Subjects named by records, one of which refers to another; a deleted version; the topic does not have the name of a subject.

    Returns the rows of topic `bare`.
    """
    records = [registered("pay.Money", number + 1, 100 + number, schema) for number, schema in enumerate(MONEY)]
    for number, schema in enumerate(PAYMENTS):
        key, value = registered("pay.Payment", number + 1, 200 + number, schema)
        found = json.loads(value) | {"references": [{"name": "pay.Money", "subject": "pay.Money", "version": VERSION_OF_MONEY[number]}]}
        # Compaction has not yet removed the earlier record of a version that is deleted.
        records += [(key, json.dumps(found | {"deleted": deleted}).encode()) for deleted in ((False, True) if number == 1 else (False,))]
    write(folder / "_schemas-0", [key for key, _ in records], [value for _, value in records])
    rows, values = [], []
    for i in range(90):
        number = i % 3
        money = MONEY[VERSION_OF_MONEY[number] - 1]
        whole = json.loads(json.dumps(PAYMENTS[number]).replace('"pay.Money"', json.dumps(money)))
        amount = {"units": i} | ({"nanos": 1} if number == 2 else {})
        written = {"amount": amount} | ({"at": i} if number else {})
        values.append(framed(200 + number, whole, written))
        rows.append({"at": written.get("at"), "amount": {"nanos": 7} | amount})
    write(folder / "bare-0", [None] * 90, values)
    write(folder / "mixed-0", [None] * 2, [values[0], framed(100, MONEY[0], {"units": 1})])
    write(folder / "plain-0", [None], [b"no prefix"])
    return rows


def test_subjects_named_by_records(tmp_path: Path) -> None:
    """The subject that has the schemas of the first values; a deleted version is one of its own."""
    rows = payments_disk(tmp_path)
    found = kolumn.read(tmp_path / "bare-0", value_format="registry", columns=["value", "valueSchemaId"])
    assert found["value"].to_pylist() == rows
    assert found["valueSchemaId"].to_pylist() == [200 + i % 3 for i in range(90)]
    given = json.dumps(PAYMENTS[0]).replace('"pay.Money"', json.dumps(MONEY[0]))
    found = kolumn.read(tmp_path / "bare-0", value_format="registry", value_schema=given, columns=["value"])
    assert found["value"].to_pylist() == [{"amount": {"units": i}} for i in range(90)]
    with pytest.raises(ArgumentError, match=r"no schema of mixed-value .*the first values have schemas of pay\.Money, pay\.Payment: name"):
        kolumn.read(tmp_path / "mixed-0", value_format="registry")
    with pytest.raises(ArgumentError, match="no schema of plain-value in value_schemas: name one in value_schema"):
        kolumn.read(tmp_path / "plain-0", value_format="registry")


def test_a_function_knows_the_schemas_of_values(tmp_path: Path) -> None:
    """It cannot list them: the highest id among those of the first values counts."""
    values: list[bytes | None] = [framed(IDS[order(i)[0]], VERSIONS[order(i)[0]], order(i)[1]) for i in range(30)]
    write(tmp_path / "orders-0", [None] * 30, values)
    known = {id: json.dumps(schema) for id, schema in zip(IDS, VERSIONS, strict=True)}
    found = kolumn.read(tmp_path / "orders-0", value_format="registry", value_schemas=known.get, columns=["value"])
    assert found["value"].to_pylist() == [order(i)[2] for i in range(30)]
