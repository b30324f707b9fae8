"""Layout of what commands print, on terminals of some width and elsewhere; `kolumn PATH`; completion in shells."""

import fcntl
import json
import os
import pty
import re
import runpy
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import typer
from typer.testing import CliRunner

import kolumn
from kit.corpus import HERE as CORPUS
from kit.redpanda import put_on_node, swapped
from kolumn.cli import app, ending
from kolumn.cli.ending import in_shell_words
from kolumn.cli.hints import HINTS
from kolumn.cli.tables import layout
from kolumn.core.amounts import age, size
from kolumn.tools.statistics import overview

MANY = CORPUS / "v2-many-segments" / "many-segments-0"
TRANSACTIONAL = CORPUS / "transactional" / "txn-open-0"


def invoked(*args: object, **environment: str) -> Any:
    return CliRunner().invoke(app, [*map(str, args)], env=environment, prog_name="kolumn")


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


def test_tables() -> None:
    """They are as wide as they have to be. Where they do not fit, sentences go below their rows. Names are not folded."""
    rows = [["orders", 3, "x" * 400], ["漢字", None, ""]]
    assert layout("title", ["topic", "n", "reason"], rows, None, False) == ["title", "topic   n  reason", f"orders  3  {'x' * 400}", "漢字"]
    rows = [["orders", 3, "r" * 70], ["payments", None, "b"]]
    assert layout("", ["topic", "n", "reason"], rows, 79, False) == [
        "topic     n", "orders    3", f"    {'r' * 70}", "payments", "    b",
    ]  # fmt: skip
    # Columns are separated by two blanks: 8 + 2 + 1 + 2 + 70.
    assert layout("", ["topic", "n", "reason"], rows, 83, True)[0].endswith("reason\x1b[0m")
    assert layout("", ["topic", "n", "reason"], rows, 82, True)[0].endswith("n\x1b[0m")
    reason = "crc: expected the stored checksum 0x01, found 0x02"
    assert layout("", ["segment", "reason"], [[f"{'s' * 50} -x", reason]], 40, False) == [
        f"segment  {'s' * 50} -x", "reason   crc: expected the stored", "         checksum 0x01, found 0x02",
    ]  # fmt: skip
    assert layout("", ["segment", "reason"], [["s", reason]], None, False)[1] == f"s        {reason}"
    lines = layout("", ["topic"], [["\x1b[2Jgone"], ["bad-\udcff"], ["[bold]"]], None, False)
    assert lines == ["topic", r"\x1b[2Jgone", r"bad-\xff", "[bold]"]


def test_a_table_that_is_too_wide_says_above_it_what_is_equal_in_all_rows() -> None:
    names = ["topic", "partition", "segment", "state", "size", "note"]
    rows = [["orders", n, f"/mnt/disk/{name}/0.log", "open", size, None] for n, name, size in ((0, "a", "1.3 MB"), (1, "b", "45 B"))]
    assert layout("Logs", names, rows, 52, False) == [
        "Logs: topic orders, segment in /mnt/disk, state open",
        "partition  segment    size",
        "        0  a/0.log  1.3 MB",
        "        1  b/0.log    45 B",
    ]
    assert layout("", names, rows, None, False)[0].split() == names
    assert layout("", names, rows[:1], 30, False)[:2] == ["topic      orders", "partition  0"], "one row is equal to all others"
    # What says what a row is about is in each of several tables.
    names, rows = ["topic", "first", "second", "third"], [[name, *(name * 20 for _ in range(3))] for name in "ab"]
    lines = layout("", names, rows, 50, False)
    assert [line.split() for line in lines] == [
        ["topic", "first", "second"], ["a", "a" * 20, "a" * 20], ["b", "b" * 20, "b" * 20], [], ["topic", "third"],
        ["a", "a" * 20], ["b", "b" * 20],
    ]  # fmt: skip
    assert max(map(len, lines)) <= 50
    more = layout("", [*names, "fourth", "fifth"], [[*row, row[1], row[1]] for row in rows], 50, False)
    assert more[:2] == ["topic   a", f"first   {'a' * 20}"], "three tables of two rows are a block for each row"
    assert layout("", names, rows, 26, False)[0] == "topic   a", "a column that is too wide leaves a line for each cell"
    long = [[name * 20, name * 20, 1 + i, 1_000_000_007 * (i + 1)] for i, name in enumerate("ab")]
    heads = [line.split() for line in layout("", ["path", "topic", "n", "size"], long, 50, False)]
    assert [heads[0], heads[4]] == [["path", "topic", "n"], ["path", "size"]], "one column says it where two have no room"
    assert layout("", names[1:], [row[1:] for row in rows], 50, False)[0] == f"first   {'a' * 20}", "nothing says what a row is about"


