"""How commands end: exit codes, outputs that cannot be written, names that are not UTF-8, targets that are not allowed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kolumn
from kit.command_line import run
from kolumn.cli.ending import exit_code_of
from kolumn.core.errors import ArgumentError
from kolumn.tools.parquet import write_parquet

TOPIC = Path(__file__).resolve().parent.parent / "data" / "corpus" / "upgraded" / "upgraded-gzip-0"
NAME = os.fsdecode(b"bad-\xfftopic-0")
NOTICED = "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGINT, signal.default_int_handler)"
"""Signals that processes ignore from their start under nohup or in the background of a shell, where tests may run."""
PRINTING = [
    ("verify", TOPIC), ("inspect", TOPIC), ("cat", TOPIC), ("cat", "--json", "--limit", "1", TOPIC), ("stats", TOPIC), ("space",),
    ("columns",), ("doctor",), ("--help",), ("--version",),
]  # fmt: skip


def in_shell(shell: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A command in a new process, to which a shell does something."""
    command = ["sh", "-c", f'"$@" {shell}', "sh", sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A topic directory whose name is not UTF-8."""
    folder = tmp_path / NAME
    shutil.copytree(TOPIC, folder)
    return folder


@pytest.mark.parametrize("args", PRINTING, ids=lambda args: " ".join(str(one) for one in args[:2] if one != TOPIC))
def test_output_that_cannot_be_written(args: tuple[object, ...]) -> None:
    out = run(*args, stdout="/dev/full")
    assert (out.returncode, out.stderr) == (3, "kolumn: output cannot be written: No space left on device\n")


def test_outputs_that_are_closed_or_full(tmp_path: Path) -> None:
    out = in_shell(">&-", "verify", TOPIC)
    assert (out.returncode, out.stderr) == (3, "kolumn: output cannot be written: Bad file descriptor\n")
    # It does not matter where nothing is printed.
    assert in_shell(">&- <&-", "to-parquet", TOPIC, tmp_path / "lake").returncode == 0
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in (tmp_path / "lake").rglob("*.parquet")) == 1000
    # Damage, and an output that cannot be written.
    data = bytearray((TOPIC / "00000000000000000000.log").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "a.log").write_bytes(data)
    assert (run("verify", tmp_path / "a.log").returncode, in_shell("> /dev/full", "verify", tmp_path / "a.log").returncode) == (1, 3)
    # A reader that has enough.
    out = in_shell("| head -n 1; echo done", "cat", TOPIC)
    assert (out.stdout.count("\n"), out.stderr) == (2, "")


@pytest.mark.parametrize("name", ["verify", "inspect", "cat", "stats", "space"])
@pytest.mark.parametrize("form", [pytest.param((), marks=pytest.mark.slow), ("--json",)], ids=["text", "json"])
def test_names_that_are_no_text(odd: Path, name: str, form: tuple[str, ...]) -> None:
    out = run(name, *form, odd)
    assert (out.returncode, out.stderr) == (0, "")
    if form:
        assert [json.loads(line) for line in out.stdout.splitlines()]
    if name in ("inspect", "cat", "stats"):
        assert r"bad-\xfftopic" in out.stdout.replace(r"\\", "\\")


@pytest.mark.parametrize(
    ("name", "made"),
    [
        (("to-parquet",), "topic=bad-%FFtopic/partition=0/00000000000000000000.parquet"),
        (("convert", "--json"), f"{NAME}/00000000000000000000.log"),
        (("compact",), f"{NAME}/00000000000000000000.log"),
        (("apply-retention", "--retention-ms", "9999999999999"), f"{NAME}/00000000000000000000.log"),
    ],
)
def test_names_that_are_no_text_are_written(odd: Path, tmp_path: Path, name: tuple[str, ...], made: str) -> None:
    out = run(*name, odd, "-o", tmp_path / "out")
    assert (out.returncode, "Traceback" in out.stderr) == (0, False)
    assert (tmp_path / "out" / made).is_file()
    if "--json" in name:
        assert [Path(path) for path in json.loads(out.stdout)["segments"]] == [tmp_path / "out" / made]


def test_the_library_reads_names_that_are_no_text(odd: Path) -> None:
    table = kolumn.read(odd, columns=["topic", "segment", "offset"])
    assert set(table["topic"].to_pylist()) == {r"bad-\xfftopic"}
    assert table["segment"][0].as_py().endswith(r"/bad-\xfftopic-0/00000000000000000000.log")
    assert kolumn.verify(odd).ok
    out = run("verify", odd / NAME)
    assert (out.returncode, "Traceback" in out.stderr) == (2, False)


@pytest.mark.parametrize("name", [("to-parquet",), ("convert",), ("compact",), ("apply-retention", "--retention-ms", "0")])
def test_nothing_goes_into_a_data_folder(tmp_path: Path, name: tuple[str, ...]) -> None:
    """Most likely the target was forgotten, so that the last source is used as the target."""
    for one in ("orders-0", "orders-1"):
        shutil.copytree(TOPIC, tmp_path / one)
    before = sorted(tmp_path.rglob("*"))
    for last in (tmp_path / "orders-1", *([tmp_path] if name == ("to-parquet",) else [])):
        out = run(*name, tmp_path / "orders-0", last)
        assert (out.returncode, f"{last} contains Kafka segments" in out.stderr) == (2, True)
    assert sorted(tmp_path.rglob("*")) == before


def test_parquet_and_urls() -> None:
    with pytest.raises(ArgumentError, match=r"s3://lake: .*kolumn\.spark_plugin\.export"):
        list(write_parquet([], "s3://lake", None, 1, "zstd", False))


def test_output_option_needs_no_second_argument(tmp_path: Path) -> None:
    assert (run("convert", TOPIC, "--output", tmp_path / "out").returncode, run("to-parquet", TOPIC).returncode) == (0, 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals(number: signal.Signals, code: int) -> None:
    """A signal arrives while the log is read; `tests/faults` tests signals while files are written."""
    script = (
        "import kolumn.cli.inspecting, kolumn, signal, sys, time\n"
        f"{NOTICED}\n"
        "kolumn.verify = lambda *a, **k: (print('reading', flush=True), time.sleep(60))\n"
        f"from kolumn.cli import main; sys.argv = ['kolumn', 'verify', {str(TOPIC)!r}]; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "reading\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in said) == (code, False)


READING = f"""
import kolumn, kolumn.cli, kolumn.decode.pipeline, os, signal, sys, time
{NOTICED}
decode_chunk = kolumn.decode.pipeline.decode_chunk
def slow(*arguments, **named):
    # In one call: threads must not mix their lines.
    os.write(2, b"reading\\n")
    time.sleep(0.3)
    return decode_chunk(*arguments, **named)
path = sys.argv[1]
# What threads import lazily is imported before: Python forgets an interrupt, and exits with 1, if a thread executes text after it.
warm = kolumn.read(path, threads=1)
kolumn.decode.pipeline.decode_chunk = slow
"""
CALLS = {
    "read": "kolumn.read(path, chunk_bytes=100, threads=1)",
    "read by threads": "kolumn.read(path, chunk_bytes=100, threads=3)",
    "scan by threads": "[None for _ in kolumn.scan(path, chunk_bytes=100, threads=3)]",
    "verify": "kolumn.verify(path, chunk_bytes=100, threads=2)",
    "cat": "sys.argv = ['kolumn', 'cat', path]; kolumn.cli.main()",
    "stats": "sys.argv = ['kolumn', 'stats', path]; kolumn.cli.main()",
    "verify on the command line": "sys.argv = ['kolumn', 'verify', path]; kolumn.cli.main()",
}


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("call", CALLS)
def test_signals_while_chunks_are_decoded(call: str, number: signal.Signals) -> None:
    """The API raises Python's own interrupt; commands print one line and return an exit code. Nothing hangs, with or without threads."""
    process = subprocess.Popen(
        [sys.executable, "-c", READING + CALLS[call], str(TOPIC)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr.readline() == "reading\n"
        process.send_signal(number)
        said = process.stderr.read()
        code = process.wait(60)
    if "cli" in CALLS[call]:
        assert code == 128 + number
        assert "Traceback" not in said
    else:
        # Arrow's reader, which calls the generator, may wrap the interrupt in an error of its own.
        assert code == -number or (code == 1 and "scan" in call)
        assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT and code == -number) or "scan" in call
        assert "Error" in said or "Interrupt" in said or "Cancelled" in said or number == signal.SIGTERM


def test_nohup_is_respected() -> None:
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from kolumn.cli.ending import prepare_process; prepare_process(); print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("kind", [RuntimeError, RecursionError, type("PanicException", (BaseException,), {})])
def test_an_error_that_nobody_expected_is_no_damage(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise kind("in \x1b[31m a name")

    monkeypatch.delenv("KOLUMN_DEBUG", raising=False)
    assert exit_code_of(fail) == 3
    said = capsys.readouterr().err
    assert said.startswith(rf"kolumn: internal error: {kind.__name__}: in \x1b[31m a name. KOLUMN_DEBUG=1 prints")
    assert said.count("\n") == 1
    monkeypatch.setenv("KOLUMN_DEBUG", "1")
    with pytest.raises(kind):
        exit_code_of(fail)
