"""`kolumn cat` formats columns; a reference formats one record at a time. Both print the same for the same records."""

import json
import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kit import rows_as_lines
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kolumn.cli import app, lines
from kolumn.cli.lines import json_lines, text_lines
from kolumn.core.schema import RECORD_COLUMNS

FORMATTERS = [(json_lines, rows_as_lines.json_lines), (text_lines, rows_as_lines.text_lines)]

BYTES = [
    *(None, b"", b"plain", b"it's", b'"quoted"', b"'both\"", b"back\\slash", b"\\\"'", b"\x7f", "übel 漢字 😀".encode()),
    *(bytes([byte]) for byte in range(32)),
    *(b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"ok\xff", b"\x80", b"\xf0\x9f\x98\x80"),
    *("\u2028\u2029\u200b\u00ad\ufeff\u0085".encode(), b"a\nb\tc\r\0", b"%s {} \\u0041 \\n", b"x" * 1000),
]
NAMES = [None, "", "orders", "it's", 'a"b', "back\\slash", "漢字", "\x1b[31mred", "line\nbreak", "\u200b", "soft\u00ad"]
MOMENTS = [None, 0, -1000, 1_760_000_000_010_000, -62_135_596_800_000_000, -62_135_596_801_000_000, 253_402_300_799_999_000]
MOMENTS += [253_402_300_800_000_000, 2**62 // 1000 * 1000, -(2**62) // 1000 * 1000]


def column(rng: random.Random, kind: pa.DataType, rows: int, nulls: bool) -> pa.Array:
    def pick(values: list[Any]) -> Any:
        return rng.choice(values if nulls else [value for value in values if value is not None])

    if pa.types.is_list(kind):
        headers = [[{"key": pick(NAMES) or "", "value": pick(BYTES)} for _ in range(rng.choice((0, 0, 1, 3)))] for _ in range(rows)]
        return pa.array(headers, kind)
    if pa.types.is_timestamp(kind):
        return pa.array([pick(MOMENTS) for _ in range(rows)], pa.int64()).cast(kind)
    values = {pa.binary(): BYTES, pa.string(): NAMES, pa.bool_(): [None, True, False]}.get(kind, [None, -1, 0, 1, 127])
    return pa.array([pick(values) for _ in range(rows)], kind)


def records(seed: int, rows: int) -> pa.RecordBatch:
    """Records in which a column may have a single value, no nulls, or values of all kinds."""
    rng = random.Random(seed)
    columns = {name: column(rng, kind, rows, rng.random() < 0.7) for name, kind in RECORD_COLUMNS.items()}
    for name in columns:
        if rows and rng.random() < 0.2:
            columns[name] = columns[name].take(pa.array([0] * rows))
    names = rng.sample(list(columns), rng.randint(1, len(columns)))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def printed(formatter: Any, batch: pa.RecordBatch) -> str:
    return b"".join(bytes(lines.data_of(formatter(block), block.num_rows)) for block in lines.blocks(batch)).decode()


@pytest.mark.parametrize(("formatter", "reference"), FORMATTERS)
def test_columns_say_what_records_say(formatter: Any, reference: Any) -> None:
    for seed in range(60):
        batch = records(seed, seed % 23)
        for part in (batch, batch.slice(3), batch.slice(2, 5)):
            assert printed(formatter, part) == reference(part), seed
    # The text of a value does not depend on its neighbours.
    for value in BYTES:
        headers = pa.array([[{"key": "a", "value": value}, {"key": "", "value": b"\xff"}]], RECORD_COLUMNS["headers"])
        batch = pa.RecordBatch.from_arrays([pa.array([value], pa.binary()), headers], ["value", "headers"])
        assert printed(formatter, batch) == reference(batch), value
    # Many bytes that are nearly UTF-8.
    rng = random.Random(7)
    alphabet = bytes.fromhex("4122808f909fa0bfc1c2dfe0e1edeff0f3f4f5ff")
    values = [bytes(rng.choices(alphabet, k=rng.randrange(6))) for _ in range(20_000)]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    assert printed(formatter, batch) == reference(batch)
    assert rows_as_lines.shown(b"\xff") == ("/w==", "base64")


@pytest.mark.parametrize(("formatter", "reference"), FORMATTERS)
@pytest.mark.parametrize("case", ["upgraded", "transactional", "v2-java", "v0"])
def test_records_of_real_brokers(formatter: Any, reference: Any, case: str) -> None:
    for rows in kolumn.scan(CORPUS / case, columns=list(RECORD_COLUMNS), include_control=True):
        assert printed(formatter, rows) == reference(rows)


def test_blocks_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * 1000] * 100, pa.binary())], ["value"])
    assert [block.num_rows for block in lines.blocks(batch)] == [100]
    monkeypatch.setattr(lines, "BLOCK_ROWS", 30)
    assert [block.num_rows for block in lines.blocks(batch)] == [30, 30, 30, 10]
    monkeypatch.setattr(lines, "BLOCK_BYTES", 5000)
    assert all(block.num_rows <= 5 for block in lines.blocks(batch))
    assert printed(json_lines, batch) == rows_as_lines.json_lines(batch)


