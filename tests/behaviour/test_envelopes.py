"""What do reads return of values in the envelopes of Connect, Debezium and CloudEvents, and what do the next tools?"""

import io
import json
import struct
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked
from kit.change_events import (
    ANNE,
    ANNE_MARIE,
    AVRO_FIELDS,
    GEORGE,
    LEFT,
    SALLY,
    TOPIC,
    TUTORIAL,
    Event,
    avro_schema,
    in_avro,
    in_json,
    key_in_json,
    write_topic,
)
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.tools.latest import LEFT_OUT

FORMS: dict[str, dict[str, Any]] = {
    "json": {"value_format": "json"}, "bare": {"value_format": "json"}, "avro": {"value_format": "registry"},
}  # fmt: skip
OPERATIONS = ["__op", "__deleted", "__ts_ms"]


def flat(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    op, before, after, time = event
    return {**((before if op == "d" else after) or dict.fromkeys(SALLY)), "__op": op, "__deleted": op == "d", "__ts_ms": time}


def values(source: Path, **options: Any) -> list[Any]:
    table = kolumn.read(source, **options)
    table.validate(full=True)
    return table["value"].to_pylist()


@pytest.mark.parametrize("kind", ["debezium", "auto"])
@pytest.mark.parametrize("form", FORMS)
def test_change_events_are_rows_with_their_operations(form: str, kind: str, tmp_path: Path) -> None:
    how = FORMS[form] | {"value_envelope": kind}
    topic = write_topic(tmp_path, in_what=form)
    table = kolumn.read(topic, **how)
    assert table["value"].to_pylist() == [flat(event) for _, event in TUTORIAL]
    assert table["value"].type.field("id").type == (pa.int64() if form == "bare" else pa.int32())
    assert table["valueValid"].to_pylist() == [event is not None for _, event in TUTORIAL]
    assert table["value"].combine_chunks().is_valid().to_pylist() == [event is not None for _, event in TUTORIAL]
    # Fields are named as they are after the envelope is taken off.
    found = values(topic, **how, value_columns=["__op", "id"])
    assert found == [None if event is None else {"id": id, "__op": event[0]} for id, event in TUTORIAL]
    assert values(topic, **how, value_columns="__deleted")[4:] == [{"__deleted": False}, {"__deleted": True}, None]
    columns = kolumn.read(topic, **how, value_as="columns", columns=["offset", "value"])
    assert columns.schema.names == ["offset", *SALLY, *OPERATIONS]
    assert columns["first_name"].to_pylist() == ["Sally", "George", "Edward", "Anne", "Anne Marie", "Anne Marie", None]
    assert columns.schema.field("id").nullable


def test_plain_reads_have_the_envelope(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, in_what="avro")
    found = values(topic, value_format="registry")
    assert [None if one is None else list(one) for one in found[-2:]] == [["before", "after", "source", "op", "ts_ms"], None]
    assert found[4]["before"] == ANNE
    # With "connect" types alone change.
    assert values(topic, value_format="registry", value_envelope="connect") == found


def test_keys_beside_schemas(tmp_path: Path) -> None:
    topic = write_topic(tmp_path)
    table = kolumn.read(topic, key_format="json", key_envelope="connect", value_format="json", value_envelope="debezium")
    assert table["key"].to_pylist() == [{"id": id} for id, _ in TUTORIAL]
    assert table["keyValid"].to_pylist() == [True] * len(TUTORIAL)


def test_events_without_a_row_and_topics_of_two_converters(tmp_path: Path) -> None:
    events: list[Event] = [("c", None, SALLY, 1), ("t", None, None, 2), ("m", None, None, 3), ("d", SALLY, None, 4)]
    payloads = [in_json(one) if number % 2 else in_json(one, None) for number, one in enumerate(events)]
    kolumn.write(pa.table({"value": pa.array(payloads, pa.binary())}), tmp_path / "t-0")
    table = kolumn.read(tmp_path, value_format="json", value_envelope="debezium")
    assert (table["value"].to_pylist(), table["valueValid"].to_pylist()) == (list(map(flat, events)), [True] * 4)


def test_json_text_in_rows_that_are_deleted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "tags": [{"k": "x"}, 5], "more": {"v": "y"}}, {"id": 2, "tags": [], "more": {"v": [1]}}]
    events = [*({"op": "c", "before": None, "after": row} for row in rows), *({"op": "d", "before": row, "after": None} for row in rows)]
    kolumn.write(pa.table({"value": [json.dumps(event).encode() for event in events]}), tmp_path / "t-0")
    found = values(tmp_path / "t-0", value_format="json", value_envelope="debezium", value_columns=["id", "tags", "more", "__op"])
    kept = [{"id": 1, "tags": ['{"k": "x"}', "5"], "more": {"v": '"y"'}}, {"id": 2, "tags": [], "more": {"v": "[1]"}}]
    assert found == [row | {"__op": op} for op in ("c", "d") for row in kept]