def test_sizes_and_ages_for_people() -> None:
    assert list(map(size, (0, 45, 999, 1000, 1_321_701, 999_960, 5e15))) == ["0 B", "45 B", "999 B", "1.0 kB", "1.3 MB", "1.0 MB", "5.0 PB"]
    spans = {
        7: "7 ms",
        1500: "1.5 s",
        10_800_000: "3 h",
        777_600_000: "9 days",
        86_400_000: "1 day",
        1_193_958_301_794: "37.8 years",
        -5000: "-5 s",
    }
    assert {span: age(span) for span in spans} == spans


@pytest.mark.parametrize("width", [80, None])
def test_every_time_has_its_zone(width: int | None, tmp_path: Path) -> None:
    """One notation in all commands, in text and JSON."""
    (tmp_path / "disk").mkdir()
    for name in ("transactional/txn-open-0", "internal/__consumer_offsets-0", "internal/__transaction_state-0"):
        shutil.copytree(CORPUS / name, tmp_path / "disk" / name.rpartition("/")[2])
    disk, topic = tmp_path / "disk", tmp_path / "disk" / "txn-open-0"
    commands = [
        ["overview", disk], ["stats", disk], ["groups", disk], ["transactions", disk], ["audit", disk], ["cat", "-n", 3, topic],
        ["history", "--key", "キー-53", topic], ["latest", topic], ["diff", "--records", topic, TRANSACTIONAL.parent / "txn-zstd-0"],
        ["sql", topic, 'select * from "txn-open" limit 3'],
    ]  # fmt: skip
    times = 0
    for command in commands:
        for form in ([], ["--json"]):
            given = {} if width is None or form else {"KOLUMN_OUTPUT": "text", "COLUMNS": str(width)}
            printed = invoked(*command, *form, **given).stdout
            assert printed, command
            found = re.findall(r"\d{4}-\d\d-\d\d[T ]\d\d:\S*", printed)
            assert [one for one in found if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\b", one)] == [], (command, form)
            times += len(found)
    assert times > 100


def test_what_fits_eighty_columns() -> None:
    lines = on_terminal(80, "stats", TRANSACTIONAL)
    assert "magic           v2" in lines
    assert max(map(len, lines)) <= 80
    lines = on_terminal(80, "stats", TRANSACTIONAL.parent)
    heads = [line.split()[0] for line in lines if line.startswith("topic ")]
    assert (max(map(len, lines)) <= 80, lines[0], heads) == (True, "partition 0, damaged 0, magic v2", ["topic"] * 4)
    lines = on_terminal(80, "inspect", CORPUS / "transactional")
    assert max(map(len, lines)) <= 80
    (title,) = [line for line in lines if line.startswith("txn-open-0/00000000000000000000.log, magic 2, ")]
    assert lines[lines.index(title) + 1].split()[:4] == ["position", "size", "offsets", "count"]
    wide = on_terminal(200, "inspect", TRANSACTIONAL)
    assert (wide[0][:8], len(wide)) == ("segment ", kolumn.batches(TRANSACTIONAL).num_rows + 2)
    lines = on_terminal(80, CORPUS / "v2*")
    table = lines[lines.index("") + 1 : [line[:5] for line in lines].index("Next ")]
    assert max(map(len, table)) <= 80
    assert any(line.startswith("java-zstd") for line in table)
    # Codecs are not given up for the time of day.
    lines = on_terminal(80, CORPUS / "transactional")
    assert lines[lines.index("") + 1].startswith("first 2026-11-20, ")
    assert lines[lines.index("") + 2].split() == ["topic", "records", "size", "codecs", "offsets"]


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
    for command, usage in {"cat": "cat [OPTIONS] SOURCE...", "space": "space [OPTIONS] [SOURCE...]", "doctor": "doctor [OPTIONS]"}.items():
        out = invoked(command, "-h")
        assert (out.exit_code, [line for line in out.stdout.splitlines() if line.rstrip().endswith(usage)] != []) == (0, True), command
    for command in ("cat", "inspect"):
        out = invoked(command, "--json", "-n", 3, TRANSACTIONAL)
        assert (out.exit_code, len(out.stdout.splitlines())) == (0, 3)
    out = invoked("/no/such/place")
    assert (out.exit_code, out.stderr) == (2, "kolumn: /no/such/place: no such file or directory\n")


def test_help_fits_eighty_columns_and_cuts_no_name() -> None:
    group: Any = typer.main.get_command(app)
    for name, command in [("", group), *group.commands.items()]:
        out = invoked(*name.split(), "-h", COLUMNS="80")
        lines = out.stdout.splitlines()
        assert (out.exit_code, max(map(len, lines)) <= 80, "`" in out.stdout) == (0, True, False), name
        words = set(re.findall(r"--[a-z-]+", out.stdout))
        named = {option for param in command.params for option in [*param.opts, *param.secondary_opts] if option.startswith("--")}
        assert named <= words, name
    assert {f"  {name}" for name, command in group.commands.items() if not command.hidden} <= set(
        re.findall(r"^  [a-z-]+", invoked("-h").stdout, re.MULTILINE)
    )
    lines = invoked("cat", "-h", COLUMNS="80").stdout.splitlines()
    titles = ["Arguments", "Options", "Output", "Select records", "Damage and copies", "Typed values and keys", "Source and limits"]
    assert [line for line in lines if line[:1].strip() and not line.startswith("Usage")] == titles
    assert [line.split("  ")[1] for line in lines if "--start-timestamp" in line] == ["--since, --start-timestamp"]
    assert len(lines) < 140


def test_words_that_are_no_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word, said in {
        "verfy": "no such command, and no such file or directory: 'verfy'. Did you mean 'verify'?",
        "nope-dir": "no such command, and no such file or directory: 'nope-dir'. `kolumn -h` lists the commands",
        "nope\x1b": r"no such command, and no such file or directory: 'nope\x1b'. `kolumn -h` lists the commands",
        "export": "no such command 'export'. For Parquet files: kolumn to-parquet SOURCE TARGET",
        "DROP": "no such command 'DROP'. Without some keys: kolumn erase --keys FILE SOURCE TARGET",
    }.items():
        out = invoked(word, "x")
        assert (out.exit_code, out.stdout, out.stderr) == (2, "", f"kolumn: {said}\n")
    (tmp_path / "export").mkdir()
    assert "export: no segment (*.log) in this directory" in invoked("export").stderr
    for words, missing in ((["export"], "query"), (["select 1"], "source"), ([], "source")):
        out = invoked("sql", *words)
        assert (out.exit_code, out.stderr.startswith(f"kolumn: the {missing} is missing: kolumn sql ")) == (2, True)


def test_hints_name_what_is_there() -> None:
    group: Any = typer.main.get_command(app)
    words = [word for words in HINTS.values() for word in words.split()]
    assert len(words) == len(set(words))
    assert not {*words} & {name for name, command in group.commands.items() if not command.hidden}
    for hint in HINTS:
        for name, *rest in (tail.split() for tail in re.findall(r"kolumn ([a-z-].*?)(?:;|$)", hint)):
            options = {option for one in (group if name.startswith("-") else group.commands[name]).params for option in one.opts}
            assert {word for word in (name, *rest) if word.startswith("-")} <= {*options, "-h"}, hint


def test_without_a_word_the_help_is_printed() -> None:
    out, helped = invoked(), invoked("-h")
    assert (out.exit_code, out.stdout, out.stderr) == (2, helped.stdout, "")
    command = subprocess.run([sys.executable, "-m", "kolumn"], capture_output=True, text=True, check=False)
    assert (command.returncode, command.stdout.splitlines()[2:4]) == (2, helped.stdout.splitlines()[2:4])


def test_python_runs_the_package() -> None:
    out = subprocess.run([sys.executable, "-m", "kolumn", "--version"], capture_output=True, text=True, check=True)
    assert out.stdout == f"kolumn {kolumn.__version__}\n"


def test_compaction_says_what_it_left_as_it_is_and_one_is_no_plural(tmp_path: Path) -> None:
    source, folder = CORPUS / "compacted" / "compact-none-0" / "00000000000000000000.log", tmp_path / "compact-none-0"
    folder.mkdir()
    shutil.copy(source, folder)
    out = invoked("compact", folder, tmp_path / "out")
    assert (out.exit_code, out.stderr) == (0, "1 active segment copied as it is; --include-active compacts it\n")
    data = bytearray(source.read_bytes())
    data[-1] ^= 1
    (folder / source.name).write_bytes(data)
    out = invoked("compact", folder, tmp_path / "damaged")
    assert (out.exit_code, out.stderr.splitlines()[1][:22]) == (1, "copied with its damage")
    assert json.loads(invoked("compact", "--json", folder, tmp_path / "json").stdout)["copiedDamage"] == 1
    shutil.copy(source, folder)
    said = invoked("compact", "--include-active", folder, tmp_path / "all").stderr
    assert (" records stay, " in said, "copied" in said) == (True, False)
    assert " records in 1 file below " in invoked("to-parquet", source, tmp_path / "lake").stderr
    assert invoked("convert", source, tmp_path / "one.log").stderr.endswith(", 1 segment\n")


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
    for command in ("verify", "inspect", "cat", "stats", "space"):
        given = [command, *(["-n", "2"] if command in ("inspect", "cat") else []), TRANSACTIONAL]
        piped, text = invoked(*given).stdout, invoked(*given, "--text").stdout
        assert all(isinstance(json.loads(line), dict) for line in piped.splitlines()), command
        assert (piped.count("\n") >= 1, text[:1] in ("{", "")) == (True, False), command
        assert invoked(*given, KOLUMN_OUTPUT="text").stdout == text
        assert invoked(*given, "--json", KOLUMN_OUTPUT="text").stdout == piped
    assert on_terminal(300, "stats", TRANSACTIONAL)[0].startswith("topic")
    out = invoked("stats", TRANSACTIONAL, KOLUMN_OUTPUT="yaml")
    assert (out.exit_code, out.stderr) == (2, "kolumn: KOLUMN_OUTPUT='yaml': expected text or json\n")


@pytest.mark.sample
@pytest.mark.parametrize("folder", sorted(path.name for path in CORPUS.iterdir() if path.is_dir()))
def test_headers_agree_with_records(folder: str) -> None:
    """Where headers count records, the counts are those of a read; estimates are at least as large."""
    columns = ["topic", "partition", "offset"]
    rows = kolumn.read(CORPUS / folder, columns=columns, errors="skip")
    found = overview(CORPUS / folder)
    for one in found.partitions:
        own = rows.filter((pc.field("topic") == one.topic) & (pc.field("partition") == one.partition))["offset"].to_pylist()
        assert one.records >= len(own) if one.is_estimate else one.records == len(own)
        if own and one.first_offset is not None:
            assert one.last_offset is not None
            assert one.first_offset <= min(own) <= max(own) <= one.last_offset


def test_one_screen_names_what_is_there() -> None:
    out = invoked(MANY)
    lines = out.stdout.splitlines()
    assert (out.exit_code, invoked("overview", MANY).stdout) == (0, out.stdout)
    assert lines[0].startswith(f"{MANY}: 1 topic, 1 partition, {len(list(MANY.glob('*.log')))} segments, ")
    assert lines[0].endswith(", 900 records")
    assert lines[1] == "No damage in the headers; checksums and records are not checked here."
    assert [line.split("#")[0].split() for line in lines if line.startswith("  kolumn verify")] == [["kolumn", "verify", str(MANY)]]


_TYPED = {"cat --value-format registry", "sql --errors skip --value-format registry", "schemas"}
_PARQUET = "to-parquet --errors skip"
_NEXT = {
    "disk": _TYPED | {f"{_PARQUET} --value-format registry --isolation-level read_committed"},
    "disk copy": _TYPED | {"recover", "report --replicas merge"},
    "copy/clicks-0": {_PARQUET},
    "disk/orders-0": (_TYPED - {"schemas"}) | {f"{_PARQUET} --value-format registry"},
    "node": {"verify", "cat", _PARQUET},
    "internal": {"groups"},
    "transactional": {f"{_PARQUET} --isolation-level read_committed"},
    "empty-0": {"verify"},
    "text-0": {"verify"},
}
"""Sources in a folder, and how commands begin that an overview of them has to name."""


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disks")
    make = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "dead_broker.py"))["make"]
    make(folder / "disk")
    make(folder / "copy", 0.3)
    put_on_node(folder / "node", "txn-open-0", swapped((TRANSACTIONAL / "00000000000000000000.log").read_bytes()))
    for name in ("internal", "transactional"):
        (folder / name).symlink_to(CORPUS / name)
    for name, data in {"empty-0": b"", "text-0": b"no segment\n"}.items():
        (folder / name).mkdir()
        (folder / name / f"{0:020}.log").write_bytes(data)
    return folder


