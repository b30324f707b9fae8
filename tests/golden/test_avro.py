"""Bytes of Avro values, from the specification and from values.md's vectors, and the columns that they become."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.avro_values import bodies, registered
from kolumn.core.schema import HEADERS
from kolumn.values.avro.decoder import AvroDecoder

ABSENT = "absent"


def one(schema: Any, text: str) -> Any:
    """The value of bytes in hexadecimal digits, or `ABSENT` for a row that is not valid."""
    column, valid = AvroDecoder(registered(schema)).decode(bodies([bytes.fromhex(text)]))
    column.validate(full=True)
    return column[0].as_py() if valid[0] else ABSENT


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        # The specification's table of variable-length numbers.
        ("int", "00", 0),
        ("int", "01", -1),
        ("int", "02", 1),
        ("int", "7f", -64),
        ("int", "80 01", 64),
        ("int", "fe ff ff ff 0f", 2**31 - 1),
        ("int", "ff ff ff ff 0f", -(2**31)),
        ("int", "80 80 80 80 10", ABSENT),  # 2**31
        ("long", "80 80 80 80 10", 2**31),
        ("long", "ff ff ff ff ff ff ff ff ff 01", -(2**63)),
        ("long", "80 80 80 80 80 80 80 80 80 00", 0),  # overlong
        ("long", "80 80 80 80 80 80 80 80 80 80 00", ABSENT),  # eleven bytes
        ("long", "80", ABSENT),
        ("long", "", ABSENT),
        ("long", "02 02", ABSENT),  # a byte too many
        ("null", "", None),
        ("boolean", "01", True),
        ("boolean", "00", False),
        ("boolean", "02", ABSENT),
        ("float", "00 00 80 3f", 1.0),
        ("double", "00 00 00 00 00 00 f0 bf", -1.0),
        ("double", "00 00 00 00 00 00 f0", ABSENT),
        ("string", "06 66 6f 6f", "foo"),  # the specification's "foo"
        ("string", "02 ff", ABSENT),
        ("string", "01 66", ABSENT),  # -1 bytes
        ("bytes", "04 ff 00", b"\xff\x00"),
        ("bytes", "06 ff 00", ABSENT),
        # An array [3, 27], in one block, in one with its size, and with a wrong size.
        ({"type": "array", "items": "long"}, "04 06 36 00", [3, 27]),
        ({"type": "array", "items": "long"}, "03 04 06 36 00", [3, 27]),
        ({"type": "array", "items": "long"}, "02 06 01 02 36 00", [3, 27]),
        ({"type": "array", "items": "long"}, "03 06 06 36 00", ABSENT),
        ({"type": "array", "items": "long"}, "04 06 36", ABSENT),
        ({"type": "map", "values": "int"}, "02 02 61 54 00", [("a", 42)]),
        # The specification's union of null and string.
        (["null", "string"], "00", None),
        (["null", "string"], "02 02 61", "a"),
        (["null", "string"], "04 02 61", ABSENT),
        (["string", "null"], "02", None),
        (["int", "long"], "02 80 80 80 80 10", 2**31),
        (["float", "double"], "00 00 00 80 3f", 1.0),
        (["null", "int", "string"], "04 02 61", {"member0": None, "member1": "a"}),
        (["null", "int", "string"], "02 02", {"member0": 1, "member1": None}),
        (["null", "int", "string"], "00", None),
        (["int"], "00 04", 2),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "02", "B"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "04", ABSENT),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "01", ABSENT),
        ({"type": "fixed", "name": "F", "size": 2}, "01 02", b"\x01\x02"),
        # Logical types.
        (logical("bytes", "decimal", precision=4, scale=2), "04 ff 38", Decimal("-2.00")),
        (logical("bytes", "decimal", precision=4, scale=2), "06 00 27 0f", Decimal("99.99")),
        (logical("bytes", "decimal", precision=4, scale=2), "04 27 10", ABSENT),  # 10000 has five digits
        (logical("bytes", "decimal", precision=4, scale=2), "00", ABSENT),
        (logical("bytes", "decimal", precision=38, scale=0), "22 01" + 16 * "00", ABSENT),  # 2**128
        (logical("bytes", "decimal", precision=40, scale=0), "22 01" + 16 * "00", Decimal(2**128)),
        (logical("bytes", "decimal", precision=38, scale=0), "28" + 19 * "ff" + "fe", Decimal(-2)),
        (logical("int", "date"), "02", date(1970, 1, 2)),
        (logical("int", "time-millis"), "d0 0f", time(0, 0, 1)),
        (logical("int", "time-millis"), "01", ABSENT),
        (logical("long", "time-micros"), "fe ff ba dd 83 05", time(23, 59, 59, 999_999)),
        (logical("long", "time-micros"), "80 80 bb dd 83 05", ABSENT),  # the end of the day, 86_400_000_000
        (logical("long", "timestamp-millis"), "d0 0f", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (logical("long", "local-timestamp-micros"), "02", datetime(1970, 1, 1, 0, 0, 0, 1)),
        (logical("fixed", "duration", name="D", size=12), "01 00 00 00 02 00 00 00 03 00 00 00", pa.MonthDayNano([1, 2, 3_000_000])),
        (logical("fixed", "duration", name="D", size=12), "00 00 00 80 02 00 00 00 03 00 00 00", ABSENT),
        (logical("string", "uuid"), "02 61", "a"),
        # Not valid, so it is what it would be without the logical type.
        (logical("bytes", "decimal", precision=2, scale=3), "02 01", b"\x01"),
        (logical("fixed", "decimal", name="D", size=1, precision=3, scale=0), "01", b"\x01"),
        (logical("int", "timestamp-millis"), "02", 1),
        (logical("fixed", "duration", name="D", size=2), "01 02", b"\x01\x02"),
        (logical("long", "unknown"), "02", 1),
    ],
    ids=str,
)  # fmt: skip
def test_values(schema: Any, text: str, value: Any) -> None:
    assert one(schema, text) == value


def test_the_record_of_the_specification() -> None:
    schema = {"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    assert one(schema, "36 06 66 6f 6f") == {"a": 27, "b": "foo"}


def test_the_body_of_confluents_serializer() -> None:
    """Written by confluent-kafka 2.16.0, after its prefix of five bytes."""
    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}, {"name": "c", "type": ["null", "string"]}]}
    assert one(schema, "0a 02 06 68 c3 a9") == {"id": 5, "c": "hé"}
    assert one(schema, "0a 00") == {"id": 5, "c": None}


# What serializers of schema registries wrote, in each of their modes: its message and values, and never those of another message.


DATA = Path(__file__).parents[1] / "data" / "serializers"
WRITTEN: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "values.jsonl").read_text().splitlines()]
SCHEMAS = {
    "protobuf": (DATA / "shop.proto").read_text(),
    "avro": (DATA / "o.avsc").read_text(),
    "json": '{"type": "object", "properties": {"id": {"type": "integer"}, "c": {"type": "string"}}}',
}
LINE = {"sku": "s1", "count": 3}
ROWS: dict[str, dict[str, Any]] = {
    "Order": {"id": 5, "note": "hé", "lines": [LINE]},
    "Refund": {"id": 6, "note": "no", "why": None},
    "Order.Line": LINE,
    "Line": LINE,
    "O": {"id": 5, "c": "hé"},
}


def message_of(one: dict[str, Any]) -> str | None:
    """The message that a value says to be; None if it does not say one that is there."""
    mode = one["mode"]
    if not one["serializer"].startswith("io.apicurio"):
        return str(one["message"])
    if mode == "no ref" or mode.endswith("JSON"):
        return None
    if one["message"] != "Order.Line":
        return str(one["message"])
    # The name is written without what the message is in, which means another one of the file; the indexes mean this one.
    return "Line" if "indexes" not in mode else "Order.Line" if mode == "indexes" else None


def read(folder: Path, written: list[dict[str, Any]], column: str, **how: Any) -> tuple[list[Any], list[bool]]:
    payloads = pa.array([bytes.fromhex(one["value"]) for one in written], pa.binary())
    headers = pa.array([[{"key": key, "value": bytes.fromhex(value)} for key, value in one["headers"]] for one in written], HEADERS)
    kolumn.write(pa.table({column: payloads, "headers": headers}), folder)
    found = kolumn.read(folder, **{f"{column}_{name}": value for name, value in how.items()}, columns=[column, f"{column}Valid"])
    return found[column].to_pylist(), found[f"{column}Valid"].to_pylist()


@pytest.mark.parametrize(
    ("column", "format", "message"),
    [
        ("value", "avro", "O"), ("key", "avro", "O"), ("value", "json", "O"), ("value", "protobuf", "Order"), ("key", "protobuf", "Order"),
        ("value", "protobuf", "Refund"), ("value", "protobuf", "Order.Line"), ("value", "protobuf", "Line"),
    ],
)  # fmt: skip
def test_values_of_a_registry(tmp_path: Path, column: str, format: str, message: str) -> None:
    written = [one for one in WRITTEN if one["format"] == format and one["key"] == (column == "key")]
    named = {"message": message} if format == "protobuf" else {}
    text = SCHEMAS[format]
    values, valid = read(tmp_path / "t-0", written, column, format=format, schema=text, schemas=lambda _: text, **named)
    expected = [message_of(one) == message for one in written]
    assert [(one["serializer"], one["mode"], one["message"]) for one, is_valid, should in zip(written, valid, expected, strict=True)
            if is_valid != should] == []  # fmt: skip
    assert values == [ROWS[message] if should else None for should in expected]


def test_headers_of_one_schema(tmp_path: Path) -> None:
    """Without a registry, a header that names another message counts where ``value_framing`` names that header."""
    for name, framing in (("io.apicurio", "apicurio-header"), ("confluent", "confluent-header")):
        written = [
            one for one in WRITTEN
            if one["serializer"].startswith(name) and one["headers"] and one["format"] == "protobuf" and not one["key"]
        ]  # fmt: skip
        for message in ("Order", "Refund"):
            how = {"format": "protobuf", "schema": SCHEMAS["protobuf"], "message": message, "framing": framing}
            values, valid = read(tmp_path / f"{name}-{message}-0", written, "value", **how)
            assert valid == [message_of(one) == message for one in written]
            assert values == [ROWS[message] if is_valid else None for is_valid in valid]


def test_what_stands_before_a_message_is_left_out_without_a_registry(tmp_path: Path) -> None:
    written = [one for one in WRITTEN if one["format"] == "protobuf" and one["message"] == "Order" and message_of(one) and not one["key"]]
    # Indexes beside headers are recognised by the headers alone.
    written = [one for one in written if one["mode"] != "headers, indexes"]
    how = {"format": "protobuf", "schema": SCHEMAS["protobuf"], "message": "Order"}
    assert read(tmp_path / "t-0", written, "value", **how) == ([ROWS["Order"]] * len(written), [True] * len(written))
