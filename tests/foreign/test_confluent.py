"""Values by Confluent's own serializers: their prefixes and headers lead to the schema that they used, and leave the body they wrote."""

import base64
import io
import json
from collections.abc import Callable
from ctypes import string_at
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient, header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import schemaless_reader
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.struct_pb2 import ListValue, Struct
from google.protobuf.timestamp_pb2 import Timestamp

import kolumn
from kit.avro_values import encoded
from kit.guarded import bodies as guarded
from kit.protobuf_values import expected, plain
from kolumn.core.schema import HEADERS
from kolumn.readers.schemas import schemas_of
from kolumn.values.framing import Framer
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import file_of
from kolumn.values.schemas.collections import ServiceSchemas
from kolumn.values.schemas.schema import Reference, Schema
from kolumn.values.wire import framing as kinds

AVRO = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "c", "type": ["null", "string"]}]}
OLDER = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
JSON = {"title": "J", "type": "object", "properties": {"id": {"type": "integer"}}}
ROW = {"id": 5, "c": "hé"}


@pytest.fixture
def client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://x"})


def guid_serializer(payload: bytes, ctx: Any, schema_id: Any) -> bytes:
    """The GUID as a prefix: a reader accepts it there too."""
    return schema_id.guid_to_bytes() + payload


class Producer:
    """Serializes values of one topic, and keeps them with their headers."""

    def __init__(self, client: SchemaRegistryClient, is_key: bool = False) -> None:
        self.client, self.field = client, MessageField.KEY if is_key else MessageField.VALUE
        self.values: list[bytes | None] = []
        self.headers: list[list[dict[str, Any]]] = []

    def send(self, make: Callable[..., Any], given: Any, where: Any = prefix_schema_id_serializer, **how: Any) -> None:
        headers: list[tuple[str, bytes]] = []
        conf = {"schema.id.serializer": where} | how
        value = make(conf)(given, SerializationContext("orders", self.field, headers))
        self.values.append(value)
        self.headers.append([{"key": key, "value": data} for key, data in headers])

    def avro(self, given: Any, schema: Any = AVRO, **how: Any) -> None:
        self.send(lambda conf: AvroSerializer(self.client, json.dumps(schema), conf=conf), given, **how)

    def json(self, given: Any, **how: Any) -> None:
        self.send(lambda conf: JSONSerializer(json.dumps(JSON), self.client, conf=conf), given, **how)

    def protobuf(self, given: Any, **how: Any) -> None:
        self.send(lambda conf: ProtobufSerializer(type(given), self.client, conf=conf), given, **how)

    def columns(self) -> tuple[pa.Array, pa.Array]:
        return pa.array(self.values, pa.binary()), pa.array(self.headers, HEADERS)


def test_prefixes_and_headers_of_all_serializers(client: SchemaRegistryClient) -> None:
    made = Producer(client)
    made.avro(ROW)
    made.avro({"id": 6}, OLDER)
    made.avro(ROW, where=header_schema_id_serializer)
    made.avro(ROW, where=guid_serializer)
    made.json({"id": 1})
    made.json({"id": 2}, where=header_schema_id_serializer)
    made.values.append(None)
    made.headers.append([])
    made.avro({"id": 7, "c": None})
    assert made.values[0] == bytes.fromhex("0000000001 0a02 0668c3a9")
    values, headers = made.columns()
    found, ids = Framer("auto", schemas_of(client)).bodies(values, headers)
    avro, older, json_schema = encoded(AVRO, ROW), encoded(OLDER, {"id": 6}), b'{"id":1}'
    bodies = [None if size < 0 else string_at(int(at), int(size)) for at, size in zip(found.address, found.length, strict=True)]
    assert bodies == [avro, older, avro, avro, json_schema, b'{"id":2}', None, encoded(AVRO, {"id": 7, "c": None})]
    named, prefix = kinds.CONFLUENT_HEADER, kinds.CONFLUENT
    assert found.framing.tolist() == [prefix, prefix, named, kinds.CONFLUENT_GUID, prefix, named, kinds.NONE, prefix]
    texts = [None if index < 0 else json.loads(found.schemas[index].text) for index in found.schema.tolist()]
    assert texts == [AVRO, OLDER, AVRO, AVRO, JSON, JSON, None, AVRO]
    assert {found.schemas[index].kind for index in found.schema[4:6]} == {"JSON"}
    # The client does not tell the id of a schema that it finds by its GUID.
    assert ids.to_pylist() == [1, 2, None, None, 3, None, None, 1]
    for row in (0, 2, 3):
        assert schemaless_reader(io.BytesIO(bodies[row]), texts[row]) == ROW


