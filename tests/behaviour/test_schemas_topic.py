"""The topic `_schemas` on disk: what a registry would answer from it, in spite of damage, and values that are typed by it."""

import base64
import hashlib
import json
import pickle
import random
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import encoded
from kit.outcome import raises
from kit.replicas import flip
from kit.schemas_topic import (
    GUID,
    RECORD,
    Record,
    delete_subject,
    framed,
    gone,
    id_of,
    listed,
    packed,
    topic,
    version,
    write,
    write_values,
)  # fmt: skip
from kolumn.core.errors import ArgumentError
from kolumn.readers.schemas import schemas_of
from kolumn.values.schemas.schema import Reference, Schema

PROTO = 'syntax = "proto3"; import "inner.proto"; message M { I i = 1; }'

OTHERS = [
    (packed({"keytype": "NOOP", "magic": 0}), None),
    (packed({"keytype": "CONFIG", "subject": None, "magic": 0}), packed({"compatibilityLevel": "FULL"})),
    (packed({"keytype": "MODE", "subject": "x", "magic": 0}), packed({"mode": "READWRITE"})),
]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_schemas_of_all_types(tmp_path: Path, codec: str) -> None:
    references = [{"name": "inner.proto", "subject": "inner", "version": 3}]
    found = topic(
        tmp_path,
        *OTHERS,
        version("orders-value", 1, 1),
        version("inner", 3, 2, "message I {}", schemaType="PROTOBUF"),
        version("m-value", 1, 3, PROTO, schemaType="PROTOBUF", references=references, metadata=None, ruleSet=None),
        version("j-value", 1, 4, '{"type":"object"}', schemaType="JSON"),
        version("orders-value", 2, 5, '"int"'),
        codec=codec,
    )
    assert (found.malformed, found.skipped.stretches) == (0, 0)
    assert found.by_id(1) == Schema("AVRO", RECORD, (), 1, GUID)
    m = found.by_id(3)
    assert m is not None
    assert (m.kind, m.text, m.references) == ("PROTOBUF", PROTO, (Reference("inner.proto", "inner", 3),))
    assert id_of(found.version("inner", 3)) == 2
    assert found.by_id(4) == found.newest("j-value")
    assert (id_of(found.newest("orders-value")), id_of(found.version("orders-value", 1))) == (5, 1)
    assert found.newest("nobody") is found.by_id(9) is found.only() is None
    assert found.by_guid(GUID) == found.by_id(1)
    listed = [(one.subject, one.version, one.schema.id) for one in found.registered()]
    assert listed == [("inner", 3, 2), ("j-value", 1, 4), ("m-value", 1, 3), ("orders-value", 1, 1), ("orders-value", 2, 5)]
    assert pickle.loads(pickle.dumps(found)).by_id(5) == found.by_id(5)


def test_a_noted_md5_is_the_guid(tmp_path: Path) -> None:
    """Rules are in the registry's GUID in a form of Java's own, so the noted one counts; without it there is none for them."""
    rules, noted = {"domainRules": [{"name": "r"}]}, base64.b64encode(bytes(range(16))).decode()
    with_properties = version("d", 1, 4, '"bytes"', metadata={"properties": {"k": "v"}})
    ruled = version("a", 1, 1, md5=noted, ruleSet=rules), version("b", 1, 2, '"int"', ruleSet=rules)
    found = topic(tmp_path, *ruled, version("c", 1, 3, '"long"', md5="no base64"), with_properties)
    assert id_of(found.by_guid(UUID(bytes=bytes(range(16))))) == 1
    digests = [UUID(bytes=hashlib.md5(text).digest()) for text in (b'"long"', b'"bytes"\1kv')]
    assert [found.by_id(id).guid for id in (2, 3, 4)] == [None, *digests]


def test_as_karapace_writes(tmp_path: Path) -> None:
    """Other orders of fields, white space, and no md5."""
    key = b'{"keytype": "SCHEMA", "subject": "k", "version": 1, "magic": 1}'
    other = b'{ "magic" : 1, "version":1,"keytype":"SCHEMA", "subject":"l"}'
    value = json.dumps({"schema": RECORD, "deleted": False, "id": 1, "subject": "k", "version": 1}, indent=1).encode()
    found = topic(tmp_path, (key, value), (other, value))
    assert id_of(found.newest("k")) == id_of(found.newest("l")) == 1
    assert found.malformed == 0