def test_a_caller_names_the_type_of_the_row(tmp_path: Path) -> None:
    topic = write_topic(tmp_path)
    found = values(topic, value_format="json", value_envelope="debezium", value_schema={"id": "int64", "email": "string"})
    assert found[0] == {"id": 1001, "email": "sally.thomas@acme.com", "__op": "r", "__deleted": False, "__ts_ms": 1490634537160}
    found = values(topic, value_format="json", value_envelope="connect", value_schema={"after": {"id": "int64"}, "op": "string"})
    assert found[4:] == [{"after": {"id": 1004}, "op": "u"}, {"after": None, "op": "d"}, None]


def test_avro_has_the_types_that_connect_names(tmp_path: Path) -> None:
    def kind(type: str, name: str) -> Any:
        return {"type": type, "connect.version": 1, "connect.name": name}

    added = [
        {"name": "born", "type": kind("int", "io.debezium.time.Date")},
        {"name": "seen", "type": ["null", kind("long", "io.debezium.time.MicroTimestamp")], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ]
    schema = avro_schema([*AVRO_FIELDS, *added])
    row = SALLY | {"born": 19_000, "seen": 1_700_000_000_123_456, "price": b"\x01\x00"}
    events: list[Event | None] = [("c", None, row, 1), ("d", row | {"seen": None}, None, 2), None]
    encoded = [in_avro(one, 1, schema) for one in events]
    kolumn.write(pa.table({"value": pa.array(encoded, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": json.dumps(schema)}
    found = kolumn.read(tmp_path, **how, value_envelope="debezium", value_columns=["born", "seen", "price", "__op"])["value"]
    assert found.type == pa.struct([
        ("born", pa.date32()), ("seen", pa.timestamp("us")), ("price", pa.decimal128(6, 2)), ("__op", pa.string()),
    ])  # fmt: skip
    seen = datetime(2023, 11, 14, 22, 13, 20, 123_456)
    assert [None if one is None else (one["born"], one["seen"], str(one["price"])) for one in found.to_pylist()] == [
        (date(2022, 1, 8), seen, "2.56"), (date(2022, 1, 8), None, "2.56"), None,
    ]  # fmt: skip
    unit = kolumn.read(tmp_path, **how, value_envelope="debezium", value_columns="seen", value_time_unit="ms")["value"]
    assert unit.to_pylist()[0] == {"seen": seen.replace(microsecond=123_000)}
    # Plain reads have the numbers.
    assert values(tmp_path / "t-0", **how)[0]["after"]["born"] == 19_000
    assert values(tmp_path / "t-0", **how, value_envelope="connect")[0]["after"]["born"] == date(2022, 1, 8)


def test_change_events_in_protobuf(tmp_path: Path) -> None:
    proto = """
        syntax = "proto3";
        message Row { int32 id = 1; string first_name = 2; }
        message Envelope { optional Row before = 1; optional Row after = 2; string op = 3; optional int64 ts_ms = 4; }
    """
    # after, op, ts_ms; before, op, ts_ms
    events = [b"\x12\x05\x08\x01\x12\x01a\x1a\x01c\x20\x01", b"\x0a\x05\x08\x01\x12\x01b\x1a\x01d\x20\x02"]
    kolumn.write(pa.table({"value": pa.array(events, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "protobuf", "value_schema": proto, "value_message": "Envelope"}
    assert values(tmp_path / "t-0", **how, value_envelope="debezium") == [
        {"id": 1, "first_name": "a", "__op": "c", "__deleted": False, "__ts_ms": 1},
        {"id": 1, "first_name": "b", "__op": "d", "__deleted": True, "__ts_ms": 2},
    ]


def test_what_has_no_envelope(tmp_path: Path) -> None:
    plain = json.dumps({"id": 1}).encode()
    kolumn.write(pa.table({"value": pa.array([plain], pa.binary())}), tmp_path / "t-0")
    assert values(tmp_path / "t-0", value_format="json", value_envelope="auto") == [{"id": 1}]
    how: dict[str, Any] = {"value_format": "json"}
    raises(ArgumentError, "value_envelope='debezium': none of the first 1 objects is a change event", kolumn.read, tmp_path, **how,
           value_envelope="debezium")  # fmt: skip
    raises(ArgumentError, "did you mean 'debezium'", kolumn.read, tmp_path, **how, value_envelope="debezum")
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})
    how = {"value_format": "avro", "value_schema": schema}
    raises(ArgumentError, "expected the fields before, after and op", kolumn.read, tmp_path, **how, value_envelope="debezium")
    raises(ArgumentError, "for value_format='avro' or", kolumn.read, tmp_path, value_format="csv", value_schema={"a": "int8"},
           value_envelope="auto")  # fmt: skip
    topic = write_topic(tmp_path / "debezium", in_what="avro")
    raises(ArgumentError, "emai", kolumn.read, topic, value_format="registry", value_envelope="debezium", value_columns="emai")
    assert values(topic, value_format="registry", value_envelope="auto")[0]["__op"] == "r"


def field(name: str, type: str, logical: str, **parameters: str) -> dict[str, Any]:
    return {"field": name, "type": type, "optional": True, "name": logical, "version": 1, "parameters": parameters}


def with_price(scale: int, price: str, **others: Any) -> bytes | None:
    """A row with a price, beside the schema that names its scale."""
    fields = [field("price", "bytes", "org.apache.kafka.connect.data.Decimal", scale=str(scale), **{"connect.decimal.precision": "9"})]
    fields += [field("at", "int64", "io.debezium.time.MicroTimestamp" if scale == 4 else "io.debezium.time.Timestamp")]
    return in_json(("c", None, {"price": price, **others}, 1), fields)


def test_each_event_is_read_by_its_own_schema(tmp_path: Path) -> None:
    old, new = with_price(2, "MDk=", at=1500), with_price(4, "EtZE", at=1_500_000)
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "debezium", "value_columns": ["price", "at"]}
    for folder, topics in {"one": [[old, new]], "two": [[old], [new]]}.items():
        for number, payloads in enumerate(topics):
            kolumn.write(pa.table({"value": pa.array(payloads, pa.binary())}), tmp_path / folder / f"t{number}-0")
        at = datetime(1970, 1, 1, 0, 0, 1, 500_000)
        # The type is that of all schemas in the sample, which each topic has; what comes later becomes of it.
        for sample, price in ((1, "123.45" if folder == "one" else "123.4500"), (2, "123.4500")):
            found = kolumn.read(tmp_path / folder, **how, value_sample=sample)
            assert [(str(one["price"]), one["at"]) for one in found["value"].to_pylist()] == [(price, at)] * 2
            assert found["valueValid"].to_pylist() == [True, True]
    late = [old, with_price(4, "EtZF", at=1_500_001), with_price(2, "MDk=", at=1501), None]
    kolumn.write(pa.table({"value": pa.array(late, pa.binary())}), tmp_path / "late-0")
    table = kolumn.read(tmp_path / "late-0", **how, value_sample=1)
    assert table["valueProblems"].to_pylist() == [None, ["price", "at"], None, None]
    assert values(tmp_path / "late-0", **how, value_sample=1)[1] == {"price": None, "at": None}
    # Digits of times are cut off where a unit is asked for.
    found = values(tmp_path / "late-0", **how, value_sample=1, value_time_unit="s")
    assert [None if one is None else one["at"] for one in found] == [*[at.replace(microsecond=0)] * 3, None]


@pytest.mark.parametrize("in_what", ["json", "avro"])
@pytest.mark.parametrize("logical", ["io.debezium.time.MicroTimestamp", "org.apache.kafka.connect.data.Timestamp"])
def test_times_out_of_the_range_of_a_unit_are_lost(logical: str, in_what: str, tmp_path: Path) -> None:
    far = 253_402_300_799_000_000 if logical.endswith("MicroTimestamp") else 253_402_300_799_000
    events: list[Event] = [("c", None, SALLY | {"at": number}, 1) for number in (far, -1500)]
    schema = avro_schema([*AVRO_FIELDS, {"name": "at", "type": {"type": "long", "connect.version": 1, "connect.name": logical}}])
    names = [{"type": "string", "field": name} for name in list(SALLY)[1:]]
    payloads = [in_json(one, [*names, field("at", "int64", logical)]) if in_what == "json" else in_avro(one, 1, schema) for one in events]
    kolumn.write(pa.table({"value": pa.array(payloads, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {
        "value_format": in_what,
        "value_envelope": "debezium",
        "value_schema": json.dumps(schema) if in_what == "avro" else None,
    }
    table = kolumn.read(tmp_path, **how, value_time_unit="ns")
    assert table["valueProblems"].to_pylist() == [["at"], None]
    assert [one["first_name"] for one in table["value"].to_pylist()] == ["Sally"] * 2
    assert [None if one["at"] is None else one["at"].year for one in table["value"].to_pylist()] == [None, 1969]
    assert [one["at"].year for one in values(tmp_path, **how)] == [9999, 1969]


def test_text_that_is_no_json_is_lost(tmp_path: Path) -> None:
    fields = [field("j", "string", "io.debezium.data.Json")]
    payloads = [in_json(("u", None, {"j": text}, 1), fields) for text in ('{"a": 1}', "__debezium_unavailable_value", None)]
    kolumn.write(pa.table({"value": pa.array(payloads, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "debezium"}
    table = kolumn.read(tmp_path, **how)
    assert [one["j"] for one in table["value"].to_pylist()] == ['{"a": 1}', None, None]
    assert table["valueProblems"].to_pylist() == [None, ["j"], None]
    shown = invoked(
        "cat", "--json", "--value-format", "json", "--value-envelope", "debezium", "--columns", "value", tmp_path / "t-0"
    ).stdout
    assert [json.loads(line)["value"]["j"] for line in shown.splitlines()] == [{"a": 1}, None, None]


def written(folder: Path, *rows: Any) -> Path:
    kolumn.write(pa.table({"value": pa.array([json.dumps(one).encode() for one in rows], pa.binary())}), folder / "t-0")
    return folder / "t-0"


def test_auto_takes_only_envelopes_for_envelopes(tmp_path: Path) -> None:
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "auto"}
    plain = {
        "payload": {"id": 1, "schema": "public", "payload": {"x": 1}, "total": 5}, "text": {"schema": "public", "payload": 1},
        "patch": {"op": "add", "path": "/a", "after": {"v": 1}}, "more": {"op": "c", "after": {"v": 1}, "n": 1},
    }  # fmt: skip
    for name, row in plain.items():
        assert values(written(tmp_path / name, row), **how) == [row]
    event = {"before": None, "after": {"id": 1}, "op": "c", "source": {}, "ts_ms": 1, "ts_us": 1, "ts_ns": 1, "transaction": None}
    flat_event, truncated = {"id": 1, "__op": "c"}, {"op": "t", "ts_ms": 2, "source": {}}
    beside = {"schema": {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, "payload": {"id": 1}}
    columns = ["id", "__op"]
    # What is of another form than the sample is lost; a bare row that fits is one.
    for name, rows, options, expected in (
        ("events", [event, truncated, beside, {"id": 5}, {"op": "c", "id": 5}, {"op": "add", "path": "/"}], {"value_columns": columns},
         [flat_event, {"id": None, "__op": "t"}, None, None, None, None]),
        ("payloads", [beside, {"id": 5}, {"other": 5}, event], {}, [{"id": 1}, None, None, None]),
        ("both", [beside, {"id": 5}, {"other": 5}, event, {}, {"id": None}], {"value_sample": 2},
         [{"id": 1}, {"id": 5}, None, None, {"id": None}, {"id": None}]),
        ("rows", [{"id": 5, "n": 1}, beside, event, {"n": 2}], {"value_columns": "id"}, [{"id": 5}, None, None, {"id": None}]),
    ):  # fmt: skip
        table = kolumn.read(written(tmp_path / name, *rows), **how, **{"value_sample": 1, **options})
        assert table["value"].to_pylist() == expected, name
        assert table["valueProblems"].to_pylist() == [["$"] if one is None else None for one in expected]


def test_documents_of_a_type_that_a_caller_names(tmp_path: Path) -> None:
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "debezium"}
    topic = written(tmp_path, *({"before": None, "after": text, "op": "c"} for text in ('{"_id": 1}', "?", None)))
    for schema, document in (("json", '{"_id": 1}'), ("map<string, int64>", [("_id", 1)])):
        table = kolumn.read(topic, **how, value_schema=schema, value_columns=["document", "__op"])
        assert table["value"].to_pylist() == [{"document": one, "__op": "c"} for one in (document, None, None)]
        assert table["valueProblems"].to_pylist() == [None, ["document"], None]
    table = kolumn.read(topic, **how, value_schema={"_id": "int64"}, value_columns=["_id"])
    assert [None if one is None else one["_id"] for one in table["value"].to_pylist()] == [1, None, None]
    text = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}
    own = {"type": "struct", "fields": [{**text, "field": "after"}, {"type": "string", "field": "op"}]}
    beside = written(tmp_path / "beside", *({"schema": own, "payload": {"after": one, "op": "c"}} for one in ('{"_id": 1}', "?")))
    table = kolumn.read(beside, **how, value_schema={"_id": "int64"}, value_columns=["_id"])
    assert table["value"].to_pylist() == [{"_id": 1}, None]
    # What is no document does not become a row of a table.
    rows = written(
        tmp_path / "later",
        {"before": None, "after": {"_id": 1}, "op": "c"},
        {"schema": own, "payload": {"after": '{"_id": 1}', "op": "c"}},
    )
    assert values(rows, **how, value_sample=1, value_columns=["_id"]) == [{"_id": 1}, None]
    rows = written(tmp_path / "rows", {"before": None, "after": {"a": 1}, "op": "c"}, {"before": {"a": 2}, "after": None, "op": "d"})
    assert [one["document"] for one in values(rows, **how, value_schema="map<string, int64>")] == [[("a", 1)], [("a", 2)]]
    assert [one["document"] for one in values(rows, **how, value_schema="json")] == ['{"a": 1}', '{"a": 2}']


def test_topics_whose_first_events_have_no_row(tmp_path: Path) -> None:
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "debezium"}
    truncated, said, beat = {"op": "t", "ts_ms": 2}, {"op": "m", "ts_ms": 3, "message": {"prefix": ""}}, {"ts_ms": 4}
    topic = written(tmp_path, truncated, said, beat, {"op": "c", "after": {"id": 1}, "ts_ms": 5})
    raises(ArgumentError, "is a change event", kolumn.read, topic, **how, value_sample=3)
    row = {"id": None, "__deleted": False}
    expected = [row | {"__op": "t", "__ts_ms": 2}, row | {"__op": "m", "__ts_ms": 3}, None, row | {"id": 1, "__op": "c", "__ts_ms": 5}]
    for sample in (1, 3, 4):
        assert values(topic, **how, value_sample=sample, value_schema={"id": "int64"}) == expected
    only = written(tmp_path / "beats", beat)
    assert values(only, **how, value_schema={"id": "int64"}) == [None]
    beside = tmp_path / "beside-0"
    kolumn.write(pa.table({"value": pa.array([in_json(("t", None, None, 1)), in_json(("c", None, SALLY, 2))], pa.binary())}), beside)
    for kind in ("debezium", "auto"):
        assert values(beside, value_format="json", value_envelope=kind, value_sample=1) == [
            flat(("t", None, None, 1)),
            flat(("c", None, SALLY, 2)),
        ]
    raises(ArgumentError, "is a change event", kolumn.read, written(tmp_path / "plain", {"id": 1}), **how, value_schema={"id": "int64"})


@pytest.mark.parametrize("form", FORMS)
def test_latest_rows_are_the_table(form: str, tmp_path: Path) -> None:
    how = FORMS[form] | {"value_envelope": "debezium"}

    def left(name: str, events: list[tuple[int, Event | None]], **options: Any) -> list[Any]:
        topic = write_topic(tmp_path / name, events, form)
        return kolumn.latest(topic, **{**how, "columns": ["value"], **options})["value"].to_pylist()

    def rows(*rows: dict[str, Any]) -> list[Any]:
        return [None if (one := flat(event)) is None else one for event in (("r", None, row, 1490634537160) for row in rows)]

    assert left("tutorial", TUTORIAL) == rows(*LEFT)
    # A deletion counts without the tombstone, which Debezium may be told to leave out, and before it is compacted away.
    assert left("no tombstone", TUTORIAL[:-1]) == rows(*LEFT)
    assert left("before", TUTORIAL[:-2]) == [*rows(*LEFT), flat(("u", ANNE, ANNE_MARIE, 1490635059389))]
    again: Event = ("c", None, ANNE, 1490635099999)
    assert left("again", [*TUTORIAL, (1004, again)]) == [*rows(*LEFT), flat(again)]
    update: Event = ("u", SALLY, SALLY | {"email": "s@x"}, 5)
    assert left("compacted", [*TUTORIAL[1:3], (1001, update), *TUTORIAL[5:6]]) == [*rows(*LEFT[1:]), flat(update)]
    # What is returned need not say what was done.
    assert left("fields", TUTORIAL[:-1], value_columns=["id"]) == [{"id": one["id"]} for one in LEFT]
    topic = tmp_path / "no tombstone" / f"{TOPIC}-0"
    columns = kolumn.latest(topic, **how, value_as="columns", value_columns=["id", "email"], columns=["value", "offset"])
    assert columns.schema.names == ["id", "email", "offset"]
    assert columns["email"].to_pylist() == [one["email"] for one in LEFT]
    assert kolumn.latest(topic, **how, columns=["offset"])["offset"].to_pylist() == [0, 1, 2]
    assert kolumn.latest(topic, **how, columns=["offset"], as_of_offset=4).num_rows == 4
    # Without the option a deletion is a record as any other.
    assert kolumn.latest(topic, **FORMS[form], columns=["offset"])["offset"].to_pylist() == [0, 1, 2, 5]


@pytest.mark.parametrize("form", FORMS)
def test_an_event_that_empties_the_table(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    truncate: Event = ("t", None, None, 3)
    events: list[tuple[int, Event | None]] = [(1001, ("c", None, SALLY, 1)), (1003, ("c", None, ANNE, 2)), (0, truncate),
                                              (1001, ("c", None, SALLY, 4)), (0, ("m", None, None, 5))]  # fmt: skip
    written = kolumn.read(write_topic(tmp_path, events, form))
    keys = pa.array([None if key == key_in_json(0) else key for key in written["key"].to_pylist()], pa.binary())
    for partition in (1, 2):
        kolumn.write(written.select(["value"]).add_column(0, "key", keys).slice(0, 5 if partition == 1 else 2), tmp_path / f"t-{partition}")

    def left(*partitions: int, **options: Any) -> tuple[list[Any], list[Any]]:
        caplog.clear()
        topic = [tmp_path / f"t-{partition}" for partition in partitions]
        how = FORMS[form] | {"value_envelope": "debezium", "value_errors": "keep", "value_schemas": tmp_path if form == "avro" else None}
        if form == "avro":
            how["value_schema"] = f"{TOPIC}-value"
        table = kolumn.latest(topic, **how, **options)
        told = json.loads(table.schema.metadata[LEFT_OUT])
        return table["offset"].to_pylist(), [(row["partition"], row["without_key"], row["truncates"]) for row in told]

    assert left(1) == ([3], [(1, 1, 1)])
    assert "1 records without a key were left out (t-1)" in caplog.text
    assert "1 truncate events emptied the table" in caplog.text
    assert "rows in other partitions were not" in caplog.text
    assert left(1, as_of_offset=1) == ([0, 1], [])
    assert left(1, as_of_offset=2, value_as="columns", value_columns="id") == ([], [(1, 0, 1)])
    assert left(1, 2) == ([3, 0, 1], [(1, 1, 1)])


@pytest.mark.parametrize("errors", ["null-field", "keep"])
def test_deletes_that_do_not_fit_delete(errors: str, tmp_path: Path) -> None:
    created = {"before": None, "after": {"id": 1}, "op": "c"}
    last = {
        "a": {"before": {"id": "?"}, "after": None, "op": "d"}, "b": {"before": "?", "after": None, "op": "d"},
        "c": {"before": None, "after": {"id": "?"}, "op": "u"}, "d": 7,
    }  # fmt: skip
    rows = [(key, one) for key in last for one in (created, last[key])]
    table = pa.table({"key": [key.encode() for key, _ in rows], "value": [json.dumps(one).encode() for _, one in rows]})
    kolumn.write(table, tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "debezium", "value_schema": {"id": "int64"}, "value_errors": errors}
    found = kolumn.latest(tmp_path, **how, value_columns=["id"], columns=["key", "value", "valueValid"])
    partly = {"id": None} if errors == "null-field" else None
    assert found.to_pylist() == [{"key": b"c", "value": partly, "valueValid": False}, {"key": b"d", "value": None, "valueValid": False}]
    assert kolumn.latest(tmp_path, **how, value_as="columns", columns=["value", "key"])["key"].to_pylist() == [b"c", b"d"]


@pytest.mark.parametrize("kind", ["debezium", "connect", "cloudevents", "auto"])
def test_topics_of_tombstones_alone(kind: str, tmp_path: Path) -> None:
    kolumn.write(pa.table({"key": [b"a", b"b"], "value": pa.nulls(2, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "json", "value_envelope": kind}
    assert values(tmp_path, **how) == [None, None]
    assert kolumn.latest(tmp_path, **how).num_rows == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_next_tools_have_the_rows(form: str, tmp_path: Path) -> None:
    topic = write_topic(tmp_path, in_what=form)
    pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
    frame = kolumn.scan_polars(topic, **FORMS[form], value_envelope="debezium", value_as="columns")
    found = frame.filter(pl.col("__op") == "u").select("id", "first_name").collect()
    assert found.rows() == [(1004, "Anne Marie")]
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    query = f'select value.id, value.email from "{TOPIC}" where not value.__deleted order by "offset" limit 2'
    told = invoked("sql", "--json", "--value-format", FORMS[form]["value_format"], "--value-envelope", "debezium", topic, query)
    assert [json.loads(line) for line in told.stdout.splitlines()] == [{"id": one["id"], "email": one["email"]} for one in (SALLY, GEORGE)]


CE = {"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/s", "ce_type": "t", "content-type": "application/json"}


def attributes(**others: Any) -> dict[str, Any]:
    return {"__ce_id": "7", "__ce_source": "/s", "__ce_type": "t", "__ce_time": None, "__ce_subject": None} | others


def test_cloud_events_of_both_modes(tmp_path: Path) -> None:
    cloud = {"specversion": "1.0", "id": "7", "source": "/s", "type": "t", "subject": "ü", "data": {"id": 1, "name": "a"}}
    headers: list[Any] = [
        [("content-type", b"application/cloudevents+json; charset=UTF-8")],
        [(name, value.encode()) for name, value in CE.items()],
        [("ce_id", b"6"), *((name, value.encode()) for name, value in CE.items()), ("ce_time", b"2026-01-01"), ("ce_subject", None)],
        None,
        [("ce_id", b"9")],
    ]  # fmt: skip
    plain = [json.dumps({"id": id, "name": "b"}).encode() for id in (2, 3, 4)]
    table = pa.table({
        "value": pa.array([json.dumps(cloud).encode(), *plain, None], pa.binary()),
        "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
    })  # fmt: skip
    kolumn.write(table, tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "json", "value_envelope": "cloudevents"}
    nothing = dict.fromkeys(attributes())
    assert values(tmp_path / "t-0", **how) == [
        {"id": 1, "name": "a"} | attributes(__ce_subject="ü"), {"id": 2, "name": "b"} | attributes(),
        {"id": 3, "name": "b"} | attributes(__ce_time="2026-01-01"), {"id": 4, "name": "b"} | nothing, None,
    ]  # fmt: skip
    columns = kolumn.read(tmp_path, **how, value_as="columns", value_columns=["__ce_type", "id"], columns=["value", "valueValid"])
    assert columns.to_pylist()[:2] == [{"id": id, "__ce_type": "t", "valueValid": True} for id in (1, 2)]
    # Headers are there too if they are asked for.
    assert "headers" in kolumn.read(tmp_path, **how, include_headers=True).schema.names


def test_cloud_events_with_data_in_avro(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": 5})
    headers = pa.array([[(name, value.encode()) for name, value in CE.items()]], pa.map_(pa.string(), pa.binary()))
    payloads = [struct.pack(">bi", 0, 1) + stream.getvalue()]
    kolumn.write(pa.table({"value": pa.array(payloads, pa.binary()), "headers": headers}), tmp_path / "t-0")
    found = values(tmp_path / "t-0", value_format="avro", value_schema=json.dumps(schema), value_envelope="cloudevents")
    assert found == [{"id": 5} | attributes()]


def test_what_is_lost_of_no_column_costs_nothing(tmp_path: Path) -> None:
    """Debezium adds fields to ``source``: what an older schema lacks of it is not asked for."""
    columns = ["value", "valueValid", "valueProblems"]
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    texts = []
    for source in ("db", "ts_us"):
        made = {
            "type": "record",
            "name": "Source",
            "fields": [{"name": "db", "type": "string"}, {"name": source, "type": "long"}][: len(texts) + 1],
        }
        fields = [
            {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": made}, {"name": "op", "type": "string"},
        ]  # fmt: skip
        texts.append(json.dumps({"type": "record", "name": "Envelope", "fields": fields}))
    given = [b"\0\0\0\0\1\0\2\x0e\2d\2c", b"\0\0\0\0\2\0\2\x10\2d\2\2c", b"\0\0\0\0\2\0\2\x10\2\xff\2\2c"]
    kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), tmp_path / "t-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": texts[1], "value_schemas": dict(enumerate(texts, 1))}
    found = kolumn.read(tmp_path / "t-0", **how, value_envelope="debezium", columns=columns)
    assert [row["value"]["id"] for row in found.to_pylist()] == [7, 8, 8]
    assert [(row["valueValid"], row["valueProblems"]) for row in found.to_pylist()] == [(True, None)] * 3
    assert kolumn.read(tmp_path / "t-0", **how, columns=columns)["valueProblems"].to_pylist() == [["source.ts_us"], None, ["source.db"]]