def test_headers_of_keys(client: SchemaRegistryClient) -> None:
    made = Producer(client, is_key=True)
    made.avro(ROW, where=header_schema_id_serializer)
    keys, headers = made.columns()
    assert [one["key"] for one in made.headers[0]] == ["__key_schema_id"]
    assert Framer("auto", schemas_of(client), is_key=True).bodies(keys, headers)[0].schema.tolist() == [0]
    assert Framer("auto", schemas_of(client)).bodies(keys, headers)[0].schema.tolist() == [-1]


def test_message_indexes_of_protobuf(client: SchemaRegistryClient) -> None:
    """After a prefix they are at the beginning of the body; in a header they are a part of the schema."""
    made = Producer(client)
    given = [Timestamp(seconds=3), Struct(), ListValue()]
    for one in given:
        made.protobuf(one)
        made.protobuf(one, where=header_schema_id_serializer)
    found, _ = Framer("auto", schemas_of(client)).bodies(*made.columns())
    bodies = [string_at(int(at), int(size)) for at, size in zip(found.address, found.length, strict=True)]
    indexes = [b"\0", b"\0", b"\2\4"]
    assert bodies[::2] == [before + one.SerializeToString() for before, one in zip(indexes, given, strict=True)]
    assert bodies[1::2] == [one.SerializeToString() for one in given]
    schemas = [found.schemas[index] for index in found.schema.tolist()]
    assert ([one.message_indexes for one in schemas], {one.kind for one in schemas}) == ([(), (0,), (), (0,), (), (2,)], {"PROTOBUF"})
    # This client registers descriptors; a registry keeps .proto source.
    assert FileDescriptorProto.FromString(base64.b64decode(schemas[4].text)).message_type[2].name == "ListValue"


@pytest.mark.parametrize("seed", range(4))
def test_damaged_prefixes_lead_nowhere(client: SchemaRegistryClient, seed: int) -> None:
    """No flipped bit of a prefix is an error, and none leads to another schema than the one that a registry has for it."""
    made = Producer(client)
    for where in (prefix_schema_id_serializer, guid_serializer):
        made.avro(ROW, where=where)
    schemas = schemas_of(client)
    for value in made.values:
        assert value is not None
        size = 17 if value[0] else 5
        mutants = []
        for position in range(size):
            changed = bytearray(value)
            changed[position] ^= 1 << (2 * seed + position) % 8
            mutants.append(bytes(changed))
        found, _ = Framer("auto", schemas).bodies(pa.array(mutants))
        assert (found.schema.tolist(), found.length.tolist()) == ([-1] * size, [-1] * size)


def test_a_registry_is_asked_by_its_client(client: SchemaRegistryClient) -> None:
    inner = client.register_schema_full_response("inner", TheirSchema('"int"'))
    references = [SchemaReference("a.In", "inner", 1)]
    client.register_schema("outer", TheirSchema('["null"]', "AVRO", references))
    client.register_schema("inner", TheirSchema('"long"'))
    found = schemas_of(client)
    outer = found.newest("outer")
    assert outer is not None
    assert (outer.references, found.version("inner", 1).text) == ((Reference("a.In", "inner", 1),), '"int"')
    assert found.version("inner", -1).text == found.newest("inner").text == '"long"'
    assert found.by_guid(UUID(inner.guid)).text == '"int"'
    assert found.by_id(9) is found.version("inner", 9) is found.newest("nobody") is found.by_id(-1) is None
    assert found.by_fingerprint(1) is found.only() is None
    assert [(one.subject, one.version) for one in found.registered()] == [("inner", 1), ("inner", 2), ("outer", 1)]


