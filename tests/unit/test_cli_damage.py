"""Each command reports how much it left out, in agreement with `verify`, and ends with exit code 1."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import kolumn
from kit.encoder import Record, batch
from kolumn.cli import app, left_out

TIME = 1_760_000_000_000


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


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
        assert (out.exit_code, out.stderr) == (1, line)
        assert out.stdout


@pytest.mark.parametrize("command", ["cat", "stats", "inspect", "space"])
def test_nothing_is_said_where_nothing_is_damaged(damaged: Path, command: str) -> None:
    damaged.write_bytes(batch([Record(0, b"key", b"value", TIME)]))
    out = run(command, "--errors", "skip", damaged.parent)
    assert (out.exit_code, out.stderr) == (0, "")


def test_parquet_says_what_it_left_out(damaged: Path, line: str, tmp_path: Path) -> None:
    out = run("to-parquet", "--errors", "skip", damaged.parent, tmp_path / "lake")
    assert out.exit_code == 1
    assert out.stderr == f"12 records in 1 file below {tmp_path / 'lake'}\n{line}"


def test_summaries_have_the_numbers(damaged: Path) -> None:
    lost = kolumn.verify(damaged).damage.to_pylist()
    expected = {
        "damagedStretches": 2,
        "damagedBytes": sum(row["size"] for row in lost),
        "recordsLost": sum(row["recordsLost"] or 0 for row in lost),
    }
    for command in ("stats", "space"):
        found = json.loads(run(command, "--json", damaged).stdout.splitlines()[0])
        assert {name: found[name] for name in expected} == expected, command


@pytest.mark.parametrize(("command", "options"), [("convert", []), ("compact", ["--include-active"])])
def test_writing_ends_with_one(damaged: Path, tmp_path: Path, command: str, options: list[str]) -> None:
    out = run(command, "--errors", "skip", *options, damaged.parent, tmp_path / "out")
    assert out.exit_code == 1
    assert f"orders-3/{damaged.name}: position " in out.stderr


def test_inspect_has_a_row_for_each_stretch(damaged: Path) -> None:
    wrong, lost = kolumn.verify(damaged).damage.to_pylist()
    lines = [row.split() for row in run("inspect", damaged).stdout.splitlines()[1:]]
    assert [row[1] for row in lines] == sorted((row[1] for row in lines), key=int)
    by_position = {int(row[1]): row for row in lines}
    assert "WRONG" in by_position[wrong["position"]]
    assert by_position[lost["position"]][2] == str(lost["size"])
    assert "skipped" in by_position[lost["position"]]
    rows = [json.loads(row) for row in run("inspect", "--json", damaged).stdout.splitlines()]
    assert [row for row in rows if "damage" not in row] == kolumn.batches(damaged, errors="skip").to_pylist()
    (stretch,) = [row for row in rows if "damage" in row]
    assert (stretch["position"], stretch["size"], stretch["damage"]) == (lost["position"], lost["size"], lost["reason"])


def test_inspect_that_stops_at_damage_ends_with_one(damaged: Path) -> None:
    damaged.write_bytes(damaged.read_bytes()[:300])
    out = run("inspect", "--errors", "raise", damaged)
    assert out.exit_code == 1
    assert "WRONG" in out.stdout


def test_only_the_first_places_are_named(damaged: Path) -> None:
    batches = [bytearray(batch([Record(i, b"key", b"value", TIME)])) for i in range(20)]
    for one in batches[::2]:
        one[-3] ^= 1
    damaged.write_bytes(b"".join(batches))
    said = run("cat", "--errors", "skip", damaged).stderr
    assert said.startswith("10 damaged stretches left out: ")
    assert "; and 4 more); `kolumn verify` lists them" in said


def test_messages_name_options_as_they_are_typed(damaged: Path, tmp_path: Path) -> None:
    assert "Read with --errors skip to go on" in run("cat", damaged).stderr
    assert run("cat", "--errors", "leave", damaged).stderr == "kolumn: --errors leave: expected one of raise, skip\n"
    assert run("cat", "--start-timestamp", "one day", damaged).stderr.startswith(
        "kolumn: --start-timestamp 'one day': expected ms since 1970"
    )
    (tmp_path / "big-0").mkdir()
    (tmp_path / "big-0" / f"{0:020}.log").write_bytes(batch([Record(0, b"key", b"value" * 1000, TIME)], codec=1))
    said = run("cat", "--max-batch-bytes", "100", tmp_path / "big-0").stderr
    assert "Read with --errors skip, or raise --max-batch-bytes or --max-ratio if the data are trusted and memory is there." in said


def test_batches_and_space_tell_what_is_damaged(damaged: Path) -> None:
    found = kolumn.verify(damaged).damage.to_pylist()
    for function in (kolumn.batches, kolumn.space):
        skipped = kolumn.Skipped()
        function(damaged, errors="skip", on_damage=skipped)
        assert [(piece.position, piece.size, piece.reason) for piece in skipped.damage] == [
            (row["position"], row["size"], row["reason"]) for row in found
        ]


def test_what_conversion_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The result of the conversion counts stretches, as `verify` does."""
    skipped = kolumn.Skipped([kolumn.Damage("orders-3/a.log", 70, 10, 5, 7, "crc: wrong", 3)])
    assert left_out.say_of(SimpleNamespace(damage=[], skipped=skipped)) == 1
    said = f"left out: orders-3/a.log: position 70: crc: wrong\n{skipped} (orders-3/a.log at 70); `kolumn verify` lists it\n"
    assert capsys.readouterr().err == said
    assert left_out.counts_of(SimpleNamespace(damage=[1], skipped=skipped)) == {
        "damaged": 1, "damagedStretches": 1, "damagedBytes": 10, "recordsLost": 3, "batchesOverLimit": 0,
    }  # fmt: skip
    assert left_out.say_of(SimpleNamespace(damage=[], skipped=kolumn.Skipped())) == 0
