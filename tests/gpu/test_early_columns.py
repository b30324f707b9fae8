"""Columns that the first pass over values writes: numbers, and texts that it notes and another kernel copies."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

import kolumn
from kit.avro_values import encoded
from kit.device_columns import as_type, compared, resident
from kit.emulated import Emulated
from kolumn.kernels.values.passes import STAGED
from kolumn.kernels.values.typed import LayoutColumns
from kolumn.values.protobuf_schema import file_of

PTX = pytest.mark.parametrize("emulated", ["ptx"], indirect=True)
TEXTS = [{"name": name, "type": ["null", "string"]} for name in ("a", "b")]
LISTS = [{"name": "l", "type": {"type": "array", "items": "string"}}, {"name": "m", "type": ["null", {"type": "array", "items": "long"}]}]
FIELDS: dict[str, list[Any]] = {
    "flat": [TEXTS[0], {"name": "n", "type": "long"}, TEXTS[1], {"name": "c", "type": "bytes"}, {"name": "i", "type": "int"}],
    "lists": [TEXTS[0], *LISTS, TEXTS[1], {"name": "n", "type": "long"}],
    "a list that may be null": [LISTS[1], TEXTS[0]],
}


def record(fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": fields}


def values(rng: random.Random, fields: list[Any], count: int) -> list[bytes | None]:
    """Some are not valid, after their texts or before."""
    made: list[bytes | None] = []
    some = {
        "a": lambda: rng.choice([None, "", "a", "naïve", "a text of more than a word"]),
        "b": lambda: rng.choice([None, "", f"b{rng.randrange(1 << 30)}", "x" * 70]),
        "c": lambda: rng.randbytes(rng.randrange(20)),
        "n": lambda: rng.getrandbits(50),
        "i": lambda: rng.randrange(99),
        "l": lambda: [rng.choice(["", "s", "an element"]) for _ in range(rng.choice([0, 0, 1, 4]))],
        "m": lambda: rng.choice([None, [], [1, 2, 3]]),
    }
    for row in range(count):
        value = encoded(record(fields), {one["name"]: some[one["name"]]() for one in fields})
        made.append([value, value[:-1], value + b"\0", None, b"\2\4\xff\xff", b""][row % 7 % 6 if rng.random() < 0.4 else 0])
    return made


def written(given: list[bytes | None], path: Path, **how: Any) -> Path:
    kolumn.write(pa.table({"value": pa.array(given, pa.binary())}), path, **how)
    return path


@PTX
@pytest.mark.parametrize("shape", FIELDS)
def test_texts_and_numbers(emulated: Emulated, shape: str, tmp_path: Path) -> None:
    fields = FIELDS[shape]
    how = {"value_format": "avro", "value_schema": record(fields)}
    for number, count in enumerate((300, 33, 1)):
        found = compared(written(values(random.Random(number), fields, count), tmp_path / f"{number}.log"), **how)
        assert count == 1 or {*found["valueValid"].to_pylist()} == {True, False}
    assert (emulated.launched["texts"], emulated.launched.get("write_values", 0)) == (3, (0 if shape == "flat" else 3))


@PTX
def test_rows_without_text(emulated: Emulated, tmp_path: Path) -> None:
    fields = [*TEXTS, {"name": "n", "type": "long"}, {"name": "c", "type": "bytes"}, {"name": "i", "type": "int"}]
    for number, given in enumerate(([None, None], [b"\x05"] * 40, [b"\0\0\0\0\0"] * 40)):
        found = compared(written(given, tmp_path / f"{number}.log"), value_format="avro", value_schema=record(fields))
        assert found["a"].null_count == len(given)


@PTX
def test_several_chunks(emulated: Emulated, tmp_path: Path) -> None:
    """Sums begin anew in each."""
    fields = FIELDS["lists"]
    how: Any = {"value_format": "avro", "value_schema": record(fields)}
    path = written(values(random.Random(5), fields, 400), tmp_path / "a.log", batch_bytes=2000)
    chunks = list(resident(path, "binary", threads=1, chunk_bytes=5000, **how))
    assert len(chunks) > 2
    expected = kolumn.read(path, backend="cpu", value_as="columns", **how)
    for number, field in enumerate(expected.schema):
        rows = [row for one in chunks for row in as_type(one.columns[number], field.type).to_pylist()]
        assert rows == expected[field.name].to_pylist(), field.name


@PTX
@pytest.mark.parametrize("more", [0, 30, STAGED // 64], ids=["staged", "a bit too many tables", "too many tables"])
def test_defaults_of_the_reader(emulated: Emulated, more: int, tmp_path: Path) -> None:
    """They are texts of the program: of the one that stays, not of a copy that a block has."""
    own = [TEXTS[0], *({"name": f"n{k}", "type": "int"} for k in range(more))]
    defaults = [
        {"name": "d", "type": "string", "default": "a default"},
        {"name": "e", "type": {"type": "array", "items": "string"}, "default": ["one", "", "three"]},
        {"name": "f", "type": "bytes", "default": "\0\u00ff"},
    ]
    writer, reader = record(own), record([*defaults, *own])
    body = [encoded(writer, {"a": one, **{f"n{k}": k for k in range(more)}}) for one in (None, "", "text") * 20]
    given = [b"\0\0\0\0\7" + one for one in body] + [b"\0\0\0\0\7"]
    how = {"value_format": "avro", "value_schema": reader, "value_schemas": {7: writer}, "value_framing": "confluent"}
    found = compared(written(given, tmp_path / "a.log"), **how)
    assert found["d"].to_pylist() == ["a default"] * 60 + [None]


@PTX
def test_messages_with_and_without_lists(emulated: Emulated, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message I { string s = 1; repeated int32 k = 2; } '
    text += "message M { string a = 1; %s bytes z = 9; optional int64 n = 7; }"
    rng = random.Random(2)
    for number, inner in enumerate(("", "I i = 3;", "repeated I i = 3;", "repeated string i = 3;")):
        schema, given = text % inner, []
        made = message_factory.GetMessageClass(file_of(schema, None).message("M"))
        for _ in range(120):
            one = made(a=rng.choice(["", "a", "longer than a word"]), z=rng.randbytes(rng.randrange(9)))
            if inner and rng.random() < 0.7:
                items = [one.i] if inner == "I i = 3;" else [one.i.add() for _ in range(rng.randrange(3))] if "I" in inner else []
                for item in items:
                    item.s, item.k[:] = rng.choice(["", "in a list"]), range(rng.randrange(3))
                if "string" in inner:
                    one.i.extend(rng.choices(["", "s", "more"], k=rng.randrange(4)))
            if rng.random() < 0.5:
                one.n = rng.getrandbits(40)
            # Unknown fields may stand before the first list.
            value = rng.choice([b"", b"\x28\1"]) + one.SerializeToString()
            given.append(rng.choice([value] * 5 + [value[:-1], b"\x0a\1\xff", None]))
        how = {"value_format": "protobuf", "value_schema": schema, "value_message": "M"}
        assert {*compared(written(given, tmp_path / f"{number}.log"), **how)["valueValid"].to_pylist()} == {True, False}


@PTX
@pytest.mark.parametrize(
    "fault",
    [(3, "another column"), (4, "another column"), (0, 8), (3, 8), (2, 4), (4, 1), (1, 1)],
    ids=["other sources", "other targets", "sums of the next row", "sources of the next row", "ends of the next row", "a byte on", "base"],
)
def test_faults_are_noticed(emulated: Emulated, fault: tuple[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `texts` is told is changed: no test above would pass."""
    real, (word, what), planted = LayoutColumns._upload, fault, []

    def upload(self: Any, columns: Any, others: Any) -> Any:
        if len(others) > 1:
            table = others[1].copy()
            if what == "another column":
                table[:2, word] = table[1::-1, word]
            else:
                table[0, word] += what
            planted.append(len(table))
            others = [others[0], table, *others[2:]]
        return real(self, columns, others)

    monkeypatch.setattr(LayoutColumns, "_upload", upload)
    given = [encoded(record(TEXTS), {"a": f"a{k}", "b": f"text {k}"}) for k in range(9)]
    with pytest.raises((AssertionError, pa.ArrowInvalid)):
        compared(written(given, tmp_path / "a.log"), value_format="avro", value_schema=record(TEXTS))
    assert planted == [len(TEXTS)]
