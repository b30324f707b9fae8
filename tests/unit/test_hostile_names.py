"""Names of folders, topics and files, and texts of records, that a terminal would act on: they are escaped in all that Kolumn says."""

import importlib
import inspect
import json
import logging
import os
import pickle
import pkgutil
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import kolumn
from kit.command_line import run
from kit.encoder import Record, batch
from kolumn.cli import app
from kolumn.core.errors import Code, CorruptBatchError, KolumnError, PayloadError, escaped

FORGED = "OK: 1 segment, forged"
CONTROLS = "\x1b]0;title\x07\x9b31m\x7f\r\t\u202e\u2066\u200f\u061c\u2028\u2029"
NAME = f"{CONTROLS}\n{FORGED}{os.fsdecode(b'%')}"
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
TIME = 1_760_000_000_000
_IN_PIPES = {"verify", "explain", "inspect", "cat", "stats", "space", "schemas", "groups", "transactions", "sql"}
"""Commands that print JSON in a pipe."""
_SILENT = {"columns", "doctor", "jar", "warmup"}
"""Commands that are given no source."""


def unsafe(text: str) -> list[str]:
    """Characters that a terminal may act on, and lines that a name has made."""
    return [char for char in text if not char.isprintable() and char != "\n"] + [one for one in text.split("\n") if one.startswith(FORGED)]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a hostile name: two copies of damaged partitions, hostile texts in records, and files that are no segments."""
    root = tmp_path_factory.mktemp("disks")
    text = NAME.encode()
    batches = [bytearray(batch([Record(3 * i + k, text, text, TIME + i, ((text, text),)) for k in range(3)])) for i in range(4)]
    batches[2][-5] ^= 1
    for folder in (f"one {NAME}", f"two {NAME}"):
        for topic in (f"{NAME}-0", f"{NOT_UTF8}{NAME}-1"):
            (root / folder / topic).mkdir(parents=True)
            (root / folder / topic / f"{0:020}.log").write_bytes(b"".join(batches))
            (root / folder / topic / f"{0:020}.index").write_bytes(b"no index")
            (root / folder / topic / f"{12:020}.log").write_bytes(b"no segment: " + text)
    return root / f"one {NAME}"


def arguments(disk: Path, work: Path) -> dict[str, list[list[object]]]:
    """What each command is asked: something that works, something about damage, something that cannot be done."""
    missing, target, copy = disk / f"missing {NAME}", work / f"new {NAME}", disk.with_name(f"two {NAME}")
    shutil.copytree(disk, work / f"own {NAME}")
    readers: dict[str, list[list[object]]] = {
        name: [["--errors", "skip", disk], [disk], [missing], [disk, copy]] for name in ("cat", "stats")
    }
    (work / f"taken {NAME}").mkdir()
    (work / f"taken {NAME}" / "file").write_bytes(b"")
    writers: dict[str, list[list[object]]] = {
        name: [
            [*extra, "--errors", "skip", disk, "-o", target / name],
            [*extra, disk, "-o", target / f"{name} 2"],
            [*extra, missing, "-o", target],
            [*extra, disk, copy, "-o", target / f"{name} 3"],
            [*extra, "--errors", "skip", disk, "-o", copy],
        ]
        for name, extra in (("to-parquet", ()), ("convert", ("--codec", "zstd")), ("compact", ("--include-active",)))
    }  # fmt: skip
    query = ["select * from nothing", f'select count(*), min(offset) from "{escaped(NAME)}"']
    return {
        **readers, **writers,
        "overview": [[disk], [missing], [disk, copy]],
        "verify": [[disk], [missing], [disk, copy]],
        "explain": [[disk], [missing]],
        "inspect": [[disk], [missing]],
        "space": [[disk], [missing]],
        "apply-retention": [["--retention-ms", "1", disk, "-o", target / "clean"], ["--retention-ms", "1", missing, "-o", target]],
        "report": [[disk, "-o", work / f"{NAME}.html"], [disk, "-o", missing / "x.html"]],
        "sql": [[*extra, disk, one] for one in query for extra in ((), ("--errors", "skip"))],
        "tidy": [[missing], [work]],
        "schemas": [[disk], [missing]],
        "groups": [[disk], [missing]],
        "transactions": [[disk], [missing]],
        "rebuild-index": [[work / f"own {NAME}"], ["--errors", "skip", work / f"own {NAME}"], [missing]],
        "recover": [[disk, copy, "-o", target / "recover"], [disk, "-o", disk], [missing, "-o", target]],
    }  # fmt: skip


def forms(command: str) -> list[tuple[str, ...]]:
    """Text, and JSON where the command has it."""
    (found,) = (one.callback for one in app.registered_commands if one.name == command)
    has = inspect.signature(found).parameters
    return [("--text",), ("--json",)] if command in _IN_PIPES else [(), ("--json",)] if "json" in has else [()]


def test_no_command_prints_a_name_as_it_is(disk: Path, tmp_path: Path) -> None:
    asked = arguments(disk, tmp_path)
    assert {one.name for one in app.registered_commands if not one.hidden} == {*asked, *_SILENT}
    told = 0
    for number, (name, cases) in enumerate(asked.items()):
        for args in cases:
            for form in forms(name):
                out = tmp_path / f"out{number}"
                done = run(name, *form, *args, stdout=str(out), cwd=tmp_path)
                text = out.read_bytes().decode() + done.stderr
                assert done.returncode in (0, 1, 2, 3), text
                assert "internal error" not in text
                assert "Traceback" not in text
                assert unsafe(text) == [], (name, form, text)
                told += r"\x1b]0;title" in text.replace("\\u001b", r"\x1b")
                if form == ("--json",):
                    for line in out.read_text().splitlines():
                        json.loads(line)
                out.unlink()
    assert told > 40


def test_usage_errors(tmp_path: Path) -> None:
    for args in (("rebuild-index", "a", NAME), (f"a{NAME}",), ("verify", f"--{NAME}")):
        out = run(*args, cwd=tmp_path)
        assert out.returncode == 2
        assert not {"\x1b", "\x9b", "\u202e"} & {*out.stderr}


def test_json_has_the_value_itself(disk: Path) -> None:
    out = run("cat", "--json", "--include-headers", "--errors", "skip", disk / f"{NAME}-0")
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(rows) == 9
    for row in rows:
        assert [row["topic"], row["key"], row["headers"][0]["key"], row["headers"][0]["value"]] == [NAME] * 4


def every_error() -> Iterator[type[KolumnError]]:
    for module in pkgutil.walk_packages(kolumn.__path__, "kolumn."):
        if not module.name.startswith(("kolumn.spark_plugin", "kolumn.kernels")):
            importlib.import_module(module.name)
    found = [KolumnError]
    for one in found:
        found += one.__subclasses__()
    yield from found


def test_every_error_escapes_names() -> None:
    for kind in every_error():
        if issubclass(kind, CorruptBatchError):
            corrupt = kind(NAME, 1, Code.BAD_CRC, found=NAME)
            assert corrupt.segment == NAME
            error: KolumnError = corrupt
        elif issubclass(kind, PayloadError):
            error = kind(NAME, 1, "key", NAME)
            assert (error.segment, error.reason) == (NAME, NAME)
        else:
            error = kind(f"{NAME}: cannot be read", "advice")
            assert str(error) == f"{escaped(NAME)}: cannot be read\nadvice"
        assert r"\x1b]0;title" in str(error)
        assert unsafe(str(error)) == unsafe(repr(error)) == []
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert escaped(f"a\\b ü{NOT_UTF8}\ud800") == "a\\b ü\\xff\\xfe\\ud800"


def test_reports_and_logs(disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(disk, tmp_path / NAME)
    skipped = kolumn.Skipped()
    with caplog.at_level(logging.DEBUG, "kolumn"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = kolumn.verify([disk, tmp_path / NAME])
        kolumn.read(disk, errors="skip", on_damage=skipped)
        recovery = kolumn.recover([disk, disk.with_name(f"two {NAME}")], tmp_path / f"new {NAME}")
        with pytest.raises(KolumnError) as error:
            kolumn.read(disk)
    assert not report.ok
    assert (report.damage["segment"][0].as_py(), recovery.partitions.num_rows) == (str(disk / f"{NAME}-0" / f"{0:020}.log"), 2)
    texts = [str(error.value), caplog.text, *(str(one.message) for one in warned)]
    for found in (report, skipped, recovery, skipped.damage[0]):
        texts += [str(found), repr(found), found._repr_html_()]
    for text in texts:
        assert unsafe(text) == [], text