def test_times_have_one_width_and_sort_as_text() -> None:
    moments = pa.array([1_760_000_020_000_000, 1_760_000_020_010_000], pa.int64()).cast(RECORD_COLUMNS["timestamp"])
    lines = printed(json_lines, pa.RecordBatch.from_arrays([moments], ["timestamp"])).splitlines()
    assert [json.loads(line)["timestamp"] for line in lines] == ["2025-10-09T08:53:40.000Z", "2025-10-09T08:53:40.010Z"]


# `kolumn cat --key`, `--grep`, `--since` and `-f`: which records are printed, and in which form?
NOON = 1_700_000_000_000
ROWS: list[tuple[bytes | None, bytes | None, list[Any]]] = [
    (b"ada", b'{"n": 1}', []), (b"bob", b'{"n": 22}', [(b"trace", b"x1"), (b"none", None)]), (b"ada", None, []),
    (b"\xff\x00", b"b\xe9zier", []), (None, b"ada in value", []),
]  # fmt: skip


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cat") / "orders-3"
    folder.mkdir()
    records = [Record(i, key, value, NOON + i * 1000, tuple(headers)) for i, (key, value, headers) in enumerate(ROWS)]
    (folder / f"{0:020}.log").write_bytes(batch(records))
    return folder


def cat(*args: object) -> bytes:
    out = CliRunner().invoke(app, ["cat", *map(str, args)])
    assert out.exit_code == 0, out.stderr
    return out.stdout_bytes


def offsets(*args: object) -> list[int]:
    return [json.loads(line)["offset"] for line in cat("--json", "--columns", "offset", *args).splitlines()]


def test_key_grep_since_and_until(topic: Path) -> None:
    assert (offsets("--key", "ada", topic), offsets("--key", "base64:/wA=", topic), offsets("--key", "ad", topic)) == ([0, 2], [3], [])
    assert offsets("--key", "ada", "-n", 1, topic) == [0]
    # The key is printed only if it is asked for.
    assert cat("--key", "ada", "--columns", "offset,value", topic) == b"offset=0  value='{\"n\": 1}'\noffset=2  value=null\n"
    assert (offsets("--grep", "ada", topic), offsets("--grep", r'"n": \d\d', topic)) == ([0, 2, 4], [1])
    assert (offsets("--grep", "zier$", topic), offsets("--grep", "ada", "--key", "ada", "-n", 5, topic)) == ([3], [0, 2])
    assert offsets("--since", NOON + 1000, "--until", NOON + 3000, topic) == [1, 2]
    assert offsets("--since", "2023-11-14T22:13:22", topic) == [2, 3, 4]


def test_decoded_values_are_chosen_by_their_bytes(topic: Path) -> None:
    json_options = ("--value-format", "json", "--value-schema", '{"n": "int64"}')
    assert cat(*json_options, "--grep", '"n": 2', "--columns", "offset,value", topic) == b'offset=1  value={"n": 22}\n'
    assert b"valueRaw" not in cat(*json_options, "--grep", "ada", "--json", topic)
    assert cat(*json_options, "--value-as", "columns", "--key", "bob", "--columns", "value", topic) == b"n=22\n"
    assert cat(*json_options, "-t", "%o %s;", "-n", 3, topic) == b'0 {"n": 1};1 {"n": 22};2 null;'


def expected(row: int, with_headers: str) -> bytes:
    key, value, _ = ROWS[row]
    lengths = "/".join(str(-1 if one is None else len(one)) for one in (key, value))
    start = f"orders[3] {row} {NOON + row * 1000} {lengths} ".encode()
    return start + (key or b"") + b"|" + (value or b"") + b"|" + with_headers.encode() + b"%\tA\n"


