"""What could not be decoded of values is told once by every tool; times of any year are printed, and end no command."""

import json
import logging
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import kolumn
from kit.asked import put
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kolumn.cli import app
from kolumn.core.keywords import Binary, Payload
from kolumn.core.schema import LOST_VALUES_SCHEMA
from kolumn.options import Options
from kolumn.readers.lost_values import ValueLosses

SCHEMA = {"id": "int64", "name": "string"}
TYPED = ("--value-format", "json", "--value-schema", json.dumps(SCHEMA))
SAID = "2 values could not be decoded: see the column valueProblems"


def run(*args: object) -> Any:
    out = CliRunner().invoke(app, list(map(str, args)))
    assert out.exception is None or isinstance(out.exception, SystemExit), out.exception
    return out


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments with a value each that is no JSON of the type, and a tombstone."""
    folder = tmp_path_factory.mktemp("log") / "t-0"
    for base in (0, 10):
        values: list[bytes | None] = [json.dumps({"id": i, "name": "n"}).encode() for i in range(10)]
        values[base // 2 + 1], values[9] = b"no", None
        table = pa.table({"key": [b"k"] * 10, "value": pa.array(values, pa.binary())})
        kolumn.write(table, folder / f"{base:020}.log", base_offset=base)
    return folder


def test_verify_counts_what_was_lost(log: Path) -> None:
    report = kolumn.verify(log, value_format="json", value_schema=SCHEMA)
    assert (report.ok, report.records, report.values.schema) == (True, 20, LOST_VALUES_SCHEMA)
    (row,) = report.values.to_pylist()
    assert (row["column"], row["field"], row["lost"], row["values"], row["offset"]) == ("value", "$", 2, 18, 1)
    assert row["segment"].endswith(f"{0:020}.log")
    assert ", 1 field that cannot be decoded everywhere" in repr(report)
    assert "<td style" in report._repr_html_()
    assert kolumn.verify(log).values.num_rows == 0
    out = run("verify", "--text", *TYPED, log)
    assert (out.exit_code, "Fields that could not be decoded (no damage)" in out.stdout, "OK: 2 segments" in out.stdout) == (0, True, True)
    assert json.loads(run("verify", "--json", *TYPED, log).stdout)["values"] == [row]


def test_every_field_is_counted_by_its_path() -> None:
    def batch(first: int, *problems: list[str] | None) -> pa.RecordBatch:
        n = len(problems)
        return pa.RecordBatch.from_pydict({
            "offset": range(first, first + n), "segment": [f"{first}.log"] * n, "isControl": [False] * (n - 1) + [True],
            "valueValid": [one is None for one in problems], "valueProblems": pa.array(problems, pa.list_(pa.string())),
        })  # fmt: skip

    losses = ValueLosses(Options.of(value_format="json", value_schema=SCHEMA).typed)
    losses.add(batch(0, None, ["a.b"], ["$"]))
    losses.add(batch(5, ["a.b", "c"], None, ["d"]))
    assert [tuple(row.values()) for row in losses.table().to_pylist()] == [
        ("value", "a.b", 2, 4, 1, "0.log"), ("value", "c", 1, 4, 5, "5.log"),
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["cat", "to-parquet", "latest", "history", "report", "sql"])
def test_commands_say_it_once(log: Path, tmp_path: Path, command: str, caplog: pytest.LogCaptureFixture) -> None:
    for package in {"report": ("matplotlib",), "sql": ("polars", "duckdb")}.get(command, ()):
        pytest.importorskip(package, reason=f"kolumn[{command}] has it")
    options = {
        "to-parquet": ["-o", tmp_path / "lake"], "history": ["--key", "k", "--values"], "report": ["-o", tmp_path / "report.html"],
        "sql": [], "cat": ["--json", "--columns", "offset,value,valueProblems"],
    }  # fmt: skip
    query = ["select count(value.id) n from t"] if command == "sql" else []
    out = run(command, *TYPED, *options.get(command, []), log, *query)
    assert out.exit_code == 0, out.output
    # The latest record is a tombstone: nothing of it is decoded.
    assert out.stderr.count(SAID) == (command != "latest")
    assert not caplog.messages
    if command == "report":
        page = (tmp_path / "report.html").read_text()
        assert all(text in page for text in ("18 values decoded.", "2 values lost something (11.1 %).", "Fields that could not be decoded"))
    if command == "cat":
        lost = [row["offset"] for row in map(json.loads, out.stdout.splitlines()) if row["valueProblems"] == ["$"]]
        assert lost == [1, 16]


def test_functions_count_it_or_log_it(log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    skipped = kolumn.Skipped()
    kolumn.read(log, value_format="json", value_schema=SCHEMA, on_damage=skipped)
    assert (skipped.values.values["value"], skipped.pieces, caplog.messages) == (2, [], [])
    kolumn.read(log, value_format="json", value_schema=SCHEMA)
    assert caplog.messages == [SAID]
    pytest.importorskip("deltalake", reason="kolumn[delta] has it")
    caplog.clear()
    assert kolumn.append(log, tmp_path / "delta", value_format="json", value_schema=SCHEMA).rows == 20
    assert caplog.messages == [SAID]
    kolumn.append(log, tmp_path / "other", value_format="json", value_schema=SCHEMA, on_damage=skipped)
    assert (skipped.values.values["value"], caplog.messages) == (4, [SAID])


@pytest.mark.parametrize(("limit", "lost"), [(1, 0), (2, 1), (5, 1), (17, 2)])
def test_only_records_that_are_returned_count(log: Path, caplog: pytest.LogCaptureFixture, limit: int, lost: int) -> None:
    typed: dict[str, Any] = {"value_format": "json", "value_schema": SCHEMA}
    for payload in get_args(Payload):
        skipped = kolumn.Skipped()
        found = kolumn.read(log, on_damage=skipped, payload=payload, limit=limit, **typed)
        assert (found.num_rows, skipped.values.values.total()) == (limit, lost)
    out = run("cat", *TYPED, "-n", limit, log)
    assert (len(out.stdout.splitlines()), out.stderr.count("could not be decoded")) == (limit, lost > 0)
    if lost == 0:
        assert kolumn.read(log, value_errors="raise", limit=limit, **typed).num_rows == limit
    pytest.importorskip("polars", reason="kolumn[polars] has it")
    assert kolumn.scan_polars(log, **typed).head(limit).collect().height == limit
    assert len(caplog.messages) == (lost > 0)


LOGICAL = [("date", "int", "date"), *((f"t{unit}", "long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos"))]
LOGICAL += [(f"l{unit}", "long", f"local-timestamp-{unit}") for unit in ("millis", "micros", "nanos")]
NUMBERS = [0, 2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001, 1_774_000_000_123_000_000, -5]
FAR = {
    "tmillis": [
        "1970-01-01T00:00:00.000Z", "+292278994-08-17T07:12:55.807Z", "-292275055-05-16T16:47:04.192Z", "+10000-01-01T00:00:00.000Z",
        "0000-12-31T23:59:59.999Z", "+56217792-02-11T19:56:40.000Z", "1969-12-31T23:59:59.995Z",
    ],
    "lmicros": [
        "1970-01-01T00:00:00.000000", "+294247-01-10T04:00:54.775807", "-290308-12-21T19:59:05.224192", "1978-01-11T21:31:40.800000",
        "1968-01-12T20:06:43.199999", "+58185-10-27T09:48:43.000000", "1969-12-31T23:59:59.999995",
    ],
}  # fmt: skip


def zigzag(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    rest &= 2**64 - 1
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Avro records with times at the ends of their numbers, also in a list; and their schema."""
    folder = tmp_path_factory.mktemp("far")
    fields: list[Any] = [{"name": name, "type": {"type": type, "logicalType": logical}} for name, type, logical in LOGICAL]
    fields.append({"name": "many", "type": {"type": "array", "items": fields[1]["type"]}})
    (folder / "far.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    values = [
        b"".join(zigzag(max(-(2**31), min(2**31 - 1, number)) if type == "int" else number) for _, type, _ in LOGICAL)
        + zigzag(1) + zigzag(number) + zigzag(0)
        for number in NUMBERS
    ]  # fmt: skip
    kolumn.write(pa.table({"key": [b"k"] * len(values), "value": values}), folder / "far-0")
    return folder / "far-0", folder / "far.avsc"


