"""Protobuf: types, columns, what precedes messages, writers' schemas; text with imports, descriptors, classes, and what is refused."""

import base64
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2

from kit.guarded import bodies
from kit.outcome import raises
from kit.protobuf_values import message_class, plain, varint
from kolumn.core.errors import ArgumentError
from kolumn.values import protobuf_schema as module
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import Place, file_of
from kolumn.values.schemas.collections import ListedSchemas
from kolumn.values.schemas.schema import Reference, Registered, Schema
from kolumn.values.wire import framing

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum State { OPEN = 0; PAID = 1; GONE = -4; OPENED = 0; FAR = 2000000000; option allow_alias = true; }
message Order {
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  repeated Item items = 4;
  map<string, State> marks = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  google.protobuf.Int64Value maybe = 8;
  oneof how { string card = 9; Item gift = 10; }
  uint64 big = 11;
  message Item { string sku = 1; uint32 count = 2; repeated google.protobuf.Timestamp seen = 3; map<int32, Item2> more = 4; }
  message Item2 { bool on = 1; }
}
message Other { int32 x = 1; }
"""


def decoded(decoder: ProtobufDecoder, values: list[Any], **more: Any) -> list[Any]:
    array, valid = decoder.decode(bodies(values, **more))
    array.validate(full=True)
    assert (array.type, array.is_valid().to_pylist()) == (decoder.type, valid.tolist())
    return [plain(one) for one in array]


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@pytest.fixture(scope="module")
def order() -> ProtobufDecoder:
    return ProtobufDecoder(ORDER, "Order")


def test_types(order: ProtobufDecoder) -> None:
    state, when = pa.dictionary(pa.int32(), pa.string()), pa.timestamp("ns", "UTC")
    more = pa.struct([pa.field("on", pa.bool_(), nullable=False)])
    kinds = {"sku": pa.string(), "count": pa.uint32(), "seen": pa.list_(pa.field("element", when)),
             "more": pa.map_(pa.int32(), pa.field("value", more, nullable=False))}  # fmt: skip
    item = pa.struct([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
    assert order.type == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string()), pa.field("state", state),
            pa.field("items", pa.list_(pa.field("element", item, nullable=False)), nullable=False),
            pa.field("marks", pa.map_(pa.string(), pa.field("value", state)), nullable=False), pa.field("at", when),
            pa.field("took", pa.duration("ns")), pa.field("maybe", pa.int64()), pa.field("card", pa.string()), pa.field("gift", item),
            pa.field("big", pa.uint64(), nullable=False),
        ]
    )  # fmt: skip


def test_defaults_and_enums(order: ProtobufDecoder) -> None:
    empty = {"id": 0, "note": None, "state": "OPEN", "items": [], "marks": {"map": {}}, "at": None, "took": None, "maybe": None,
             "card": None, "gift": None, "big": 0}  # fmt: skip
    assert (decoded(order, [b"", None, b""]), decoded(order, [])) == ([empty, None, empty], [])
    # Number 0 is no field's.
    assert decoded(order, [b"\0\1", b"\2\0"]) == [None, None]
    # Of enums the first of two names counts; a number without a symbol is its own.
    rows = decoded(order, [field(3, number) for number in (0, 1, -4, 2_000_000_000, 5, 2**32 + 1)])
    assert [row["state"] for row in rows] == ["OPEN", "PAID", "GONE", "FAR", "5", "PAID"]
    rows = decoded(order, [field(5, field(1, b"a") + field(2, 1)) + field(5, b"") + field(5, field(1, b"z") + field(2, 9))])
    assert rows[0]["marks"] == {"map": {"a": "PAID", "": "OPEN", "z": "9"}}


@pytest.mark.parametrize(
    ("seconds", "nanos", "found"),
    [(0, 0, 0), (1, 5, 10**9 + 5), (-1, 999_999_999, -1), (9223372036, 854775807, 2**63 - 1), (9223372036, 854775808, None),
     (-9223372037, 145224192, -(2**63)), (-9223372037, 145224191, None), (2**62, 0, None), (-(2**63), 0, None), (2**63 - 1, -1, None),
     (9223372037, -(10**9) + 1, 9223372036 * 10**9 + 1), (253402300799, 999_999_999, None)],
)  # fmt: skip
def test_times(order: ProtobufDecoder, seconds: int, nanos: int, found: int | None) -> None:
    """A value with a time that 64 bits of nanoseconds cannot hold is left to the plain reader."""
    at = timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    took = duration_pb2.Duration(seconds=seconds, nanos=nanos).SerializeToString()
    rows = decoded(
        order, [field(6, at) + field(7, took) + field(4, field(3, at) + field(3, b"")), b"", field(4, b"") + field(4, field(3, at))]
    )
    assert rows[1]["at"] is None
    if found is None:
        assert (rows[0], rows[2]) == (None, None)
    else:
        assert (rows[0]["at"], rows[0]["took"], rows[0]["items"][0]["seen"]) == (found, found, [found, 0])


@pytest.mark.parametrize("count", [2, 16, 17, 3000])
@pytest.mark.parametrize("kind", ["string", "int32", "bool", "fixed64"])
def test_the_last_of_equal_keys_counts(count: int, kind: str) -> None:
    decoder = ProtobufDecoder(f'syntax = "proto3"; message M {{ map<{kind}, int32> m = 1; int32 x = 2; }}')
    keys = [k * 7 % max(count // 2, 1) for k in range(count)]
    made: dict[Any, int] = {}
    entries = b""
    for k, key in enumerate(keys):
        raw = {"string": field(1, str(key).encode()), "int32": field(1, key), "bool": field(1, key)}.get(kind)
        entries += field(1, (raw or b"\x09" + key.to_bytes(8, "little")) + field(2, k))
        made[{"string": str(key), "bool": key > 0}.get(kind, key)] = k
    rows = decoded(decoder, [b"", entries, field(2, 3), entries])
    assert rows == [{"m": {"map": {}}, "x": 0}, {"m": {"map": made}, "x": 0}, {"m": {"map": {}}, "x": 3}, {"m": {"map": made}, "x": 0}]


def test_columns() -> None:
    item = field(1, b"s") + field(2, 3)
    value = field(1, 9) + field(4, item) + field(4, item) + field(10, item) + field(2, b"\xff")
    decoder = ProtobufDecoder(ORDER, "shop.Order", ("id", "items.sku", "gift"))
    assert [one.name for one in decoder.type] == ["id", "items", "gift"]
    gift = {"sku": "s", "count": 3, "seen": [], "more": {"map": {}}}
    # The note is no UTF-8; it is not looked into.
    assert decoded(decoder, [value]) == [{"id": 9, "items": [{"sku": "s"}, {"sku": "s"}], "gift": gift}]
    assert decoded(ProtobufDecoder(ORDER, "shop.Order"), [value]) == [None]
    assert decoded(ProtobufDecoder(ORDER, "shop.Order", ()), [value, b"\x0f"]) == [{}, None]
    # A map has the parts of its messages.
    decoder = ProtobufDecoder(
        'syntax = "proto3"; message M { map<string, N> m = 1; } message N { int32 x = 1; string y = 2; }', "M", ("m.y",)
    )
    assert decoder.type.field("m").type.item_type == pa.struct([pa.field("y", pa.string(), nullable=False)])
    assert decoded(decoder, [field(1, field(1, b"k") + field(2, field(1, 3) + field(2, b"t"))), b""]) == [
        {"m": {"map": {"k": {"y": "t"}}}}, {"m": {"map": {}}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "said"),
    [(("idd",), "shop.Order has no field 'idd'"), (("gift.x",), "shop.Order.Item has no field 'x'"), (("id.x",), "id is not a message"),
     (("at.seconds",), "at is one column"), (("marks.value",), "marks is one column"),
     (("gift.more.key",), "shop.Order.Item2 has no field 'key'")],
)  # fmt: skip
def test_columns_that_are_not_there(columns: tuple[str, ...], said: str) -> None:
    raises(ArgumentError, said, ProtobufDecoder, ORDER, "Order", columns)


def test_confluents_message_indexes_choose_the_message() -> None:
    """They are of the writer's schema: there the message has another place."""
    before = ORDER.replace("enum State", "message First { int32 a = 1; }\nenum State")
    writers = [Schema("PROTOBUF", ORDER), Schema("PROTOBUF", before), Schema("PROTOBUF", 'syntax = "proto3"; message Z { int32 x = 1; }'),
               Schema("AVRO", '"int"')]  # fmt: skip
    front = b"\0\0\0\0\1"
    heads = [(b"\0", 0), (b"\2\0", 0), (b"\2\2", 0), (b"\2\2", 1), (b"\0", 1), (b"\0", 2), (b"\0", 3), (b"", 0), (b"\0", -1), (b"\2\2", -1)]
    values = [front + head + field(1, 4) for head, _ in heads]
    more: dict[str, Any] = {"prefix": 5, "framing": framing.CONFLUENT, "schema": [one for _, one in heads], "schemas": writers}
    for schema in (ORDER, writers[0]):
        rows = decoded(ProtobufDecoder(schema, "Order"), values, **more)
        assert [row and row["id"] for row in rows] == [4, 4, None, 4, None, None, None, None, 4, None]
    inner = decoded(
        ProtobufDecoder(ORDER, "Order.Item2"), [front + b"\4\0\2" + field(1, 1), front + b"\4\0\0" + field(1, 1)], **{**more, "schema": 0}
    )
    assert inner == [{"on": True}, None]