def test_as_redpanda_writes(tmp_path: Path) -> None:
    """A deletion of a subject has no version, and concerns those before it. Of two records for the same offset the first one counts."""

    def key(sequence: int, node: int = 0, **more: Any) -> bytes:
        return packed(more | {"magic": 1, "seq": sequence, "node": node})

    one, two, three = (version("r", number, number, f'"{name}"') for number, name in enumerate(("int", "long", "float"), 1))
    found = topic(
        tmp_path,
        (key(0, keytype="SCHEMA", subject="r", version=1), one[1]),
        (key(1, keytype="SCHEMA", subject="r", version=2), two[1]),
        (key(2, keytype="DELETE_SUBJECT", subject="r"), packed({"subject": "r"})),
        (key(3, keytype="SCHEMA", subject="r", version=3), three[1]),
        (key(3, 1, keytype="SCHEMA", subject="r", version=3), version("r", 3, 3, '"bytes"')[1]),
        (key(3, 1, keytype="DELETE_SUBJECT", subject="r"), packed({"subject": "r"})),
        (key(5, keytype="SCHEMA", subject="r", version=4), version("r", 4, 4, '"bytes"')[1]),
        (key(5, keytype="SCHEMA", subject="r", version=4), None),
    )
    assert found.malformed == 0
    assert [(one.is_deleted, one.is_gone) for one in found.registered()] == [(True, False), (True, False), (False, False), (True, True)]
    assert found.newest("r") == Schema("AVRO", '"float"', (), 3, UUID(bytes=hashlib.md5(b'"float"').digest()))


def test_deleted_versions_are_found_by_id_while_their_records_are_there(tmp_path: Path) -> None:
    soft = version("soft", 1, 1, '"int"'), version("soft", 2, 2, '"long"'), version("soft", 2, 2, '"long"', deleted=True)
    subject = version("subject", 1, 3, '"bytes"'), version("subject", 2, 4, '"float"'), delete_subject("subject", 1)
    hard = version("hard", 1, 5, '"string"'), version("hard", 2, 6, '"null"'), gone("hard", 2), gone("never", 1)
    cleared = version("cleared", 1, 7, '"double"'), delete_subject("cleared", 1), version("cleared", 2, 8, '["int"]')
    clear = packed({"keytype": "CLEAR_SUBJECT", "subject": "cleared", "magic": 0}), packed({"subject": "cleared"})
    found = topic(tmp_path, *soft, *subject, *hard, *cleared, clear)
    assert found.malformed == 0
    assert [id_of(found.by_id(id)) for id in range(1, 10)] == [*range(1, 9), None]
    assert [id_of(found.newest(subject)) for subject in ("soft", "subject", "hard", "cleared")] == [1, 4, 5, 8]
    assert id_of(found.version("soft", 2)) == 2
    assert [one.schema.id for one in found.registered() if one.is_deleted] == [7, 6, 2, 3]
    assert [one.schema.id for one in found.registered() if one.is_gone] == [7, 6]
    assert (found.version("hard", 2), found.version("cleared", 1)) == (found.by_id(6), found.by_id(7))
    # A registry refuses another schema with an id; it may share the id with the same schema.
    refused = version("c", 1, 1, '"long"'), gone("a", 1), version("d", 1, 1, '"bytes"')
    one = version("a", 1, 1, '"int"'), version("b", 1, 1, '"int"')
    found = topic(tmp_path / "2", *one, *refused, gone("b", 1), version("e", 1, 1, '"float"'))
    assert found.malformed == 2
    assert found.by_id(1).text == '"float"'
    assert [(one.subject, one.is_gone) for one in found.registered()] == [("a", True), ("b", True), ("e", False)]


def test_contexts(tmp_path: Path) -> None:
    site = version(":.site:o-value", 1, 1, '"int"'), version(":.site:o-value", 2, 2, '"bytes"')
    found = topic(tmp_path, site[0], version("x", 1, 1, '"long"'), site[1])
    assert found.malformed == 0
    assert found.by_id(1).text == '"long"'
    assert found.by_id(2).text == found.newest("o-value").text == found.newest(":.site:o-value").text == '"bytes"'