@pytest.mark.parametrize("sources", _NEXT)
def test_steps_that_the_overview_names_run(sources: str, disks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with exit code 0, or with 1 where damage is, as the line above them says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kolumn.tools.report.html.Chart._finished", lambda _: "")  # drawing takes two seconds
    given = [disks / name for name in sources.split()]
    _, _, steps = invoked(*given).stdout.partition("Next (exit code 1 means that damage was found):\n")
    commands = [line.partition("#")[0].split("kolumn ", 1)[1].strip() for line in steps.splitlines()]
    shown = [command.replace("-n 5 ", "") for command in commands]
    assert {one for one in _NEXT[sources] if not any(command.startswith(one) for command in shown)} == set()
    assert any(command.startswith("recover") for command in shown) == (" " in sources)
    codes = [invoked(*shlex.split(command)).exit_code for command in commands]
    is_damaged = sources in ("disk", "disk copy", "copy/clicks-0", "text-0")
    assert (codes[0], set(codes) <= {0, 1}) == (is_damaged, True), dict(zip(commands, codes, strict=True))
    assert is_damaged or not any(codes), dict(zip(commands, codes, strict=True))


def test_overviews_count_copies_once_and_name_what_has_no_batch(disks: Path) -> None:
    alone, both = (invoked(*sources).stdout.splitlines() for sources in ([disks / "disk"], [disks / "disk", disks / "copy"]))
    assert alone[0].rpartition(", ")[2] == both[0].rpartition(", ")[2]
    assert both[2].startswith("Copies: 6 partitions are in several folders, ")
    assert invoked(disks / "empty-0").stdout.splitlines()[1] == "EMPTY: 1 segment has no bytes."
    found = invoked(disks / "text-0")
    assert (found.exit_code, found.stdout.splitlines()[1]) == (1, f"Not a Kafka log segment: text-0/{0:020}.log: text (11 bytes)")


def test_damage_that_headers_show(tmp_path: Path) -> None:
    folder = tmp_path / "many-segments-0"
    shutil.copytree(MANY, folder)
    cut = sorted(folder.glob("*.log"))[1]
    os.truncate(cut, cut.stat().st_size - 10)
    out = invoked(folder)
    words = ("DAMAGED: 1 damaged stretch in the headers", f"many-segments-0/{cut.name} at ", "--errors skip")
    assert (out.exit_code, [one for one in words if one not in out.stdout]) == (1, [])
    found = json.loads(invoked(folder, "--json").stdout)
    assert (found["checked"], [one["segment"] for one in found["damage"]]) == ("headers", [str(cut)])


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "kolumn ver"}, "verify"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "kolumn ver", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "verify"),
        ("bash", {"COMP_WORDS": "kolumn ver", "COMP_CWORD": "1"}, "verify"),
        ("bash", {"COMP_WORDS": "kolumn cat --isolation-level read_c", "COMP_CWORD": "3"}, "read_committed"),
        ("bash", {"COMP_WORDS": "kolumn convert --codec z", "COMP_CWORD": "3"}, "zstd"),
        ("bash", {"COMP_WORDS": "kolumn cat --value-format pro", "COMP_CWORD": "3"}, "protobuf"),
        ("bash", {"COMP_WORDS": "kolumn cat --columns key,offset,timestampM", "COMP_CWORD": "3"}, "key,offset,timestampMs"),
    ],
)
def test_completion(shell: str, words: dict[str, str], found: str) -> None:
    out = invoked(_KOLUMN_COMPLETE=f"complete_{shell}", **words).stdout
    assert out.split() == [found] if shell == "bash" else found in out and "inspect" not in out