def test_apicurios_and_glues_messages() -> None:
    decoder = ProtobufDecoder(ORDER, "Order")
    named = [field(1, b"Order"), field(1, b"shop.Order"), field(1, b"Other"), b"", field(1, b"Order")[:-1]]
    values = [bytes(9) + varint(len(name)) + name + field(1, 4) for name in named]
    rows = decoded(decoder, values, prefix=9, framing=framing.APICURIO)
    assert [row and row["id"] for row in rows] == [4, 4, None, None, None]
    # With an id of four bytes the same stands where Confluent has indexes.
    rows = decoded(decoder, [value[4:] for value in values], prefix=5, framing=framing.CONFLUENT)
    assert [row and row["id"] for row in rows][:3] == [4, 4, None]
    # Glue counts messages by their names: Order, Order.Item, Order.Item.MoreEntry, Order.Item2, Order.MarksEntry, Other.
    places = file_of(ORDER).places()
    assert [places[f"shop.{name}"].number for name in ("Order", "Order.Item", "Other")] == [0, 1, 5]
    rows = decoded(decoder, [bytes(18) + head + field(1, 4) for head in (b"\0", b"\1", b"")], prefix=18, framing=framing.GLUE)
    assert [row and row["id"] for row in rows] == [4, None, None]
    # A header names the schema: nothing stands in front, and its message indexes are with the schema.
    assert decoded(decoder, [field(1, 4)], framing=framing.CONFLUENT_HEADER)[0]["id"] == 4
    schemas = [Schema("PROTOBUF", ORDER, message_indexes=indexes) for indexes in ((0,), (1,), (), (0, 0))]
    rows = decoded(decoder, [field(1, 4)] * 4, framing=framing.CONFLUENT_HEADER, schema=range(4), schemas=schemas)
    assert [row and row["id"] for row in rows] == [4, None, 4, None]


