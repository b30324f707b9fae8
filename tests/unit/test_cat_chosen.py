"""`kolumn cat --key`, `--grep`, `--since` and `-f`: which records are printed, and in which form?"""

import json
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import kolumn
from kit.encoder import Record, batch
from kolumn.cli import app

NOON = 1_700_000_000_000
ROWS: list[tuple[bytes | None, bytes | None, list[Any]]] = [
    (b"ada", b'{"n": 1}', []),
    (b"bob", b'{"n": 22}', [(b"trace", b"x1"), (b"none", None)]),
    (b"ada", None, []),
    (b"\xff\x00", b"b\xe9zier", []),
    (None, b"ada in value", []),
]


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


def test_key(topic: Path) -> None:
    assert offsets("--key", "ada", topic) == [0, 2]
    assert offsets("--key", "base64:/wA=", topic) == [3]
    assert offsets("--key", "ad", topic) == []
    assert offsets("--key", "ada", "-n", 1, topic) == [0]
    # The key is printed only if it is asked for.
    assert cat("--key", "ada", "--columns", "offset,value", topic) == b"offset=0  value='{\"n\": 1}'\noffset=2  value=null\n"


def test_grep(topic: Path) -> None:
    assert offsets("--grep", "ada", topic) == [0, 2, 4]
    assert offsets("--grep", r'"n": \d\d', topic) == [1]
    assert offsets("--grep", "zier$", topic) == [3]
    assert offsets("--grep", "ada", "--key", "ada", "-n", 5, topic) == [0, 2]


def test_since_and_until(topic: Path) -> None:
    assert offsets("--since", NOON + 1000, "--until", NOON + 3000, topic) == [1, 2]
    assert offsets("--since", "2023-11-14T22:13:22", topic) == [2, 3, 4]


def test_decoded_values_are_chosen_by_their_bytes(topic: Path) -> None:
    json_options = ("--value-format", "json", "--value-schema", '{"n": "int64"}')
    assert cat(*json_options, "--grep", '"n": 2', "--columns", "offset,value", topic) == b'offset=1  value={"n": 22}\n'
    assert b"valueRaw" not in cat(*json_options, "--grep", "ada", "--json", topic)
    assert cat(*json_options, "--value-as", "columns", "--key", "bob", "--columns", "value", topic) == b"n=22\n"
    assert cat(*json_options, "-f", "%o %s;", "-n", 3, topic) == b'0 {"n": 1};1 {"n": 22};2 null;'


def expected(row: int, with_headers: str) -> bytes:
    key, value, _ = ROWS[row]
    lengths = "/".join(str(-1 if one is None else len(one)) for one in (key, value))
    start = f"orders[3] {row} {NOON + row * 1000} {lengths} ".encode()
    return start + (key or b"") + b"|" + (value or b"") + b"|" + with_headers.encode() + b"%\tA\n"


def test_templates(topic: Path) -> None:
    out = cat("-f", r"%t[%p] %o %T %K/%S %k|%s|%h%%\t\x41\n", topic)
    headers = ["", "trace=x1,none=NULL", "", "", ""]
    assert out == b"".join(expected(row, headers[row]) for row in range(len(ROWS)))
    assert cat("-f", r"x\n", topic) == b"x\n" * len(ROWS)
    lengths = [struct.pack(">i", -1 if value is None else len(value)) for _, value, _ in ROWS]
    assert cat("-f", "%R", topic) == b"".join(lengths)
    assert cat("-f", r"%o,", "--key", "ada", topic) == b"0,2,"


def test_numbers_in_templates(topic: Path) -> None:
    """As strtoul reads them in kcat's `fmt_add`, of which a char keeps the lowest byte."""
    assert cat("-n", 1, "-f", r"\x41\x041\x0141z\xffg|\0101\65\0|\q\\\"", topic) == b'AAAz\xffg|AA\0|q\\"'


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-f", "%x"], r"'%x' has no meaning; fields are %t, "),
        (["-f", "%"], r"has no meaning"),
        (["-f", "%o", "--json"], "does not go with --json"),
        (["--grep", "("], "--grep (: not a regular expression"),
        (["--key", "base64:_"], "not base64"),
    ],
)
def test_what_cannot_be(args: list[str], text: str, topic: Path) -> None:
    out = CliRunner().invoke(app, ["cat", *args, str(topic)])
    assert (out.exit_code, out.stdout) == (2, "")
    assert re.search(re.escape(text), out.stderr)


def test_many_records_of_any_length(tmp_path: Path) -> None:
    """Blocks of records follow each other without a gap."""
    rows = 100_000
    values = pa.array([None if i % 7 == 0 else b"v" * (i % 50) for i in range(rows)], pa.binary())
    kolumn.write(pa.table({"value": values, "key": pa.array([b"%d" % (i % 10) for i in range(rows)])}), tmp_path / "many-0", codec="lz4")
    lines = cat("-f", r"%o %k %S\n", tmp_path / "many-0").decode().splitlines()
    assert lines == [f"{i} {i % 10} {-1 if i % 7 == 0 else i % 50}" for i in range(rows)]
    assert offsets("--key", "3", tmp_path / "many-0") == list(range(3, rows, 10))