def test_times_of_any_year_end_no_command(far: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, schema = far
    typed = ("--value-format", "avro", "--value-schema", schema, "--value-framing", "none")
    rows = [json.loads(line)["value"] for line in run("cat", "--json", *typed, log).stdout.splitlines()]
    for name, texts in FAR.items():
        assert [row[name] for row in rows] == texts, name
    assert [row["many"] for row in rows] == [[row["tmillis"]] for row in rows]
    assert [row["date"] for row in rows][:3] == ["1970-01-01", "+5881580-07-11", "-5877641-06-23"]
    shown = run("cat", "--text", "--value-as", "columns", *typed, log).stdout
    assert FAR["tmillis"][1] in shown
    for command in (["history", "--text", "--key", "k", "--values"], ["latest"], ["verify"], ["to-parquet", "-o", tmp_path / "lake"]):
        assert run(*command, *typed, log).exit_code == 0
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    assert pq.ParquetFile(file).read()["value"].combine_chunks().field("lmicros").cast(pa.int64()).to_pylist() == NUMBERS
    options = {"value_format": "avro", "value_schema": schema.read_text(), "value_framing": "none"}
    assert "far" in repr(kolumn.read(log, **options))
    pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
    frame = kolumn.scan_polars(log, columns=["value"], **options).collect()
    assert str(frame.select(pl.col("value").struct.unnest()))
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    with caplog.at_level(logging.WARNING, "kolumn.values"):
        for form in ("text", "json"):
            out = run("sql", f"--{form}", *typed, log, 'select value, value.lmicros m, [value.tmillis] l from far order by "offset"')
            assert (out.exit_code, FAR["lmicros"][5] in out.stdout) == (0, True), out.output
    assert "times out of the range of their type here are null: value.date (5), value.tmillis (3)" in caplog.messages[-1]
    pytest.importorskip("matplotlib", reason="kolumn[report] has it")
    assert run("report", "-o", tmp_path / "report.html", *typed, log).exit_code == 0


def test_control_records_lose_no_values(tmp_path: Path) -> None:
    """Nothing is expected of what a marker holds: no type is inferred from it, and it is no error."""
    values = [batch([Record(i, b"k", b'{"id": %d}' % i)], flags=TRANSACTIONAL, producer_id=7) for i in (1, 3)]
    put(tmp_path / "t-0", control_batch(0, 0), values[0], control_batch(2, 1), values[1])
    columns = ["offset", "value", "valueProblems", "valueRaw"]
    skipped, marker = kolumn.Skipped(), b"\0\0" + (11).to_bytes(4, "big")
    for binary in get_args(Binary):
        options: dict[str, Any] = {"value_format": "json", "value_errors": "raise", "binary": binary, "include_control": True}
        found = kolumn.read(tmp_path, columns=columns, on_damage=skipped, **options).to_pylist()
        told = [(row["offset"], row["value"], row["valueProblems"]) for row in found]
        assert told == [(0, None, None), (1, {"id": 1}, None), (2, None, None), (3, {"id": 3}, None)]
        assert [row["valueRaw"] for row in found] == [marker, b'{"id": 1}', marker, b'{"id": 3}']
    assert not skipped.values.values
    out = run("report", "--value-format=json", tmp_path, f"--output={tmp_path / 'report.html'}")
    assert (out.exit_code, "lost" in out.stderr) == (0, False)