def test_values_without_a_prefix_that_seem_to_have_one_or_a_name() -> None:
    """Apicurio's ``Ref`` is left out; one that names another message is a part of the message, unless a header says whose it is."""
    decoder = ProtobufDecoder('syntax = "proto3"; message A { int32 a = 1; }')
    plain_one, framed = field(1, 1) + field(1, 2) + field(1, 3), b"\0\0\0\0\1\0" + field(1, 7)
    more: dict[str, Any] = {"prefix": [5, 5], "framing": framing.CONFLUENT}
    assert decoded(decoder, [plain_one, framed], **more) == [None, {"a": 7}]
    assert decoded(decoder, [plain_one, framed], **more, bare=True) == [{"a": 3}, {"a": 7}]
    decoder = ProtobufDecoder('syntax = "proto3"; message Customer { bytes a = 1; }')
    named, other = (varint(10) + field(1, name) for name in (b"Customer", b"Consumer"))
    values = [named + field(1, b"x"), other + b"x", other + field(1, b"x"), field(1, b"x"), named + b"\7"]
    assert decoded(decoder, values, bare=True) == [{"a": b"x"}, {"a": b"\x08Consumerx"}, None, {"a": b"x"}, {"a": b"\x08Customer\7"}]
    assert decoded(decoder, values, framing=framing.APICURIO_HEADER) == [{"a": b"x"}, None, None, {"a": b"x"}, None]
    assert decoded(decoder, values, framing=framing.NONE) == [None, {"a": b"\x08Consumerx"}, None, {"a": b"x"}, {"a": b"\x08Customer\7"}]


