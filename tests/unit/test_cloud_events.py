"""Are CloudEvents of both modes read, whatever their data are, and do attributes stay when data are lost?"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit import enveloped
from kit.outcome import raises
from kolumn.core.errors import ArgumentError

salvaged = partial(enveloped.salvaged, "cloudevents")
BINARY = [("ce_specversion", b"1.0"), ("ce_id", b"9")]


def cloud(id: Any = "1", **others: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "/s", "type": "t", **others}


def read(folder: Path, values: list[Any], headers: list[Any], **how: Any) -> list[tuple[Any, bool, Any]]:
    """The value of each record, whether it is valid, and its problems; attributes are the id alone."""
    payloads = [None if one is None else one.encode() if isinstance(one, str) else json.dumps(one).encode() for one in values]
    table = {"value": pa.array(payloads, pa.binary()), "headers": pa.array(headers, pa.map_(pa.string(), pa.binary()))}
    kolumn.write(pa.table(table), folder / "t-0")
    columns = ["value", "valueValid", "valueProblems"]
    rows = kolumn.read(folder / "t-0", value_format="json", value_envelope="cloudevents", columns=columns, **how).to_pylist()
    others = ("__ce_source", "__ce_type", "__ce_time", "__ce_subject")
    found = []
    for row in rows:
        one = row["value"] and {name: part for name, part in row["value"].items() if name not in others}
        found.append((one, row["valueValid"], row["valueProblems"]))
    return found


def test_data_and_attributes_of_cloud_events() -> None:
    def made(a: Any, b: Any = None, id: Any = None, **others: Any) -> dict[str, Any]:
        return {"id": a, "b": b, "__ce_id": id, "__ce_source": None, "__ce_type": None, "__ce_time": None, "__ce_subject": None} | others

    told = {"__ce_source": "/s", "__ce_type": "t"}
    values = [
        cloud(data={"id": 1, "b": "x"}), {"id": 2, "b": "y"}, cloud(data={"id": "?", "b": "z"}, subject="u"),
        cloud(5, data={"id": 3}), cloud(data="x"), {"id": "?", "b": "y"}, b"{", cloud(data={"id": 4}, time="2026-01-01T00:00:00Z"),
    ]  # fmt: skip
    assert salvaged(values, sample=values[:2]) == [
        (made(1, "x", "1", **told), ()), (made(2, "y"), ()), (made(None, "z", "1", **told, __ce_subject="u"), ("id",)),
        (made(3, None, "5", **told), ()), (made(None, None, "1", **told), ("id", "b")), (made(None, "y"), ("id",)),
        (None, ("$",)), (made(4, None, "1", **told, __ce_time="2026-01-01T00:00:00Z"), ()),
    ]  # fmt: skip
    assert salvaged(values[:2], ["b", "__ce_type"]) == [
        ({"b": "x", "__ce_type": "t"}, ()),
        ({"b": "y", "__ce_type": None}, ()),
    ]
    assert salvaged(values[:1], ["__ce_id"]) == [({"__ce_id": "1"}, ())]
    text = salvaged([cloud(data="text"), {"a": 1}], ["data", "__ce_id"], [cloud(data="text")])
    assert text == [({"data": "text", "__ce_id": "1"}, ()), ({"data": '{"a": 1}', "__ce_id": None}, ())]
    # Of binary data there is no member ``data``.
    coded = [cloud("2", data_base64=data) for data in ("AP8=", "?", None)]
    found = salvaged(coded, ["data", "__ce_id"], coded)
    assert found == [({"data": data, "__ce_id": "2"}, lost) for data, lost in ((b"\0\xff", ()), (None, ("data",)), (None, ()))]
    assert salvaged(coded, None, values[:1]) == [(made(None, id="2", **told), lost) for lost in (("id", "b"), ("id", "b"), ())]
    assert salvaged(coded[:1], ["__ce_id"], values[:1]) == [({"__ce_id": "2"}, ())]


def test_members_of_the_data_that_are_called_like_attributes() -> None:
    data = {"specversion": "x", "id": "mine"}
    nothing = {f"__ce_{name}": None for name in ("id", "source", "type", "time", "subject")}
    assert salvaged([data]) == [(data | nothing, ())]
    raises(ArgumentError, "the data of the CloudEvents have __ce_id themselves", salvaged, [cloud(data={"__ce_id": "x"})])
    assert salvaged([cloud(data={"__ce_id": "x", "a": 1})], ["a", "__ce_id"]) == [({"a": 1, "__ce_id": "1"}, ())]
    # Of an event that has an attribute twice, that one is lost.
    twice = b'{"specversion": "1.0", "id": "1", "id": "2", "source": "/s", "type": "t", "data": {"a": 1}}'
    assert salvaged([twice, b"", b"5"], ["a", "__ce_id"], [cloud(data={"a": 1})]) == [
        ({"a": 1, "__ce_id": None}, ("__ce_id",)), (None, ("$",)), (None, ("$",)),
    ]  # fmt: skip


def test_events_without_data() -> None:
    assert salvaged([cloud(), cloud(data=None)], ["__ce_id"]) == [({"__ce_id": "1"}, ())] * 2
    attributes = {f"__ce_{name}" for name in ("id", "source", "type", "time", "subject")}
    assert salvaged([cloud(), cloud(data={"a": 5})], None, [cloud()])[1][0].keys() == attributes
    # Nobody asked for what is lost here.
    assert salvaged([cloud(data={"a": "x"})], ["__ce_id"], [cloud(data={"a": 1})]) == [({"__ce_id": "1"}, ())]
    assert salvaged([], ["__ce_id"]) == []
    raises(ArgumentError, "no value says it: name it in value_schema, or attributes alone in value_columns", salvaged, [])


@pytest.mark.parametrize(("how", "values", "expected"), [
    ({"value_schema": "json"}, ["[1,2]", '"x"', '{"a":1}'], ["[1,2]", '"x"', '{"a":1}']),
    ({"value_schema": "list<int64>"}, ["[1]", "[]"], [[1], []]),
    ({}, ["[1,2]", "[3]"], [[1, 2], [3]]),
    ({}, ["1", "2"], [1, 2]),
    ({}, ["1.5", "2"], [1.5, 2.0]),
    ({}, ['"x"', '"\\u00fc"'], ["x", "ü"]),
    ({}, ["true", "null"], [True, None]),
    ({}, ['{"a":1}', "[1]", "2"], ['{"a":1}', "[1]", "2"]),
])  # fmt: skip
def test_any_data_in_binary_mode(tmp_path: Path, how: dict[str, Any], values: list[str], expected: list[Any]) -> None:
    found = read(tmp_path, [*values, None], [BINARY] * (len(values) + 1), **how)
    assert found == [({"data": data, "__ce_id": "9"}, True, None) for data in [*expected, None]]


def test_a_text_among_the_data_of_both_modes(tmp_path: Path) -> None:
    assert read(tmp_path, [cloud(data="text"), '{"a":1}', cloud(data=[1])], [[], BINARY, []]) == [
        ({"data": data, "__ce_id": id}, True, None) for data, id in (('"text"', "1"), ('{"a":1}', "9"), ("[1]", "1"))
    ]  # fmt: skip


def test_a_few_values_that_are_no_objects_do_not_change_the_type() -> None:
    found = salvaged([cloud(data={"a": 1}), {"a": 2}, "ping", [1]], ["a"])
    assert found == [({"a": 1}, ()), ({"a": 2}, ()), (None, ("$",)), (None, ("$",))]


def test_attributes_stay_where_data_are_lost(tmp_path: Path) -> None:
    values, headers = ['{"a":"x","b":1}', "[1]", "{", None, "{", None], [BINARY] * 4 + [[], [("ce_id", b"9")]]
    schema = {"a": "int64", "b": "int64"}
    nothing = {"a": None, "b": None, "__ce_id": "9"}
    assert read(tmp_path / "1", values, headers, value_schema=schema) == [
        (nothing | {"b": 1}, False, ["a"]), (nothing, False, ["a", "b"]), (nothing, False, ["a", "b"]), (nothing, True, None),
        (None, False, ["$"]), (None, False, None),
    ]  # fmt: skip
    kept = read(tmp_path / "2", values, headers, value_schema=schema, value_errors="keep")
    assert kept[1:4] == [(None, False, ["$"]), (None, False, ["$"]), (nothing, True, None)]
    # What data are is not asked for.
    alone = read(tmp_path / "3", values, headers, value_columns=["__ce_id"], value_errors="keep")
    assert alone == [({"__ce_id": "9"}, True, None)] * 4 + [(None, False, ["$"]), (None, False, None)]
    assert read(tmp_path / "4", [None] * 2, [BINARY] * 2, value_columns=["__ce_id"]) == [({"__ce_id": "9"}, True, None)] * 2


def test_headers_say_which_mode_it_is(tmp_path: Path) -> None:
    event = cloud("mine", data={"a": 1})
    structured = ("content-type", b"application/CloudEvents+json; charset=utf-8")
    headers = [BINARY, [*BINARY, ("content-type", b"application/json")], [*BINARY, structured], []]
    found = read(tmp_path, [event] * 4, headers, value_schema={"a": "int64", "id": "string"})
    assert (
        found == [({"a": None, "id": "mine", "__ce_id": "9"}, True, None)] * 2 + [({"a": 1, "id": None, "__ce_id": "mine"}, True, None)] * 2
    )
