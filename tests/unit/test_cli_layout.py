"""Layout of the command line's output: tables, usage lines and progress, on terminals of some width and elsewhere."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app, ending
from kolumn.cli.ending import in_shell_words
from kolumn.cli.tables import layout

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
TRANSACTIONAL = CORPUS / "transactional" / "txn-open-0"


def on_terminal(columns: int, *args: object) -> list[str]:
    """Lines that a command prints on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, args)]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                printed += (piece := os.read(ours, 65536))
            except OSError:
                break
            if not piece:
                break
    os.close(ours)
    assert process.returncode == 0
    return printed.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").split("\r\n")


def test_a_table_is_as_wide_as_it_has_to_be() -> None:
    rows = [["orders", 3, "x" * 400], ["漢字", None, ""]]
    assert layout("title", ["topic", "n", "reason"], rows, None, False) == ["title", "topic   n  reason", f"orders  3  {'x' * 400}", "漢字"]


def test_a_table_that_does_not_fit_becomes_blocks() -> None:
    rows = [["orders", 3, "r" * 70], ["payments", None, "b"]]
    assert layout("", ["topic", "n", "reason"], rows, 79, True) == [
        "topic   orders", "n       3", f"reason  {'r' * 70}", "", "topic   payments", "reason  b",
    ]  # fmt: skip
    # Columns are separated by two blanks: 8 + 2 + 1 + 2 + 70.
    assert layout("", ["topic", "n", "reason"], rows, 83, True)[0].endswith("reason\x1b[0m")
    assert layout("", ["topic", "n", "reason"], rows, 82, True)[0] == "topic   orders"


def test_sentences_go_on_below_and_names_do_not() -> None:
    reason = "crc: expected the stored checksum 0x01, found 0x02"
    assert layout("", ["segment", "reason"], [[f"{'s' * 50} -x", reason]], 40, False) == [
        f"segment  {'s' * 50} -x", "reason   crc: expected the stored", "         checksum 0x01, found 0x02",
    ]  # fmt: skip
    assert layout("", ["segment", "reason"], [["s", reason]], None, False)[1] == f"s        {reason}"


def test_what_a_name_may_hold_moves_no_cursor_and_has_a_form() -> None:
    lines = layout("", ["topic"], [["\x1b[2Jgone"], ["bad-\udcff"], ["[bold]"]], None, False)
    assert lines == ["topic", r"\x1b[2Jgone", r"bad-\xff", "[bold]"]


def test_stats_and_inspect_fit_eighty_columns() -> None:
    lines = on_terminal(80, "stats", TRANSACTIONAL)
    assert "magic           v2: " in "\n".join(lines)
    assert max(map(len, lines)) <= 80
    lines = on_terminal(80, "inspect", CORPUS / "transactional")
    assert max(map(len, lines)) <= 80
    (title,) = [line for line in lines if line.startswith("txn-open-0/00000000000000000000.log, magic 2, ")]
    assert lines[lines.index(title) + 1].split()[:4] == ["position", "size", "offsets", "count"]
    wide = on_terminal(200, "inspect", TRANSACTIONAL)
    assert wide[0].startswith("segment ")
    assert len(wide) == kolumn.batches(TRANSACTIONAL).num_rows + 2


def test_options_in_messages_of_the_library() -> None:
    names = ["errors", "drop_transactions", "max_ratio", "topic", "partition"]
    for text, said in {
        "Read with errors='skip' to": "Read with --errors skip to",
        'topic="a b" is': "--topic 'a b' is",
        "With drop_transactions=True the": "With --drop-transactions the",
        "max_ratio=-1.5: expected": "--max-ratio -1.5: expected",
        "Raise max_batch_bytes or max_ratio if": "Raise max_batch_bytes or --max-ratio if",
        "lake/topic=orders/partition=3/a.parquet is there": "lake/topic=orders/partition=3/a.parquet is there",
        "topic=orders/partition=3/a.parquet is there": "topic=orders/partition=3/a.parquet is there",
        "/data/max_ratio/x.log: errors": "/data/max_ratio/x.log: errors",
    }.items():
        assert in_shell_words(text, names) == said
    assert in_shell_words("format='csv': expected", ["to", "source_format"]) == "--to csv: expected"