def test_required_fields_in_messages_that_are_removed_or_replaced() -> None:
    text = """syntax = "proto2"; message A { required int32 x = 1; optional B b = 2; oneof o { B c = 3; int32 d = 4; } repeated B e = 5;
              map<int32, B> f = 6; } message B { required int32 y = 1; required K k = 2; } enum K { LOW = 1; HIGH = 2; }"""
    whole, x = field(1, 1) + field(2, 2), field(1, 1)
    values = [b"", x, x + field(2, b""), x + field(2, whole), x + field(2, field(1, 1)) + field(2, field(2, 1)),
              x + field(3, b"") + field(4, 1), x + field(3, b""), x + field(5, whole) + field(5, b""),
              x + field(6, field(1, 3)) + field(6, field(1, 3) + field(2, whole)),
              x + field(6, field(1, 3)), x + field(2, field(1, 1) + field(2, 9))]  # fmt: skip
    rows = decoded(ProtobufDecoder(text, "A"), values)
    assert [row is not None for row in rows] == [False, True, False, True, True, True, False, False, True, False, False]
    assert rows[3] == {"x": 1, "b": {"y": 1, "k": "HIGH"}, "c": None, "d": None, "e": [], "f": {"map": {}}}


def test_values_of_every_size_between_bad_ones() -> None:
    """Columns grow, and what bad rows wrote leaves nothing."""
    decoder = ProtobufDecoder('syntax = "proto3"; message A { string s = 1; repeated string t = 2; repeated int32 n = 3; }')
    values, wanted = [], []
    for k in range(300):
        made = field(1, b"s" * (k * 37 % 500)) + field(2, b"t" * k) * (k % 5) + field(3, b"\x05" * (k % 90))
        values += [made, made + b"\x0f", None]
        wanted += [{"s": "s" * (k * 37 % 500), "t": ["t" * k] * (k % 5), "n": [5] * (k % 90)}, None, None]
    assert decoded(decoder, values) == wanted


def test_tags_of_more_bytes_and_groups_that_end_with_their_own_number() -> None:
    """The first byte of a longer tag may be equal to the number that is the tag of another field."""
    decoder = ProtobufDecoder(
        'syntax = "proto3"; message A { int32 a = 16; string b = 17; repeated int32 c = 18; int32 d = 5000; bytes e = 1; }'
    )
    value = field(16, 3) + field(17, b"text") + field(18, b"\x01\x02") + field(5000, 4) + field(1, b"x")
    row = {"a": 3, "b": "text", "c": [1, 2], "d": 4, "e": b"x"}
    assert decoded(decoder, [value, b"", value]) == [row, {"a": 0, "b": "", "c": [], "d": 0, "e": b""}, row]
    decoder = ProtobufDecoder('syntax = "proto2"; message A { optional group G = 3 { optional int32 x = 1; } optional int32 y = 4; }')
    whole, wrong, open_one, nested = b"\x1b\x08\x05\x1c\x20\x02", b"\x1b\x08\x05\x24", b"\x1b\x08\x05", b"\x1b\x7b\x7c\x08\x05\x1c"
    rows = decoded(decoder, [whole, wrong, open_one, nested, b"\x1c", field(3, b"\x08\x05") + field(4, 2)])
    assert rows == [{"g": {"x": 5}, "y": 2}, None, None, {"g": {"x": 5}, "y": None}, None, {"g": None, "y": 2}]


