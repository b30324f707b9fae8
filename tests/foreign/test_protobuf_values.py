"""Does Kolumn read what confluent-kafka's ProtobufSerializer writes, with the schemas that it registers?"""

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from kit.bodies import bodies
from kit.protobuf_values import expected, plain
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import file_of
from kolumn.values.schemas.schema import Schema
from kolumn.values.wire import framing

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
    how: dict[str, Any] = {"prefix": 5, "framing": framing.CONFLUENT, "schema": 0}
    by_python, by_java = Schema("PROTOBUF", str(client.get_schema(1).schema_str)), Schema("PROTOBUF", MAPS)
    for name, written, expected_rows in (("A.B", by_python, [0, None]), ("A.C", by_python, [None, 1]), ("A.C", by_java, [0, None])):
        array, _ = ProtobufDecoder(MAPS, name).decode(bodies(values, schemas=[written], **how))
        assert [row and row["x"] for row in array.to_pylist()] == expected_rows


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["Order", "Refund", "Order.Line", "Refund.Why"])
def test_values_of_confluents_serializer(name: str) -> None:
    file = file_of(TEXT)
    kinds: dict[str, Any] = {
        one: message_factory.GetMessageClass(file.message(one)) for one in ("Order", "Refund", "Order.Line", "Refund.Why")
    }
    client = SchemaRegistryClient.new_client({"url": "mock://typed"})
    context = SerializationContext("orders", MessageField.VALUE)
    made = {
        "Order": kinds["Order"](id=5, name="hé", lines=[kinds["Order.Line"](price=2.5), kinds["Order.Line"]()]),
        "Refund": kinds["Refund"](id=-1, why=kinds["Refund.Why"](text="broken")),
        "Order.Line": kinds["Order.Line"](price=1.5),
        "Refund.Why": kinds["Refund.Why"](text="late"),
    }
    made["Order"].at.FromNanoseconds(1_700_000_000_123_456_789)
    values = [ProtobufSerializer(kinds[one], client, {"use.deprecated.format": False})(message, context) for one, message in made.items()]
    assert all(value is not None and value[0] == 0 for value in values)
    ids = [int.from_bytes((value or b"")[1:5], "big") for value in values]
    known = {one: client.get_schema(one) for one in set(ids)}
    schemas = [Schema("PROTOBUF", str(known[one].schema_str), id=one) for one in sorted(known)]
    decoder = ProtobufDecoder(TEXT, name)
    where = [sorted(known).index(one) for one in ids]
    array, valid = decoder.decode(bodies(values, prefix=5, framing=framing.CONFLUENT, schema=where, schemas=schemas))
    assert valid.tolist() == [one == name for one in made]
    wanted = [expected(kinds[name], message.SerializeToString()) if one == name else None for one, message in made.items()]
    assert [plain(one) for one in array] == wanted
