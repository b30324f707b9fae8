"""``kolumn schemas``: what it prints, and how it ends."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import kolumn
from kit import command_line

RECORD = '{"type":"record","name":"O","fields":[]}'


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return command_line.run("schemas", *args)


def write(folder: Path, *values: dict[str, object]) -> Path:
    keys = [{"keytype": "SCHEMA", "subject": one["subject"], "version": one["version"], "magic": 1} for one in values]
    table = {"key": [json.dumps(key).encode() for key in keys], "value": [json.dumps(value).encode() for value in values]}
    kolumn.write(pa.table(table), folder / "_schemas-0", batch_records=1)
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    reference = {"name": "in.proto", "subject": "inner", "version": 2}
    return write(
        tmp_path / "logs",
        {"subject": "orders-value", "version": 1, "id": 7, "schema": RECORD},
        {
            "subject": "m",
            "version": 3,
            "id": 8,
            "schemaType": "PROTOBUF",
            "schema": "message M {}",
            "references": [reference],
            "deleted": True,
        },
    )


def test_a_table(logs: Path) -> None:
    out = run(logs)
    assert (out.returncode, out.stderr) == (0, "")
    lines = [line.split() for line in out.stdout.splitlines()]
    assert lines[0] == ["subject", "version", "id", "type", "references", "deleted"]
    assert lines[1] == ["m", "3", "8", "PROTOBUF", "in.proto", "(inner", "2)", "yes"]
    assert lines[2] == ["orders-value", "1", "7", "AVRO"]


def test_json(logs: Path) -> None:
    m, orders = (json.loads(line) for line in run("--json", logs / "_schemas-0").stdout.splitlines())
    assert m["references"] == [{"name": "in.proto", "subject": "inner", "version": 2}]
    assert (m["deleted"], m["schemaType"], m["guid"] is None) == (True, "PROTOBUF", False)
    assert orders["schema"] == RECORD
    assert list(orders) == ["subject", "version", "id", "guid", "schemaType", "references", "schema", "deleted"]


def test_the_text_of_one(logs: Path) -> None:
    out = run(logs, "--id", 7)
    assert (out.returncode, out.stdout, out.stderr) == (0, f"{RECORD}\n", "")
    assert json.loads(run(logs, "--id", 7, "--json").stdout)["schema"] == RECORD
    missing = run(logs, "--id", 9)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no schema has the id 9" in missing.stderr


def test_files(tmp_path: Path) -> None:
    (tmp_path / "4.avsc").write_text(RECORD)
    out = run(tmp_path)
    assert out.returncode == 0
    assert out.stdout.splitlines()[1].split() == ["4", "AVRO"]


def test_what_is_left_out_is_said(logs: Path) -> None:
    write(logs.parent / "wrong", {"subject": "a", "version": 1, "id": 1, "schema": RECORD}, {"subject": "b", "version": 1, "id": "2"})
    out = run(logs.parent / "wrong")
    assert (out.returncode, len(out.stdout.splitlines())) == (1, 2)
    assert out.stderr.startswith("left out: 1 record with")
    (log,) = (logs / "_schemas-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    out = run(logs)
    assert (out.returncode, len(out.stdout.splitlines())) == (1, 2)
    assert "1 record" in out.stderr
    assert "kolumn verify" in out.stderr


def test_nothing_is_there(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "no"):
        out = run(source)
        assert (out.returncode, out.stdout) == (2, "")
        assert str(tmp_path) in out.stderr