def test_each_schema_is_asked_for_once(client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def get_schema(id: int) -> TheirSchema:
        asked.append(id)
        if id == 1:
            return TheirSchema('"int"')
        raise SchemaRegistryError(404, 40403, "Schema not found")

    monkeypatch.setattr(client, "get_schema", get_schema)
    found = schemas_of(client)
    assert ([found.by_id(id) is None for id in (1, 2, 1, 2, 0, 2**31)], asked) == ([False, True, False, True, True, True], [1, 2])


@pytest.mark.parametrize("given", ["mock://x", {"url": "mock://x"}])
def test_urls_of_registries(given: Any) -> None:
    found = schemas_of(given)
    assert isinstance(found, ServiceSchemas)
    assert found.by_id(1) is None
    assert list(found.registered()) == []


def test_a_registry_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the registry, without the password."""
    found: Any = schemas_of({"url": "http://me:secret@127.0.0.1:9", "max.retries": 0})
    with pytest.raises(kolumn.ArgumentError, match=r"http://127\.0\.0\.1:9: schemas cannot be read") as raised:
        found.by_id(1)
    assert "secret" not in str(raised.value)
    with pytest.raises(kolumn.ArgumentError, match="schema registry: "):
        schemas_of({"url": "http://x", "no.such.option": 1})

    def refuse(id: int) -> None:
        raise SchemaRegistryError(401, 40101, "Unauthorized")

    monkeypatch.setattr(found._client, "get_schema", refuse)
    with pytest.raises(kolumn.ArgumentError, match="Unauthorized"):
        found.by_id(2)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(kolumn.MissingError, match=r"pip install 'confluent-kafka\[schemaregistry\]'"):
        schemas_of("http://x")


# Values of ProtobufSerializer, with the schemas that it registers, become columns.


TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string name = 2; google.protobuf.Timestamp at = 3; repeated Line lines = 4;
  message Line { double price = 1; }
}
message Refund { int64 id = 1; message Why { string text = 1; } Why why = 2; }
"""


MAPS = 'syntax = "proto3"; message A { map<string, int32> m = 1; message B { int32 x = 1; } message C { int32 x = 1; } }'


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_messages_after_a_map() -> None:
    """This client counts entries of maps, Confluent's Java classes do not; it registers descriptors, and they .proto text."""
    client, context = SchemaRegistryClient.new_client({"url": "mock://maps"}), SerializationContext("orders", MessageField.VALUE)
    values = []
    for number, name in enumerate(("A.B", "A.C")):
        kind = message_factory.GetMessageClass(file_of(MAPS).message(name))
        values.append(ProtobufSerializer(kind, client, {"use.deprecated.format": False})(kind(x=number), context))
    assert [(value or b"")[5:8].hex() for value in values] == ["040002", "040004"]
    how: dict[str, Any] = {"prefix": 5, "framing": kinds.CONFLUENT, "schema": 0}
    by_python, by_java = Schema("PROTOBUF", str(client.get_schema(1).schema_str)), Schema("PROTOBUF", MAPS)
    for name, written, expected_rows in (("A.B", by_python, [0, None]), ("A.C", by_python, [None, 1]), ("A.C", by_java, [0, None])):
        array, _ = ProtobufDecoder(MAPS, name).decode(guarded(values, schemas=[written], **how))
        assert [row and row["x"] for row in array.to_pylist()] == expected_rows


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["Order", "Refund", "Order.Line", "Refund.Why"])
def test_values_of_confluents_serializer(name: str) -> None:
    file = file_of(TEXT)
    classes: dict[str, Any] = {
        one: message_factory.GetMessageClass(file.message(one)) for one in ("Order", "Refund", "Order.Line", "Refund.Why")
    }
    client = SchemaRegistryClient.new_client({"url": "mock://typed"})
    context = SerializationContext("orders", MessageField.VALUE)
    made = {
        "Order": classes["Order"](id=5, name="hé", lines=[classes["Order.Line"](price=2.5), classes["Order.Line"]()]),
        "Refund": classes["Refund"](id=-1, why=classes["Refund.Why"](text="broken")),
        "Order.Line": classes["Order.Line"](price=1.5),
        "Refund.Why": classes["Refund.Why"](text="late"),
    }
    made["Order"].at.FromNanoseconds(1_700_000_000_123_456_789)
    values = [ProtobufSerializer(classes[one], client, {"use.deprecated.format": False})(message, context) for one, message in made.items()]
    assert all(value is not None and value[0] == 0 for value in values)
    ids = [int.from_bytes((value or b"")[1:5], "big") for value in values]
    known = {one: client.get_schema(one) for one in set(ids)}
    schemas = [Schema("PROTOBUF", str(known[one].schema_str), id=one) for one in sorted(known)]
    decoder = ProtobufDecoder(TEXT, name)
    where = [sorted(known).index(one) for one in ids]
    array, valid = decoder.decode(guarded(values, prefix=5, framing=kinds.CONFLUENT, schema=where, schemas=schemas))
    assert valid.tolist() == [one == name for one in made]
    wanted = [expected(classes[name], message.SerializeToString()) if one == name else None for one, message in made.items()]
    assert [plain(one) for one in array] == wanted