def test_threads_share_a_decoder(order: ProtobufDecoder) -> None:
    chunks = [[field(1, 1000 * chunk + k) + field(9, b"x" * (k % 50)) + field(4, field(2, k)) for k in range(200)] for chunk in range(8)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda chunk: decoded(order, chunk), chunks))
    assert [[row["id"] for row in rows] for rows in found] == [[1000 * chunk + k for k in range(200)] for chunk in range(8)]


TEXT = 'syntax = "proto3"; package a; message A { message B { message C {} } message D {} } message Z {}'


def listed(**schemas: Schema) -> ListedSchemas:
    """Schemas by subject and version."""
    return ListedSchemas(Registered(name[:-1], int(name[-1]), one) for name, one in schemas.items())


def test_messages_by_name_and_place() -> None:
    file = file_of(TEXT)
    assert file.message("a.A.D").full_name == file.message("A.D").full_name == "a.A.D"
    assert file.places() == {
        "a.A": Place((0,), 0, ("a.A", "A")), "a.A.B": Place((0, 0), 1, ("a.A.B", "B")), "a.A.B.C": Place((0, 0, 0), 2, ("a.A.B.C", "C")),
        "a.A.D": Place((0, 1), 3, ("a.A.D", "D")), "a.Z": Place((1,), 4, ("a.Z", "Z")),
    }  # fmt: skip
    raises(ArgumentError, r"^the schema has no message 'Q': it has a\.A, a\.Z", file.message, "Q")
    raises(ArgumentError, r"has no message 'C': did you mean a\.A\.B\.C\?", file.message, "C")
    raises(ArgumentError, r"name the message of the schema: it has a\.A, a\.Z", file.message, None)
    assert file_of('syntax = "proto3"; message One { message Two {} }').message(None).full_name == "One"


def test_what_has_an_index_and_a_short_name() -> None:
    """Entries of maps and groups have no index. Apicurio's serializers write the last part of a name: it means no inner message."""
    text = 'syntax = "proto2"; message A { map<int32, B> m = 1; optional group G = 2 { optional int32 x = 1; } message B {} }'
    assert file_of(text).places() == {"A": Place((0,), 0, ("A", "A")), "A.B": Place((0, 0), 1, ("A.B", "B"))}
    text = 'syntax = "proto3"; package p; message A { message B {} message C {} } message B { message C {} }'
    names = {name: place.names for name, place in file_of(text).places().items()}
    assert names == {"p.A": ("p.A", "A"), "p.A.B": ("p.A.B",), "p.A.C": ("p.A.C",), "p.B": ("p.B", "B"), "p.B.C": ("p.B.C",)}


def test_references_are_written_where_they_are_imported() -> None:
    money = Schema("PROTOBUF", 'syntax = "proto3"; package m; import "units.proto"; message Money { units.Unit unit = 1; }',
                   (Reference("units.proto", "units", 1),))  # fmt: skip
    units = Schema("PROTOBUF", 'syntax = "proto3"; package units; message Unit { string name = 1; }')
    text = 'syntax = "proto3"; import "deep/money.proto"; message Pay { m.Money money = 1; }'
    pay = Schema("PROTOBUF", text, (Reference("deep/money.proto", "money", 3),), id=7)
    schemas = listed(money3=money, units1=units)
    found = file_of(pay, schemas)
    assert (found.message(None).fields[0].message_type.fields[0].message_type.full_name, list(found.places())) == ("units.Unit", ["Pay"])
    raises(ArgumentError, r"schema 7 imports 'deep/money\.proto': money 3 is not there", file_of, pay)
    raises(ArgumentError, r"imports 'units\.proto': units 1 is not there", file_of, pay, listed(money3=money))


