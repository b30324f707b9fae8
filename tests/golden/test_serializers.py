"""What serializers of schema registries wrote, in each of their modes: its message and values, and never those of another message."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kolumn.schema import HEADERS

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