IN_SHELLS = {
    "bash": 'COMP_WORDS=(kolumn to-p); COMP_CWORD=1; _kolumn_completion kolumn; echo "${COMPREPLY[@]}"',
    # What zsh's own function would be called with.
    "zsh": '_arguments() { print -r -- "$@" }; words=(kolumn to-p); CURRENT=2; _kolumn_completion',
    "fish": 'complete -C "kolumn to-p"',
}


@pytest.mark.parametrize("shell", IN_SHELLS)
def test_completion_in_the_shell_itself(shell: str, tmp_path: Path) -> None:
    """The script that `--show-completion` prints defines what the shell calls."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    program = f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.argv[0] = \'kolumn\'; from kolumn.cli import main; main()" "$@"\n'
    (tmp_path / "kolumn").write_text(program)
    (tmp_path / "kolumn").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    source = {**environment, "_KOLUMN_COMPLETE": f"source_{shell}"}
    defines = subprocess.run(["kolumn"], env=source, capture_output=True, text=True, check=True).stdout
    # `compdef` is zsh's own, and is there only where its completions are on.
    script = f"compdef() {{ :; }}; {defines}" if shell == "zsh" else defines
    command = [shell, *(["-f"] if shell == "zsh" else []), "-c", f"{script}\n{IN_SHELLS[shell]}"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert re.findall(r"[a-z]+-[a-z]+", out.stdout)[0] == "to-parquet"
