"""A batch over a limit is no damage: what do `verify`, `read`, `recover` and the commands say of it?"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kolumn
from kit.encoder import Record, batch
from kit.streams import GZIP, NONE, ZSTD
from kolumn.cli import app
from kolumn.cli.ending import DAMAGE, LIMIT, OK

SIZE = 80 << 20
"""Bytes of a value: more than what any ratio is allowed for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits") / "big-0"
    folder.mkdir()
    parts = [
        batch([Record(0, None, b"first")]),
        batch([Record(1, None, bytes(SIZE))], codec=ZSTD),
        batch([Record(2, None, b"last")], codec=GZIP),
    ]
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    return folder


def test_verify(folder: Path) -> None:
    report = kolumn.verify(folder)
    assert not report.ok
    assert (report.damage.num_rows, report.batches, report.records) == (0, 2, 2)
    [row] = report.limits.to_pylist()
    assert (row["kind"], row["baseOffset"], row["lastOffset"], row["recordsLost"]) == ("limit", 1, 1, 1)
    assert kolumn.verify(folder, **report.suffices).ok
    assert kolumn.read(folder, **report.suffices).num_rows == 3
    [name] = report.suffices
    assert not kolumn.verify(folder, **{name: report.suffices[name] * 0.9}).ok


def test_verify_names_the_limit_on_bytes(folder: Path) -> None:
    report = kolumn.verify(folder, max_batch_bytes=4)
    assert report.damage.num_rows == 0
    assert report.suffices.keys() == {"max_batch_bytes", "max_ratio"}
    assert kolumn.verify(folder, **report.suffices).records == 3


def test_a_read_leaves_it_out_by_that_word(folder: Path) -> None:
    skipped = kolumn.Skipped()
    assert kolumn.read(folder, errors="skip", on_damage=skipped)["offset"].to_pylist() == [0, 2]
    assert (skipped.damage, [one.kind for one in skipped.limits]) == ([], ["limit"])
    assert (skipped.stretches, skipped.records, [type(one) for one in skipped.errors]) == (0, 0, [kolumn.LimitError])
    assert str(skipped).startswith("1 batch over a limit left out: ")
    with pytest.raises(kolumn.LimitError, match=r"max_ratio=\d+ suffices"):
        kolumn.read(folder)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["verify", "--text"], LIMIT),
        (["cat", "--text"], LIMIT),
        (["cat", "--text", "--errors", "skip"], LIMIT),
        (["stats", "--text", "--errors", "skip"], LIMIT),
        (["verify", "--text", "--max-ratio", "1e6"], OK),
    ],
    ids=str,
)
def test_commands(command: list[str], code: int, folder: Path) -> None:
    done = CliRunner().invoke(app, [*command, str(folder)])
    assert done.exit_code == code
    assert ("over a limit" in done.output or "--max-ratio" in done.output) is (code == LIMIT)


def test_damage_comes_before_a_limit(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big-0").mkdir()
    log = bytearray((folder / f"{0:020d}.log").read_bytes())
    log[60] ^= 1
    (tmp_path / "big-0" / f"{0:020d}.log").write_bytes(log)
    done = CliRunner().invoke(app, ["verify", "--json", str(tmp_path / "big-0")])
    found = json.loads(done.stdout)
    assert (done.exit_code, len(found["damage"]), len(found["limits"])) == (DAMAGE, 1, 1)


def test_recover_keeps_it_and_says_so(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recover", str(folder), "--json", "-o", str(tmp_path / "out")])
    assert done.exit_code == LIMIT
    found = json.loads(done.stdout)
    assert [(one["kind"], one["firstOffset"], one["recordsLost"]) for one in found["lost"]] == [("limit", 1, 0)]
    assert (found["ok"], found["partitions"][0]["records"]) == (True, 3)
    name = f"{0:020d}.log"
    assert (tmp_path / "out" / "big-0" / name).read_bytes() == (folder / name).read_bytes()
    assert "kept, and its records not counted" in CliRunner().invoke(app, ["recover", str(folder), "-o", str(tmp_path / "again")]).stdout


def test_export_leaves_it_out_by_that_word(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["to-parquet", "--errors", "skip", str(folder), str(tmp_path / "out")])
    assert done.exit_code == LIMIT
    assert "1 batch over a limit left out" in done.output


def test_what_is_within_the_limits_is_not_mentioned(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(batch([Record(0, None, bytes(1 << 20))], codec=ZSTD) + batch([Record(1)], codec=NONE))
    report = kolumn.verify(tmp_path)
    assert (report.ok, report.limits.num_rows, report.suffices) == (True, 0, {})
