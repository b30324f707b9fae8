"""Commands: what they left out, in agreement with `verify`; typed values; `kolumn schemas`; a segment on standard input."""

import io
import json
import shutil
import sys
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kolumn.cli import main
from kolumn.cli.lines import data_of, json_lines, text_lines
from kolumn.values.extensions import JSON_TEXT

TIME = 1_760_000_000_000


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Six batches of three records: the second has a wrong checksum, and the length of the fourth leads to no entry."""
    batches = [bytearray(batch([Record(3 * i + k, b"key", b"value %d" % k, TIME + i) for k in range(3)])) for i in range(6)]
    batches[1][-5] ^= 1
    batches[3][8:12] = (1 << 28).to_bytes(4, "big")
    path = tmp_path / "orders-3" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batches))
    return path


@pytest.fixture
def line(damaged: Path) -> str:
    """The expected report, computed from that of `verify`."""
    rows = kolumn.verify(damaged).damage.to_pylist()
    assert len(rows) == 2
    positions = ", ".join(str(row["position"]) for row in rows)
    skipped = kolumn.Skipped()
    kolumn.read(damaged, errors="skip", on_damage=skipped)
    assert (skipped.stretches, skipped.bytes) == (2, sum(row["size"] for row in rows))
    return f"{skipped} (orders-3/{damaged.name} at {positions}); `kolumn verify` lists them\n"


@pytest.mark.parametrize("command", ["cat", "stats", "inspect", "space"])
def test_reading_says_what_it_left_out(damaged: Path, line: str, command: str) -> None:
    for options in ([], ["--json"]):
        out = run(command, "--errors", "skip", *options, damaged.parent)
        assert (out.returncode, out.stderr, out.stdout != "") == (1, line, True)
    damaged.write_bytes(batch([Record(0, b"key", b"value", TIME)]))
    out = run(command, "--errors", "skip", damaged.parent)
    assert (out.returncode, out.stderr) == (0, "")


@pytest.mark.parametrize(("command", "options"), [("to-parquet", []), ("convert", []), ("compact", ["--include-active"])])
def test_writing_ends_with_one(damaged: Path, line: str, tmp_path: Path, command: str, options: list[str]) -> None:
    out = run(command, "--errors", "skip", *options, damaged.parent, tmp_path / "out")
    lost = kolumn.verify(damaged).damage.to_pylist()
    told = [] if command == "to-parquet" else [f"left out: {damaged}: position {row['position']}: {row['reason']}" for row in lost]
    assert (out.returncode, out.stderr.splitlines()[1:]) == (1, [*told, line.strip()])
    assert command != "to-parquet" or out.stderr.startswith(f"12 records in 1 file below {tmp_path / 'out'}\n")


def test_summaries_have_the_numbers(damaged: Path, tmp_path: Path) -> None:
    lost = kolumn.verify(damaged).damage.to_pylist()
    expected = [2, sum(row["size"] for row in lost), sum(row["recordsLost"] or 0 for row in lost)]
    writing = ("--errors", "skip", "-o", tmp_path / "out")
    for command, *options in (("stats",), ("space",), ("convert", *writing), ("compact", "--include-active", *writing)):
        found = json.loads(run(command, "--json", damaged.parent, *options).stdout.splitlines()[0])
        assert [found[name] for name in ("damagedStretches", "damagedBytes", "recordsLost")] == expected, command
        assert not options or (found["damaged"], found["batchesOverLimit"]) == (2, 0), command
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    for function in (kolumn.batches, kolumn.space):
        skipped = kolumn.Skipped()
        function(damaged, errors="skip", on_damage=skipped)
        told = [(piece.position, piece.size, piece.reason) for piece in skipped.damage]
        assert told == [(row["position"], row["size"], row["reason"]) for row in lost]


def test_inspect_has_a_row_for_each_stretch(damaged: Path) -> None:
    wrong, lost = kolumn.verify(damaged).damage.to_pylist()
    lines = [row.split() for row in run("inspect", damaged).stdout.splitlines()[1:]]
    assert [row[1] for row in lines] == sorted((row[1] for row in lines), key=int)
    by_position = {int(row[1]): row for row in lines}
    assert "WRONG" in by_position[wrong["position"]]
    assert (by_position[lost["position"]][2], "skipped" in by_position[lost["position"]]) == (str(lost["size"]), True)
    rows = [json.loads(row) for row in run("inspect", "--json", damaged).stdout.splitlines()]
    assert [row for row in rows if "damage" not in row] == kolumn.batches(damaged, errors="skip").to_pylist()
    (stretch,) = [row for row in rows if "damage" in row]
    assert (stretch["position"], stretch["size"], stretch["damage"]) == (lost["position"], lost["size"], lost["reason"])
    damaged.write_bytes(damaged.read_bytes()[:300])
    out = run("inspect", "--errors", "raise", damaged)
    assert (out.returncode, "WRONG" in out.stdout) == (1, True)


def test_only_the_first_places_are_named(damaged: Path) -> None:
    batches = [bytearray(batch([Record(i, b"key", b"value", TIME)])) for i in range(20)]
    for one in batches[::2]:
        one[-3] ^= 1
    damaged.write_bytes(b"".join(batches))
    said = run("cat", "--errors", "skip", damaged).stderr
    assert said.startswith("10 damaged stretches left out: ")
    assert "; and 4 more); `kolumn verify` lists them" in said
    damaged.write_bytes(b"".join(batches[:2]))
    assert run("cat", "--errors", "skip", damaged).stderr.endswith(f"(orders-3/{damaged.name} at 0); `kolumn verify` lists it\n")


def test_messages_name_options_as_they_are_typed(damaged: Path, tmp_path: Path) -> None:
    assert "Read with --errors skip to go on" in run("cat", damaged).stderr
    assert run("cat", "--errors", "leave", damaged).stderr == "kolumn: --errors leave: expected one of raise, skip\n"
    for words in (["--start-timestamp", "one day"], ["--since", "one day"], ["--since=one day"], ["--until", "one day"]):
        said = run("cat", *words, damaged).stderr
        assert said.startswith(f"kolumn: {words[0].partition('=')[0]} 'one day': expected a time such as ")
    for command, option in {"apply-retention": "--retention-ms", "compact": "--delete-retention-ms"}.items():
        said = run(command, option, "one day", damaged, tmp_path / "out").stderr
        assert said == f"kolumn: {option} 'one day': expected 0 or more ms, or a duration such as 90s, 30m, 12h, 7d or 2w\n"
    (tmp_path / "big-0").mkdir()
    (tmp_path / "big-0" / f"{0:020}.log").write_bytes(batch([Record(0, b"key", b"value" * 1000, TIME)], codec=1))
    said = run("cat", "--max-batch-bytes", "100", tmp_path / "big-0").stderr
    assert "Read with --errors skip, or raise --max-batch-bytes or --max-ratio if the data are trusted and memory is there." in said


SCHEMA = '{"id": "int64", "name": "string", "items": [{"price": "float64"}]}'
JSON = ["--value-format", "json", "--value-schema", SCHEMA]
VALUES = [b'{"id": 1, "name": "a\\"\xc3\xa9", "items": [{"price": 0.5}, null]}', None, b"{", b'{"items": []}']


@pytest.fixture
def log(tmp_path: Path) -> Path:
    kolumn.write(pa.table({"key": pa.array([b"k"] * 4), "value": pa.array(VALUES, pa.binary())}), tmp_path / "orders-0")
    return tmp_path / "orders-0"


def test_cat_prints_structs_as_json(log: Path) -> None:
    out = run("cat", "--json", log, *JSON, "--columns", "offset,value,valueValid")
    assert [json.loads(line) for line in out.stdout.splitlines()] == [
        {"offset": 0, "value": {"id": 1, "name": 'a"é', "items": [{"price": 0.5}, None]}, "valueValid": True},
        {"offset": 1, "value": None, "valueValid": False},
        {"offset": 2, "value": None, "valueValid": False},
        {"offset": 3, "value": {"id": None, "name": None, "items": []}, "valueValid": True},
    ]
    out = run("cat", log, *JSON, "--value-columns", "id", "--columns", "offset,value")
    assert out.stdout == 'offset=0  value={"id": 1}\noffset=1  value=null\noffset=2  value=null\noffset=3  value={"id": null}\n'


def test_a_schema_in_a_file(log: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    how = ["--value-format", "json", "--value-as", "columns", "--columns", "value"]
    out = run("cat", "--json", log, *how, "--value-schema", tmp_path / "schema.json", "--limit", 1)
    assert (out.returncode, json.loads(out.stdout)) == (0, {"id": 1, "name": 'a"é', "items": [{"price": 0.5}, None]})
    out = run("cat", log, *how, "--value-schema", "missing.json")
    assert out.returncode == 2
    assert "--value-schema missing.json: neither a schema nor a file that can be read" in out.stderr


def test_errors_have_the_words_of_the_shell(log: Path) -> None:
    out = run("cat", log, *JSON, "--value-errors", "raise", "--columns", "offset,value")
    assert (out.returncode, out.stdout.count("\n")) == (3, 2)
    assert all(words in out.stderr for words in ("offset 2: value: 1 bytes", "--value-errors null-field"))
    out = run("cat", log, "--key-format", "jsom")
    assert out.returncode == 2
    assert all(words in out.stderr for words in ("--key-format jsom", "did you mean 'json'"))


def test_to_parquet(log: Path, tmp_path: Path) -> None:
    columns = ["offset", "value", "valueValid", "valueRaw"]
    out = run("to-parquet", log, tmp_path / "out", *JSON, "--columns", ",".join(columns))
    assert out.returncode == 0, out.stderr
    found = pq.ParquetFile(next((tmp_path / "out").rglob("*.parquet"))).read()
    assert found.to_pylist() == kolumn.read(log, columns=columns, value_format="json", value_schema=SCHEMA).to_pylist()


UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def test_every_type_has_a_json_text() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 1)
    columns: dict[str, tuple[pa.Array, list[Any]]] = {
        "label": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        "float": (pa.array([float("nan"), float("-inf")], pa.float32()), ["nan", "-inf"]),
        "date": (pa.array([date(2026, 1, 31), None]), ["2026-01-31", None]),
        "time": (pa.array([time(12, 0, 1), None]), ["12:00:01.000000", None]),
        "moment": (pa.array([moment, None], pa.timestamp("us")), ["2026-01-31T12:00:00.000001", None]),
        "zoned": (pa.array([moment, None], pa.timestamp("ns", "UTC")), ["2026-01-31T12:00:00.000001000Z", None]),
        "decimal": (pa.array([Decimal("1.50"), None]), [1.5, None]),
        "fixed": (pa.array([b"ab", None], pa.binary(2)), ["YWI=", None]),
        "far": (pa.array([2**63 - 1, -(2**63)], pa.timestamp("ms")), ["+292278994-08-17T07:12:55.807", "-292275055-05-16T16:47:04.192"]),
        "day": (pa.array([2_932_897, -719_163], pa.date32()), ["+10000-01-01", "0000-12-31"]),
        "json": (pa.ExtensionArray.from_storage(JSON_TEXT, pa.array([' {"a":\n[1, "\u202e\\n"]}', None])), [{"a": [1, "\u202e\n"]}, None]),
        "uuid": (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID.bytes, None], pa.binary(16))), [str(UUID), None]),
        "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())), [{"k": 1}, None]),
        "nothing": (pa.nulls(2), [None, None]),
        "bytes": (pa.array([[b"\xff"], None], pa.list_(pa.binary())), [["/w=="], None]),
        "struct": (pa.array([{"": {"a": True}}, {"": None}]), [{"": {"a": True}}, {"": None}]),
        "interval": (pa.array([pa.MonthDayNano([1, 2, 3]), None]), [{"months": 1, "days": 2, "nanoseconds": 3}, None]),
    }
    batch = pa.RecordBatch.from_arrays([array for array, _ in columns.values()], list(columns))
    lines = bytes(data_of(json_lines(batch), 2)).decode().splitlines()
    found = [json.loads(line, parse_constant=lambda text: {"NaN": "nan", "-Infinity": "-inf"}[text]) for line in lines]
    assert found == [{name: wanted[i] for name, (_, wanted) in columns.items()} for i in range(2)]
    last = pa.RecordBatch.from_arrays([batch.drop_columns(["float"]).to_struct_array()], ["value"]).slice(1)
    assert json.loads(bytes(data_of(json_lines(last), 1)))["value"] == {name: one for name, one in found[1].items() if name != "float"}
    assert bytes(data_of(text_lines(batch.select(["label", "map"])), 2)) == b'label="a"  map={"k": 1}\nlabel=null  map=null\n'


RECORD = '{"type":"record","name":"O","fields":[]}'


def write(folder: Path, *values: dict[str, object]) -> Path:
    keys = [{"keytype": "SCHEMA", "subject": one["subject"], "version": one["version"], "magic": 1} for one in values]
    table = {"key": [json.dumps(key).encode() for key in keys], "value": [json.dumps(value).encode() for value in values]}
    kolumn.write(pa.table(table), folder / "_schemas-0", batch_records=1)
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    reference = {"name": "in.proto", "subject": "inner", "version": 2}
    more = {"schemaType": "PROTOBUF", "schema": "message M {}", "references": [reference], "deleted": True}
    orders = {"subject": "orders-value", "version": 1, "id": 7, "schema": RECORD}
    return write(tmp_path / "logs", orders, {"subject": "m", "version": 3, "id": 8, **more})


def test_schemas_as_a_table_as_json_and_as_text(logs: Path) -> None:
    out = run("schemas", logs)
    assert (out.returncode, out.stderr) == (0, "")
    lines = [line.split() for line in out.stdout.splitlines()]
    assert lines[0] == ["subject", "version", "id", "type", "references", "deleted"]
    assert (lines[1], lines[2]) == (["m", "3", "8", "PROTOBUF", "in.proto", "(inner", "2)", "yes"], ["orders-value", "1", "7", "AVRO"])
    m, orders = (json.loads(line) for line in run("schemas", "--json", logs / "_schemas-0").stdout.splitlines())
    assert m["references"] == [{"name": "in.proto", "subject": "inner", "version": 2}]
    assert (m["deleted"], m["schemaType"], m["guid"] is None, orders["schema"]) == (True, "PROTOBUF", False, RECORD)
    assert list(orders) == ["subject", "version", "id", "guid", "schemaType", "references", "schema", "deleted"]
    out = run("schemas", logs, "--id", 7)
    assert (out.returncode, out.stdout, out.stderr) == (0, f"{RECORD}\n", "")
    assert json.loads(run("schemas", logs, "--id", 7, "--json").stdout)["schema"] == RECORD
    missing = run("schemas", logs, "--id", 9)
    assert (missing.returncode, missing.stdout, "no schema has the id 9" in missing.stderr) == (2, "", True)


def test_deleted_schemas_contexts_and_moments(tmp_path: Path) -> None:
    def version(subject: str, id: int, text: str, **more: object) -> tuple[bytes, bytes]:
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        return json.dumps(key).encode(), json.dumps({"subject": subject, "version": 1, "id": id, "schema": text, **more}).encode()

    soft, lost, here = version("soft", 1, '"int"', deleted=True), version("lost", 2, '"long"'), version("here", 3, RECORD)
    others = version(":.c:x", 3, '"int"'), version(":.d:x", 3, '"float"'), version(":.c:y", 4, '"int"'), version(":.d:y", 4, '"long"')
    alias = b'{"keytype":"CONFIG","subject":"old"}', b'{"alias":"here"}'
    keys, values = zip(soft, lost, here, (lost[0], None), *others, alias, (b'{"keytype":"NEW"}', None), strict=True)
    times = pa.array([1000 * number for number in range(len(keys))], pa.timestamp("ms", "UTC"))
    kolumn.write(pa.table({"key": keys, "value": values, "timestamp": times}), tmp_path / "_schemas-0")
    out = run("schemas", tmp_path)
    rows = [line.split(maxsplit=4)[:1] + line.split()[4:] for line in out.stdout.splitlines()[1:]]
    assert rows == [[":.c:x"], [":.c:y"], [":.d:x"], [":.d:y"], ["here"], ["lost", "for", "good"], ["soft", "yes"]]
    assert (out.returncode, out.stderr) == (0, "aliases: old → here\nleft out: 1 record with a key of an unknown type\n")
    marks = [
        (row["subject"], row["deleted"], row.get("deletedForGood"))
        for row in map(json.loads, run("schemas", tmp_path, "--json").stdout.splitlines())
    ]
    assert marks[-3:] == [("here", False, None), ("lost", True, True), ("soft", True, None)]
    out = run("schemas", tmp_path, "--id", 3)
    assert (out.stdout, out.stderr.splitlines()[0]) == (
        f"{RECORD}\n",
        f"the contexts ., .c, .d have the id 3: {tmp_path}/contexts/.d is one of them",
    )
    out = run("schemas", tmp_path, "--id", 4)
    assert (
        out.returncode,
        f"the contexts .c, .d have other schemas with the id 4: name one, as in {tmp_path}/contexts/.c" in out.stderr,
    ) == (2, True)
    assert run("schemas", f"{tmp_path}/contexts/.d", "--id", 4).stdout == '"long"\n'
    out = run("schemas", tmp_path, "--as-of", "1970-01-01T00:00:02")
    assert [line.split()[0] for line in out.stdout.splitlines()[1:]] == ["here", "lost", "soft"]


def test_files_and_nothing(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "no"):
        out = run("schemas", source)
        assert (out.returncode, out.stdout, str(tmp_path) in out.stderr) == (2, "", True)
    (tmp_path / "4.avsc").write_text(RECORD)
    out = run("schemas", tmp_path)
    assert (out.returncode, out.stdout.splitlines()[1].split()) == (0, ["4", "AVRO"])


def test_what_is_left_out_is_said(logs: Path) -> None:
    write(logs.parent / "wrong", {"subject": "a", "version": 1, "id": 1, "schema": RECORD}, {"subject": "b", "version": 1, "id": "2"})
    out = run("schemas", logs.parent / "wrong")
    assert (out.returncode, len(out.stdout.splitlines())) == (1, 2)
    assert out.stderr.startswith("left out: 1 record with")
    (log,) = (logs / "_schemas-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    out = run("schemas", logs)
    assert (out.returncode, len(out.stdout.splitlines())) == (1, 2)
    assert all(words in out.stderr for words in ("1 record", "kolumn verify"))


# ``-``: a segment on standard input.
SEGMENT = CORPUS / "upgraded" / "upgraded-gzip-0" / f"{0:020}.log"
OF_NAMES = ("segment", "topic", "partition", "state")  # what follows from the name of a file


class Input(io.TextIOWrapper):
    """Standard input with some bytes; or a terminal."""

    def __init__(self, data: bytes, *, terminal: bool) -> None:
        raw = io.BytesIO(data)
        raw.name = "<stdin>"
        super().__init__(raw)
        self.isatty = lambda: terminal


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Exit code, standard output and standard error of a command."""

    def ran(data: bytes, *args: object, terminal: bool = False) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "stdin", Input(data, terminal=terminal))
        monkeypatch.setattr(sys, "argv", ["kolumn", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return ran


@pytest.mark.parametrize(("command", "lines"), [("cat", 1000), ("verify", 1), ("inspect", 40), ("stats", 1)])
def test_the_same_as_of_a_file(piped: Any, command: str, lines: int) -> None:
    def unnamed(text: str) -> list[Any]:
        found = [json.loads(line) for line in text.splitlines()]
        for one in [one for row in found for one in (row, *(row["segments"] if "ok" in row else ()))]:
            for name in OF_NAMES:
                one.pop(name, None)
        return found

    code, out, err = piped(SEGMENT.read_bytes(), command, "--json", "-")
    assert (code, err, out.count("\n"), unnamed(out)) == (0, "", lines, unnamed(piped(b"", command, "--json", SEGMENT)[1]))


def test_damage_is_told_by_position(piped: Any) -> None:
    data = bytearray(SEGMENT.read_bytes())
    data[len(data) // 2] ^= 1
    code, out, _ = piped(bytes(data), "verify", "-")
    assert (code, "<stdin>" in out, "1 damaged stretch" in out) == (1, True, True)


def test_it_is_the_only_source_and_no_terminal(piped: Any) -> None:
    for args, terminal, said in ((("verify", "-", SEGMENT), False, "which is the only source"), (("cat", "-"), True, "that is a terminal")):
        code, _, err = piped(b"", *args, terminal=terminal)
        assert (code, said in " ".join(err.replace("│", "").split())) == (2, True)