KEY, VALUE = version("s", 1, 1)
MALFORMED: list[Record] = [
    (None, b"{}"), (b"", None), (b"[" * 5000, None), (delete_subject("s", 1)[0], b"{}"),
    *((key, b"{}") for key in (b"\xff\xfe", b"[1]", b"{")),
    *((packed({"keytype": name}), b"{}") for name in ("SCHEMA", "ELSE", ["SCHEMA"])),
    *((packed({"keytype": "SCHEMA", "subject": name, "version": number}), VALUE) for name, number in ((1, 1), ("s", "1"), ("s", True))),
    *((KEY, value) for value in (b"", b"3", packed({"id": 1}), packed({"id": 1, "schema": None}), b'{"id":1,"schema":"\\ud800"}')),
    *(version("s", 1, 1, schemaType=type) for type in ("XML", ["AVRO"])),
    *(version("s", 1, 1, references=references) for references in ([{}], [3], 7)),
    version("s", 1, None),
]  # fmt: skip


def test_malformed_records_are_left_out_and_counted(tmp_path: Path) -> None:
    found = topic(tmp_path, *(record for malformed in MALFORMED for record in (malformed, version("good", 1, 1))))
    assert (found.malformed, [registered.subject for registered in found.registered()]) == (len(MALFORMED), ["good"])
    with pytest.raises(kolumn.ArgumentError, match=f"not a topic _schemas: none of its {len(MALFORMED)} records"):
        schemas_of(write(tmp_path / "orders-0", MALFORMED))


def numbered(count: int) -> list[Record]:
    return [version("s", number, number, f'"{number}"') for number in range(1, count + 1)]


def test_damaged_segments_and_copies(tmp_path: Path) -> None:
    folder = write(tmp_path / "_schemas-0", numbered(40), batch_records=4)
    (log,) = folder.glob("*.log")
    flip(log, log.stat().st_size // 2)
    found = listed(folder)
    assert (found.skipped.stretches, found.skipped.records, found.malformed) == (1, 4, 0)
    assert (len(list(found.registered())), id_of(found.newest("s"))) == (36, 40)
    # A manifest that is none hides nothing.
    (folder / "00000000000000000000-AAAAAAAAAAMAAAAAAAAABA.rsm-manifest").write_text("{")
    found = listed(tmp_path)
    assert (len(list(found.registered())), found.skipped.stretches) == (36, 2)
    # Log directories of several brokers, each with its replica; one is damaged.
    write(tmp_path / "2" / "1" / "_schemas-0", numbered(20), batch_records=2)
    shutil.copytree(tmp_path / "2" / "1", tmp_path / "2" / "2")
    (log,) = (tmp_path / "2" / "1").glob("*/*.log")
    flip(log, log.stat().st_size // 2)
    found = listed(None, [tmp_path / "2" / "1", tmp_path / "2" / "2"])
    assert (len(list(found.registered())), found.malformed) == (20, 0)


def test_the_topic_is_found_beside_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    write(logs / "_schemas-0", [version("orders-value", 1, 1)])
    orders = write(logs / "orders-0", [(b"k", b"v")])
    (segment,) = orders.glob("*.log")
    monkeypatch.chdir(orders)
    sources = [logs, orders, segment, str(logs / "orders-*"), [orders, segment], f"file://{orders}", ".", segment.name, f"{logs}/"]
    for source in sources:
        assert id_of(schemas_of(None, source).by_id(1)) == 1
    for given in (logs, logs / "_schemas-0", next((logs / "_schemas-0").glob("*.log")), f"file://{logs}"):
        assert id_of(schemas_of(given, tmp_path).by_id(1)) == 1
    raises(kolumn.ArgumentError, f"there is no {tmp_path}/_schemas-0, no {tmp_path.parent}/_schemas-0", schemas_of, None, tmp_path)


def test_topics_and_files_at_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    write(tmp_path / "_schemas-0", [version("orders-value", 1, 1)])
    orders = write(tmp_path / "orders-0", [(b"k", b"v")])
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "7.avsc").write_text(RECORD)
    fsspec.filesystem("memory").put(str(tmp_path), "/schemas-bucket", recursive=True)
    url = "memory://schemas-bucket"
    (segment,) = orders.glob("*.log")
    for source in (url, f"{url}/orders-0", f"{url}/orders-0/{segment.name}", f"{url}/orders-*"):
        assert id_of(schemas_of(None, source).by_id(1)) == 1
    assert id_of(schemas_of(url).by_id(1)) == id_of(schemas_of(f"{url}/_schemas-0").by_id(1)) == 1
    assert id_of(schemas_of(f"{url}/files").by_id(7)) == 7
    raises(kolumn.ArgumentError, "no such file", schemas_of, f"{url}/no")


FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"}, {"name": "customer", "type": "string"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "items", "type": {"type": "array", "items": "long"}, "default": []},
]  # fmt: skip
VERSIONS = [
    {"type": "record", "name": "Order", "fields": fields}
    for fields in (FIELDS[:2], [{"name": "gone", "type": "double"}, *FIELDS[:3]], [{"name": "id", "type": "long"}, *reversed(FIELDS[1:])])
]
IDS = [7, 3, 12]
"""Ids do not grow with versions: another subject may have had the same schema before."""
ROWS = 400


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
    folder = tmp_path_factory.mktemp("disk")
    subjects = [version("orders-value", n + 1, id, json.dumps(schema)) for n, (id, schema) in enumerate(zip(IDS, VERSIONS, strict=True))]
    write(folder / "_schemas-0", [*subjects, version("orders-key", 1, 20, '"string"')])
    values = [BROKEN.get(i, framed(IDS[order(i)[0]], VERSIONS[order(i)[0]], order(i)[1])) for i in range(ROWS)]
    write(folder / "orders-0", [(framed(20, "string", f"k{i}"), value) for i, value in enumerate(values)], codec="zstd")
    return folder