def test_templates(topic: Path) -> None:
    out = cat("-t", r"%t[%p] %o %T %K/%S %k|%s|%h%%\t\x41\n", topic)
    headers = ["", "trace=x1,none=NULL", "", "", ""]
    assert (out, cat("-t", r"x\n", topic)) == (b"".join(expected(row, headers[row]) for row in range(len(ROWS))), b"x\n" * len(ROWS))
    lengths = [struct.pack(">i", -1 if value is None else len(value)) for _, value, _ in ROWS]
    assert (cat("-t", "%R", topic), cat("-t", r"%o,", "--key", "ada", topic)) == (b"".join(lengths), b"0,2,")
    # Numbers are read as by strtoul in kcat's `fmt_add`, of which a char keeps the lowest byte.
    assert cat("-n", 1, "-t", r"\x41\x041\x0141z\xffg|\0101\65\0|\q\\\"", topic) == b'AAAz\xffg|AA\0|q\\"'


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-t", "%x"], r"'%x' has no meaning; fields are %t, "),
        (["-t", "%"], r"has no meaning"),
        (["-t", "%o", "--json"], "does not go with --json"),
        (["--grep", "("], "--grep (: not a regular expression"),
        (["--key", "base64:_"], "not base64"),
    ],
)
def test_what_cannot_be(args: list[str], text: str, topic: Path) -> None:
    out = CliRunner().invoke(app, ["cat", *args, str(topic)])
    assert (out.exit_code, out.stdout) == (2, "")
    assert re.search(re.escape(text), out.stderr)


def test_follow(topic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Path(shutil.copytree(topic, tmp_path / topic.name))

    def followed(*args: object, added: int = 0) -> tuple[int, list[int]]:
        def wait(_: float) -> None:
            nonlocal added
            if not added:
                raise KeyboardInterrupt
            with next(topic.glob("*.log")).open("ab") as file:
                file.write(batch([Record(len(found), b"ada", b"more", NOON)]))
            found.append(len(found))
            added -= 1

        monkeypatch.setattr("kolumn.readers.follow.sleep", wait)
        out = CliRunner().invoke(app, ["cat", "-f", "--json", *map(str, args), str(topic)])
        return out.exit_code, [json.loads(line)["offset"] for line in out.stdout.splitlines()]

    found = [*range(len(ROWS))]
    assert followed() == (130, found)
    assert followed(added=2) == (130, [*range(7)])
    assert followed("-n", 9, added=5) == (0, [*range(9)])
    assert followed("--start", "latest", "--key", "ada", added=1) == (130, [9])
    assert followed("--since", NOON + 3000, "-n", 1) == (0, [3])
    for args, said in (
        (["-f", "--until", "5"], "follow has no end"), (["-f", "-"], "a segment in memory does not grow"),
        (["--start", "latest"], "--start goes with --follow"), (["-f", "--start", "now"], "expected one of earliest, latest"),
    ):  # fmt: skip
        sources = [] if "-" in args else [str(topic)]
        out = CliRunner().invoke(app, ["cat", *args, *sources], input=b"")
        assert (out.exit_code, said in out.stderr) == (2, True), out.stderr


def test_a_template_by_its_old_short_name(topic: Path) -> None:
    """It was -f in version 0.1, as in kcat."""
    for args in ((r"%o\x2c", topic), (topic, "%o,"), ("%o,", topic, "--key", "ada")):
        out = CliRunner().invoke(app, ["cat", "-f", *map(str, args)])
        assert (out.exit_code, out.stdout) == (0, "0,2," if "ada" in args else "0,1,2,3,4,")
        assert out.stderr.startswith("warning: -f is --follow now, and a template is --template or -t")


def test_many_records_of_any_length(tmp_path: Path) -> None:
    """Blocks of records follow each other without a gap."""
    rows = 100_000
    values = pa.array([None if i % 7 == 0 else b"v" * (i % 50) for i in range(rows)], pa.binary())
    kolumn.write(pa.table({"value": values, "key": pa.array([b"%d" % (i % 10) for i in range(rows)])}), tmp_path / "many-0", codec="lz4")
    lines = cat("-t", r"%o %k %S\n", tmp_path / "many-0").decode().splitlines()
    assert lines == [f"{i} {i % 10} {-1 if i % 7 == 0 else i % 50}" for i in range(rows)]
    assert offsets("--key", "3", tmp_path / "many-0") == list(range(3, rows, 10))
