"""Bytes of Avro values, from the specification and from values.md's vectors, and the columns that they become."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kit.avro_values import bodies, registered
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