EXPECTED = [None if i in BROKEN else order(i)[2] for i in range(ROWS)]
KNOWN = {id: json.dumps(schema) for id, schema in zip(IDS, VERSIONS, strict=True)}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("source", ["orders-0", "orders-*"])
def test_three_versions_from_a_dead_cluster(disk: Path, source: str, threads: int) -> None:
    how: dict[str, Any] = {"key_format": "registry", "columns": ["key", "value", "valueValid", "valueSchemaId"]}
    found = kolumn.read(str(disk / source), value_format="registry", threads=threads, chunk_bytes=2000, **how)
    assert found["value"].to_pylist() == EXPECTED
    assert found["key"].to_pylist() == [f"k{i}" for i in range(ROWS)]
    assert found["valueValid"].to_pylist() == [i not in BROKEN for i in range(ROWS)]
    assert found["valueSchemaId"].to_pylist() == [SEEN.get(i) if i in BROKEN else IDS[order(i)[0]] for i in range(ROWS)]


def test_the_type_is_known_before_and_bytes_of_bad_records_on_request(disk: Path) -> None:
    reader = kolumn.scan(disk / "orders-0", value_format="registry", columns=["value", "valueValid", "valueSchemaId"])
    longs = pa.list_(pa.field("item", pa.int64(), nullable=False))
    fields = [("id", pa.int64()), ("items", longs), ("note", pa.string()), ("customer", pa.string())]
    assert reader.schema.field("value").type == pa.struct(fields)
    assert reader.schema.names == ["value", "valueValid", "valueSchemaId"]
    assert reader.schema.field("valueSchemaId").type == pa.int64()
    found = kolumn.read(disk / "orders-0", value_format="registry", columns=["value", "valueRaw", "valueValid"])
    assert found.filter(pa.compute.invert(found["valueValid"]))["valueRaw"].to_pylist() == list(BROKEN.values())
    raises(kolumn.KolumnError, r"orders-0.*offset 11", kolumn.read, disk / "orders-0", value_format="registry", value_errors="raise")


def test_fields_as_columns_and_a_reader_of_ones_own(disk: Path) -> None:
    how: dict[str, Any] = {"value_as": "columns", "value_columns": ["customer", "id"], "columns": ["offset", "value"]}
    found = kolumn.read(disk / "orders-0", value_format="registry", **how)
    assert {*found.column_names} == {"offset", "customer", "id"}
    for name in ("id", "customer"):
        assert found[name].to_pylist() == [row and row[name] for row in EXPECTED]
    own = {"type": "record", "name": "Order", "fields": [{"name": "who", "aliases": ["customer"], "type": "string"}]}
    found = kolumn.read(disk / "orders-0", value_format="registry", value_schema=own, columns=["value"])
    assert found["value"].to_pylist() == [row and {"who": row["customer"]} for row in EXPECTED]


def test_without_the_topic(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "orders-0").symlink_to(disk / "orders-0")
    raises(ArgumentError, "_schemas", kolumn.read, tmp_path / "orders-0", value_format="registry")
    for how in ({"value_format": "registry"}, {"value_format": "avro", "value_schema": json.dumps(VERSIONS[2])}):
        assert kolumn.read(tmp_path / "orders-0", value_schemas=KNOWN, columns=["value"], **how)["value"].to_pylist() == EXPECTED