def test_help_and_usage() -> None:
    for command, usage in {
        "cat": "cat [OPTIONS] SOURCE...",
        "space": "space [OPTIONS] [SOURCE...]",
        "doctor": "doctor [OPTIONS]",
    }.items():
        out = CliRunner().invoke(app, [command, "-h"])
        assert out.exit_code == 0
        assert any(line.rstrip().endswith(usage) for line in out.stdout.splitlines()), command


def test_limits_have_a_letter() -> None:
    for command in ("cat", "inspect"):
        out = CliRunner().invoke(app, [command, "--json", "-n", "3", str(TRANSACTIONAL)])
        assert (out.exit_code, len(out.stdout.splitlines())) == (0, 3)


def test_compaction_says_what_it_left_as_it_is(tmp_path: Path) -> None:
    source = CORPUS / "compacted" / "compact-none-0" / "00000000000000000000.log"
    (tmp_path / "compact-none-0").mkdir()
    (tmp_path / "compact-none-0" / source.name).write_bytes(source.read_bytes())
    out = CliRunner().invoke(app, ["compact", str(tmp_path / "compact-none-0"), str(tmp_path / "out")])
    assert (out.exit_code, out.stderr) == (0, "1 active segment copied as it is; --include-active compacts it\n")
    out = CliRunner().invoke(app, ["compact", "--include-active", str(tmp_path / "compact-none-0"), str(tmp_path / "all")])
    assert " records stay, " in out.stderr
    assert "copied" not in out.stderr


def test_one_is_no_plural(tmp_path: Path) -> None:
    source = CORPUS / "compacted" / "compact-none-0" / "00000000000000000000.log"
    out = CliRunner().invoke(app, ["to-parquet", str(source), str(tmp_path / "lake")])
    assert " records in 1 file below " in out.stderr
    out = CliRunner().invoke(app, ["convert", str(source), str(tmp_path / "one.log")])
    assert out.stderr.endswith(", 1 segment\n")


@pytest.mark.parametrize("total", [100, None])
def test_a_bar_comes_after_some_patience(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], total: int | None) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with ending.progress("soon done", total) as advance:
        advance(50)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(ending, "PATIENCE_S", 0.0)
    printed, deadline = "", time.monotonic() + 60
    with ending.progress("decoding", total) as advance:
        advance(50)
        while "decoding" not in printed:
            assert time.monotonic() < deadline
            printed += capsys.readouterr().err
            time.sleep(0.01)


def test_no_bar_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    monkeypatch.setattr(ending, "PATIENCE_S", 0.0)
    with ending.progress("decoding", 100) as advance:
        advance(50)
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_text_on_a_terminal_and_json_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOLUMN_OUTPUT")
    segment = str(CORPUS / "transactional" / "txn-open-0")
    for command in ("verify", "inspect", "cat", "stats", "space"):
        given = [command, *(["-n", "2"] if command in ("inspect", "cat") else []), segment]
        piped = CliRunner().invoke(app, given).stdout
        assert all(isinstance(json.loads(line), dict) for line in piped.splitlines()), command
        assert piped.count("\n") >= 1
        text = CliRunner().invoke(app, [*given, "--text"]).stdout
        assert text[:1] not in ("{", ""), command
        assert CliRunner().invoke(app, given, env={"KOLUMN_OUTPUT": "text"}).stdout == text
        assert CliRunner().invoke(app, [*given, "--json"], env={"KOLUMN_OUTPUT": "text"}).stdout == piped
    assert on_terminal(300, "stats", segment)[0].startswith("topic")
    out = CliRunner().invoke(app, ["stats", segment], env={"KOLUMN_OUTPUT": "yaml"})
    assert (out.exit_code, out.stderr) == (2, "kolumn: KOLUMN_OUTPUT='yaml': expected text or json\n")
