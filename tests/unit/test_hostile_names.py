"""Names of folders, topics and files, and texts of records, that a terminal would act on: they are escaped in all that Kolumn says."""

import importlib
import inspect
import json
import logging
import os
import pickle
import pkgutil
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import kolumn
from kit.command_line import run
from kit.encoder import Record, batch
from kolumn.cli import app, main
from kolumn.core.errors import Code, CorruptBatchError, KolumnError, PayloadError, escaped

FORGED = "OK: 1 segment, forged"
CONTROLS = "\x1b]0;title\x07\x9b31m\x7f\r\t\u202e\u2066\u200f\u061c\u2028\u2029"
NAME = f"{CONTROLS}\n{FORGED}{os.fsdecode(b'%')}"
NOT_UTF8 = os.fsdecode(b"\xff\xfe")
TIME = 1_760_000_000_000
_IN_PIPES = {
    *("verify", "explain", "inspect", "cat", "stats", "space", "schemas", "groups", "transactions", "sql"),
    *("audit", "diff", "history", "latest"),
}
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


@pytest.fixture
def ran(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[..., tuple[object, str, str]]:
    """Runs a command in this process, and returns exit code, output and standard error: the commands import their packages once."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["kolumn", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfdbinary.readouterr()
        return ended.value.code, out.decode(), err.decode()

    return call


def arguments(disk: Path, work: Path) -> dict[str, list[list[object]]]:
    """What each command is asked: something that works, something about damage, something that cannot be done."""
    missing, target, copy = disk / f"missing {NAME}", work / f"new {NAME}", disk.with_name(f"two {NAME}")
    shutil.copytree(disk, work / f"own {NAME}")
    (work / f"taken {NAME}").mkdir()
    (work / f"taken {NAME}" / "file").write_bytes(b"")
    skip, query = ("--errors", "skip"), f'select count(*), min(offset) from "{escaped(NAME)}"'
    one: list[list[object]] = [[disk], [missing]]
    several = [*one, [disk, copy]]
    skipping = [[*skip, disk], *several]
    writers: dict[str, list[list[object]]] = {
        name: [
            [*extra, *skip, disk, "-o", target / name], [*extra, disk, "-o", target / f"{name} 2"], [*extra, missing, "-o", target],
            [*extra, disk, copy, "-o", target / f"{name} 3"], [*extra, *skip, disk, "-o", copy],
        ]
        for name, extra in (
            ("to-parquet", ()), ("convert", ("--codec", "zstd")), ("compact", ("--include-active",)), ("erase", ("--where", "a=b")),
        )
    }  # fmt: skip
    return {
        **dict.fromkeys(("cat", "stats"), skipping), **writers, **dict.fromkeys(("overview", "verify"), several),
        **dict.fromkeys(("explain", "inspect", "space", "groups", "transactions", "audit"), one), "schemas": [*one, ["--infer", disk]],
        "apply-retention": [["--retention-ms", "1", disk, "-o", target / "clean"], ["--retention-ms", "1", missing, "-o", target]],
        "report": [[disk, "-o", work / f"{NAME}.html"], [disk, "-o", missing / "x.html"]],
        "history": [["--key", NAME, "--values", disk], ["--header", f"{NAME}={NAME}", disk], ["--key", "a", missing]],
        "latest": [[disk], ["--errors", "raise", disk], [missing]],
        "sql": [[disk, "select * from nothing"], [disk, query], [*skip, disk, query]],
        "tidy": [[missing], [work]],
        "to-delta": [[*skip, disk, target / "delta"], [missing, target / "delta"], [disk, copy]],
        "to-iceberg": [[disk, NAME], [missing, f"{NAME}.a.b"]],
        "rebuild-index": [[work / f"own {NAME}"], [*skip, work / f"own {NAME}"], [missing]],
        "diff": [[disk, copy], [disk, missing], ["--compacted", "--records", disk, disk]],
        "recover": [[disk, copy, "-o", target / "recover"], [disk, "-o", disk], [missing, "-o", target]],
    }  # fmt: skip


def forms(command: str) -> list[tuple[str, ...]]:
    """Text, and JSON where the command has it."""
    (found,) = (one.callback for one in app.registered_commands if one.name == command)
    has = inspect.signature(found).parameters
    return [("--text",), ("--json",)] if command in _IN_PIPES else [(), ("--json",)] if "json" in has else [()]


def test_no_command_prints_a_name_as_it_is(disk: Path, tmp_path: Path, ran: Callable[..., tuple[object, str, str]]) -> None:
    asked = arguments(disk, tmp_path)
    assert {one.name for one in app.registered_commands if not one.hidden} == {*asked, *_SILENT}
    told = 0
    for command, form in [((name, *args), form) for name, cases in asked.items() for args in cases for form in forms(name)]:
        code, out, err = ran(*command, *form)
        text = out + err
        assert code in (0, 1, 2, 3), text
        assert not [words for words in ("internal error", "Traceback") if words in text]
        assert unsafe(text) == [], (command, form, text)
        told += r"\x1b]0;title" in text.replace("\\u001b", r"\x1b")
        if form == ("--json",):
            assert all(json.loads(line) is not None for line in out.splitlines())
    assert told > 40
    for wrong in (("rebuild-index", "a", NAME), (f"a{NAME}",), ("verify", f"--{NAME}")):
        code, _, err = ran(*wrong)
        assert (code, {"\x1b", "\x9b", "\u202e"} & {*err}) == (2, set())


def test_json_has_the_value_itself(disk: Path) -> None:
    out = run("cat", "--json", "--include-headers", "--errors", "skip", disk / f"{NAME}-0")
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(rows) == 9
    for row in rows:
        assert [row["topic"], row["key"], row["headers"][0]["key"], row["headers"][0]["value"]] == [NAME] * 4


def every_error() -> list[type[KolumnError]]:
    for module in pkgutil.walk_packages(kolumn.__path__, "kolumn."):
        if not module.name.startswith(("kolumn.spark_plugin", "kolumn.kernels")):
            importlib.import_module(module.name)
    found = [KolumnError]
    for one in found:
        found += one.__subclasses__()
    return found


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
