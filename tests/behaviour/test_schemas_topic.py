"""The topic `_schemas` on disk: what a registry would answer from it, however it was written, and in spite of damage."""

import base64
import hashlib
import json
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import kolumn
from kolumn.values.schemas.open import schemas_of
from kolumn.values.schemas.schema import Reference, Schema
from kolumn.values.schemas.topic import TopicSchemas

Record = tuple[bytes | None, bytes | None]
RECORD = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'
PROTO = 'syntax = "proto3"; import "inner.proto"; message M { I i = 1; }'
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
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return packed(key), packed({"subject": subject, "version": last})


def clear_subject(subject: str) -> Record:
    return packed({"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0}), packed({"subject": subject})


OTHERS = [
    (packed({"keytype": "NOOP", "magic": 0}), None),
    (packed({"keytype": "CONFIG", "subject": None, "magic": 0}), packed({"compatibilityLevel": "FULL"})),
    (packed({"keytype": "MODE", "subject": "x", "magic": 0}), packed({"mode": "READWRITE"})),
]


def write(folder: Path, records: Iterable[Record], **how: Any) -> Path:
    keys, values = zip(*records, strict=True)
    kolumn.write(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), folder, **how)
    return folder


def topic(tmp_path: Path, *records: Record, **how: Any) -> TopicSchemas:
    found = schemas_of(write(tmp_path / "_schemas-0", records, **how))
    assert isinstance(found, TopicSchemas)
    return found


def id_of(schema: Schema | None) -> int | None:
    return None if schema is None else schema.id


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
    rules = {"domainRules": [{"name": "r"}]}
    noted = base64.b64encode(bytes(range(16))).decode()
    found = topic(
        tmp_path,
        version("a", 1, 1, md5=noted, ruleSet=rules),
        version("b", 1, 2, '"int"', ruleSet=rules),
        version("c", 1, 3, '"long"', md5="no base64"),
        version("d", 1, 4, '"bytes"', metadata={"properties": {"k": "v"}}),
    )
    assert id_of(found.by_guid(UUID(bytes=bytes(range(16))))) == 1
    assert [found.by_id(id).guid for id in (2, 3)] == [None, UUID(bytes=hashlib.md5(b'"long"').digest())]
    assert found.by_id(4).guid == UUID(bytes=hashlib.md5(b'"bytes"\1kv').digest())


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
    assert [one.is_deleted for one in found.registered()] == [True, True, False]
    assert found.newest("r") == Schema("AVRO", '"float"', (), 3, UUID(bytes=hashlib.md5(b'"float"').digest()))


def test_deleted_versions_are_found_by_id(tmp_path: Path) -> None:
    found = topic(
        tmp_path,
        version("soft", 1, 1, '"int"'),
        version("soft", 2, 2, '"long"'),
        version("soft", 2, 2, '"long"', deleted=True),
        version("subject", 1, 3, '"bytes"'),
        version("subject", 2, 4, '"float"'),
        delete_subject("subject", 1),
        version("hard", 1, 5, '"string"'),
        version("hard", 2, 6, '"null"'),
        gone("hard", 2),
        gone("never", 1),
        version("cleared", 1, 7, '"double"'),
        delete_subject("cleared", 1),
        version("cleared", 2, 8, '["int"]'),
        clear_subject("cleared"),
    )
    assert found.malformed == 0
    assert [id_of(found.by_id(id)) for id in range(1, 8)] == [1, 2, 3, 4, 5, None, None]
    assert [id_of(found.newest(subject)) for subject in ("soft", "subject", "hard", "cleared")] == [1, 4, 5, 8]
    assert id_of(found.version("soft", 2)) == 2
    assert [one.schema.id for one in found.registered() if one.is_deleted] == [2, 3]


def test_an_id_is_free_when_its_last_version_is_gone(tmp_path: Path) -> None:
    """A registry refuses another schema with an id; it may share the id with the same schema."""
    found = topic(
        tmp_path,
        version("a", 1, 1, '"int"'),
        version("b", 1, 1, '"int"'),
        version("c", 1, 1, '"long"'),
        gone("a", 1),
        version("d", 1, 1, '"bytes"'),
        gone("b", 1),
        version("e", 1, 1, '"float"'),
    )
    assert found.malformed == 2
    assert found.by_id(1).text == '"float"'
    assert [one.subject for one in found.registered()] == ["e"]


def test_contexts(tmp_path: Path) -> None:
    found = topic(
        tmp_path, version(":.site:o-value", 1, 1, '"int"'), version("x", 1, 1, '"long"'), version(":.site:o-value", 2, 2, '"bytes"')
    )
    assert found.malformed == 0
    assert found.by_id(1).text == '"long"'
    assert found.by_id(2).text == found.newest("o-value").text == found.newest(":.site:o-value").text == '"bytes"'


MALFORMED: list[Record] = [
    (None, b"{}"),
    (b"", None),
    (b"\xff\xfe", b"{}"),
    (b"[1]", b"{}"),
    (b"{", b"{}"),
    (b"[" * 5000, None),
    (packed({"keytype": "SCHEMA"}), b"{}"),
    (packed({"keytype": "ELSE"}), b"{}"),
    (packed({"keytype": ["SCHEMA"]}), b"{}"),
    (packed({"keytype": "SCHEMA", "subject": 1, "version": 1}), version("s", 1, 1)[1]),
    (packed({"keytype": "SCHEMA", "subject": "s", "version": "1"}), version("s", 1, 1)[1]),
    (packed({"keytype": "SCHEMA", "subject": "s", "version": True}), version("s", 1, 1)[1]),
    (version("s", 1, 1)[0], b""),
    (version("s", 1, 1)[0], b"3"),
    (version("s", 1, 1)[0], packed({"id": 1})),
    version("s", 1, 1, schemaType="XML"),
    version("s", 1, 1, schemaType=["AVRO"]),
    version("s", 1, 1, references=[{}]),
    version("s", 1, 1, references=[3]),
    version("s", 1, 1, references=7),
    version("s", 1, None),
    (version("s", 1, 1)[0], packed({"id": 1, "schema": None})),
    (version("s", 1, 1)[0], b'{"id":1,"schema":"\\ud800"}'),
    (delete_subject("s", 1)[0], b"{}"),
]


def test_malformed_records_are_left_out_and_counted(tmp_path: Path) -> None:
    records = [one for malformed in MALFORMED for one in (malformed, version("good", 1, 1))]
    found = topic(tmp_path, *records)
    assert found.malformed == len(MALFORMED)
    assert [one.subject for one in found.registered()] == ["good"]
    with pytest.raises(kolumn.ArgumentError, match=f"not a topic _schemas: none of its {len(MALFORMED)} records"):
        schemas_of(write(tmp_path / "orders-0", MALFORMED))


def test_damaged_segments(tmp_path: Path) -> None:
    records = [version("s", number, number, f'"{number}"') for number in range(1, 41)]
    folder = write(tmp_path / "_schemas-0", records, batch_records=4)
    (log,) = folder.glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = schemas_of(folder)
    assert (found.skipped.stretches, found.skipped.records, found.malformed) == (1, 4, 0)
    assert len(list(found.registered())) == 36
    assert id_of(found.newest("s")) == 40


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
    with pytest.raises(kolumn.ArgumentError, match=f"there is no {tmp_path}/_schemas-0, no {tmp_path.parent}/_schemas-0"):
        schemas_of(None, tmp_path)


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
    with pytest.raises(kolumn.ArgumentError, match="no such file"):
        schemas_of(f"{url}/no")


def test_copies_of_the_topic_are_one(tmp_path: Path) -> None:
    """Log directories of several brokers, each with its replica; one is damaged."""
    records = [version("s", number, number, f'"{number}"') for number in range(1, 21)]
    write(tmp_path / "1" / "_schemas-0", records, batch_records=2)
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    (log,) = (tmp_path / "1").glob("*/*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = schemas_of(None, [tmp_path / "1", tmp_path / "2"])
    assert len(list(found.registered())) == 20
    assert found.malformed == 0


def test_a_manifest_that_is_none_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path / "_schemas-0", [version("s", 1, 7)])
    (tmp_path / "_schemas-0" / "00000000000000000000-AAAAAAAAAAMAAAAAAAAABA.rsm-manifest").write_text("{")
    found = schemas_of(tmp_path)
    assert found.by_id(7) is not None
    assert found.skipped.stretches == 1