def test_descriptors_in_base64_with_imports() -> None:
    """Imports of google/protobuf are nobody's references."""
    main = descriptor_pb2.FileDescriptorProto(name="main.proto", dependency=["other.proto", "google/protobuf/timestamp.proto"])
    message = main.message_type.add(name="A")
    message.field.add(name="b", number=1, type=11, label=1, type_name=".B")
    message.field.add(name="t", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    other = descriptor_pb2.FileDescriptorProto(name="other.proto")
    other.message_type.add(name="B")
    texts = [base64.b64encode(one.SerializeToString()).decode() for one in (main, other)]
    schema = Schema("PROTOBUF", texts[0], (Reference("other.proto", "other", 1),))
    file = file_of(schema, listed(other1=Schema("PROTOBUF", texts[1])))
    assert [field.message_type.full_name for field in file.message(None).fields] == ["B", "google.protobuf.Timestamp"]
    raises(ArgumentError, "a file that it imports is not one", file_of, schema, listed(other1=Schema("PROTOBUF", "syntax = ...")))


@pytest.mark.parametrize("name", ["/tmp/out.proto", "../out.proto", "a/../../out.proto", "a\\b.proto", "", "."])
def test_names_of_references_that_lead_elsewhere_are_refused(name: str) -> None:
    other = Schema("PROTOBUF", 'syntax = "proto3"; message X {}')
    with pytest.raises(ArgumentError, match="cannot be the name of an imported file"):
        file_of(Schema("PROTOBUF", TEXT, (Reference(name, "x", 1),)), listed(x1=other))


def test_files_outside_are_not_imported_and_errors_name_the_line_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "other.proto").write_text('syntax = "proto3"; message X {}')
    raises(
        ArgumentError, "is none of its references", file_of, f'syntax = "proto3"; import "{tmp_path}/other.proto"; message A {{ X x = 1; }}'
    )
    with pytest.raises(ArgumentError, match=r"^schema 9 is not valid: schema\.proto:2:\d+: "):
        file_of(Schema("PROTOBUF", 'syntax = "proto3";\nmessage A { strin x = 1; }', id=9))
    raises(ArgumentError, "schema 3 is of type AVRO, not PROTOBUF", file_of, Schema("AVRO", '"int"', id=3))


def test_sets_of_file_descriptors() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    main = files.file.add(name="main.proto", dependency=["other.proto"])
    main.message_type.add(name="A").field.add(name="b", number=1, type=11, label=1, type_name=".B")
    files.file.insert(0, descriptor_pb2.FileDescriptorProto(name="other.proto"))
    files.file[0].message_type.add(name="B")
    assert file_of(files.SerializeToString()).message(None).full_name == "A"
    turned = descriptor_pb2.FileDescriptorSet(file=[files.file[1], files.file[0]])
    assert file_of(turned.SerializeToString()).message("A").full_name == "A"
    for wrong, said in [(b"abc", "not a FileDescriptorSet"), (b"", "without files"),
                        (descriptor_pb2.FileDescriptorSet(file=[main]).SerializeToString(), "is not valid")]:  # fmt: skip
        raises(ArgumentError, said, file_of, wrong)
    files.file[0].dependency.append("main.proto")
    raises(ArgumentError, "imports itself", file_of, files.SerializeToString())


FILES = descriptor_pb2.FileDescriptorSet()
FILES.file.add(name="one.proto", package="t").message_type.add(name="M0")
DESCRIPTORS = FILES.SerializeToString()


def test_generated_classes() -> None:
    assert file_of(timestamp_pb2.Timestamp).message("google.protobuf.Timestamp").full_name == "google.protobuf.Timestamp"
    assert file_of(message_class(DESCRIPTORS)).message(None).full_name == "t.M0"
    raises(ArgumentError, "not <class 'int'>", file_of, int)


@pytest.mark.parametrize(("package", "schema"), [("google.protobuf", DESCRIPTORS), ("grpc_tools", TEXT)])
def test_missing_packages_are_named(package: str, schema: bytes | str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
from kolumn.core.errors import MissingError
from kolumn.values.protobuf_schema import file_of
try:
    file_of({schema!r})
except MissingError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pip install {'protobuf ' * (package == 'google.protobuf')}grpcio-tools" in done.stdout


def test_protoc_ends_and_has_no_modules_of_the_callers_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importlib.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert file_of(TEXT).message("Z").name == "Z"
    monkeypatch.setattr(module, "_SECONDS", 0.001)
    raises(ArgumentError, "protoc took longer", file_of, TEXT)