def test_one_schema_for_all_and_a_function_that_knows_them(tmp_path: Path) -> None:
    """Without a collection, a prefix is left out where there is one; a value without one is read from its first byte."""
    rows = [order(3 * k + 2)[2] for k in range(50)]
    values: list[bytes | None] = [framed(99, VERSIONS[2], row) if k % 2 else encoded(VERSIONS[2], row) for k, row in enumerate(rows)]
    found = kolumn.read(write_values(tmp_path / "orders-0", values), value_format="avro", value_schema=VERSIONS[2])
    assert found["value"].to_pylist() == rows
    assert found["valueSchemaId"].to_pylist() == [99 if k % 2 else None for k in range(50)]
    # It cannot list them: the highest id among those of the first values counts.
    write_values(tmp_path / "2" / "orders-0", [framed(IDS[order(i)[0]], VERSIONS[order(i)[0]], order(i)[1]) for i in range(30)])
    found = kolumn.read(tmp_path / "2" / "orders-0", value_format="registry", value_schemas=KNOWN.get, columns=["value"])
    assert found["value"].to_pylist() == [order(i)[2] for i in range(30)]


MONEY = [
    {"type": "record", "name": "pay.Money", "fields": [{"name": "units", "type": "long"}]},
    {"type": "record", "name": "pay.Money", "fields": [{"name": "units", "type": "long"}, {"name": "nanos", "type": "int", "default": 7}]},
]
PAYMENTS = [
    {"type": "record", "name": "pay.Payment", "fields": fields}
    for fields in (
        [{"name": "amount", "type": "pay.Money"}],
        [{"name": "amount", "type": "pay.Money"}, {"name": "at", "type": ["null", "long"]}],
        [{"name": "at", "type": ["null", "long"], "default": None}, {"name": "amount", "type": "pay.Money"}],
    )
]
VERSION_OF_MONEY = [1, 1, 2]


def test_subjects_named_by_records(tmp_path: Path) -> None:
    """The subject that has the schemas of the first values, and refers to another; a deleted version is one of its own."""
    records = [version("pay.Money", number + 1, 100 + number, json.dumps(schema)) for number, schema in enumerate(MONEY)]
    for number, schema in enumerate(PAYMENTS):
        references = [{"name": "pay.Money", "subject": "pay.Money", "version": VERSION_OF_MONEY[number]}]
        # Compaction has not yet removed the earlier record of a version that is deleted.
        for deleted in (False, True) if number == 1 else (False,):
            more = {"references": references, "deleted": deleted}
            records.append(version("pay.Payment", number + 1, 200 + number, json.dumps(schema), **more))
    write(tmp_path / "_schemas-0", records)
    rows, values = [], []
    for i in range(90):
        number = i % 3
        money = MONEY[VERSION_OF_MONEY[number] - 1]
        whole = json.loads(json.dumps(PAYMENTS[number]).replace('"pay.Money"', json.dumps(money)))
        amount = {"units": i} | ({"nanos": 1} if number == 2 else {})
        written = {"amount": amount} | ({"at": i} if number else {})
        values.append(framed(200 + number, whole, written))
        rows.append({"at": written.get("at"), "amount": {"nanos": 7} | amount})
    write_values(tmp_path / "bare-0", values)
    write_values(tmp_path / "mixed-0", [values[0], framed(100, MONEY[0], {"units": 1})])
    write_values(tmp_path / "plain-0", [b"no prefix"])
    found = kolumn.read(tmp_path / "bare-0", value_format="registry", columns=["value", "valueSchemaId"])
    assert found["value"].to_pylist() == rows
    assert found["valueSchemaId"].to_pylist() == [200 + i % 3 for i in range(90)]
    given = json.dumps(PAYMENTS[0]).replace('"pay.Money"', json.dumps(MONEY[0]))
    found = kolumn.read(tmp_path / "bare-0", value_format="registry", value_schema=given, columns=["value"])
    assert found["value"].to_pylist() == [{"amount": {"units": i}} for i in range(90)]
    with pytest.raises(ArgumentError, match=r"no subject mixed-value .*the first values have schemas of pay\.Money, pay\.Payment: name"):
        kolumn.read(tmp_path / "mixed-0", value_format="registry")
    with pytest.raises(ArgumentError, match=r"no subject plain-value .*none of the first values names a schema that is there: name a"):
        kolumn.read(tmp_path / "plain-0", value_format="registry")
