"""The command line: its output, its exit codes, signals, outputs that cannot be written, names that are not UTF-8, refused targets."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kolumn
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.outcome import raises
from kolumn.cli.ending import exit_code_of
from kolumn.core.errors import ArgumentError
from kolumn.cpu_fallback.machine.compile_ahead import GROUPS
from kolumn.tools.parquet import write_parquet

TOPIC = CORPUS / "upgraded" / "upgraded-gzip-0"


def started(*args: object, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a new process, with these variables in its environment, to which a shell does something."""
    command = ["sh", "-c", f'"$@" {shell}', "sh", sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, args)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def damaged(tmp_path):
    source = TOPIC / "00000000000000000000.log"
    data = bytearray(source.read_bytes())
    data[len(data) // 2] ^= 0x40
    path = tmp_path / "damaged-0" / source.name
    path.parent.mkdir()
    path.write_bytes(data)
    return path


def test_help_is_quick_and_needs_no_decoder():
    code = "import sys, kolumn.cli; sys.exit(any(m in sys.modules for m in ('numba', 'pyarrow', 'pyspark')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    out = run("--help")
    names = ("verify", "inspect", "cat", "to-parquet", "convert", "compact", "apply-retention", "space", "schemas", "doctor")
    assert (out.returncode, [name for name in names if name not in out.stdout]) == (0, [])
    assert run("--version").stdout == f"kolumn {kolumn.__version__}\n"


def test_verify(damaged):
    good, bad = run("verify", TOPIC), run("verify", damaged)
    assert (good.returncode, good.stdout[:4]) == (0, "OK: ")
    assert (bad.returncode, "crc" in bad.stdout, "\x1b" in bad.stdout) == (1, True, False)
    found = json.loads(run("verify", "--json", damaged).stdout)
    assert (found["ok"], found["damage"]) == (False, kolumn.verify(damaged).damage.to_pylist())


def test_wrong_arguments(tmp_path):
    for args in (
        ("verify", "/no/such/place"), ("cat", "--columns", "offst", TOPIC), ("cat", "--start-timestamp", "noon", TOPIC), ("cat",),
        ("to-parquet", "--compression", "zip", TOPIC, "target"), ("to-parquet", TOPIC), ("convert", TOPIC),
        ("apply-retention", TOPIC, "out"), ("convert", "--to", "csv", TOPIC, "out"),
    ):  # fmt: skip
        out = run(*args, cwd=tmp_path)
        assert (out.returncode, out.stdout, "Traceback" in out.stderr, out.stderr != "") == (2, "", False, True), args


def test_damage_ends_cat_with_the_message_of_the_library(damaged):
    said = str(raises(kolumn.CorruptBatchError, "errors='skip'", kolumn.read, damaged)).replace("errors='skip'", "--errors skip")
    out = run("cat", damaged)
    assert (out.returncode, out.stderr) == (1, f"kolumn: {said}\n")


def test_inspect_json_is_the_batch_table_and_cat_prints_a_range():
    lines = [json.loads(line) for line in run("inspect", "--json", TOPIC).stdout.splitlines()]
    assert (lines, len(run("inspect", "--limit", 2, TOPIC).stdout.splitlines())) == (kolumn.batches(TOPIC).to_pylist(), 3)
    out = run("cat", "--columns", "offset", "--start-offset", 10, "--end-offset", 13, TOPIC)
    assert out.stdout == "offset=10\noffset=11\noffset=12\n"


def test_isolation_level(tmp_path):
    topic = CORPUS / "transactional" / "txn-open-0"
    committed = kolumn.read(topic, isolation_level="read_committed", columns=["offset"])
    out = run("cat", "--isolation-level", "read_committed", "--columns", "offset", topic)
    assert out.stdout.splitlines() == [f"offset={offset}" for offset in committed["offset"].to_pylist()]
    assert run("to-parquet", "--isolation-level", "read_committed", topic, tmp_path).returncode == 0
    assert sorted(pq.read_table(tmp_path, partitioning=None)["offset"].to_pylist()) == committed["offset"].to_pylist()


def test_stats_and_space():
    (row,) = [json.loads(line) for line in run("stats", "--json", TOPIC).stdout.splitlines()]
    table = kolumn.read(TOPIC)
    assert (row["records"], row["nullValues"], set(row["magic"])) == (table.num_rows, table["value"].null_count, {"0", "1", "2"})
    assert (row["firstOffset"], row["lastOffset"]) == (table["offset"][0].as_py(), table["offset"][-1].as_py())
    assert "upgraded-gzip" in run("stats", TOPIC).stdout
    lines = [line.split() for line in run("space").stdout.splitlines()[2:]]
    assert lines == [["1", "34", "62"], ["3", "102", "96"], ["10", "340", "215"], ["50", "1700", "895"], ["100", "3400", "1745"]]
    rows = [json.loads(line) for line in run("space", "--json", TOPIC).stdout.splitlines()]
    assert [row["format"] for row in rows] == ["as it is", "kafka", "kafka", "kafka", "enriched", "kip98-draft", "v3-compact", "kip87"]
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in TOPIC.glob("*.log"))


def test_to_parquet(damaged, tmp_path):
    out = run("to-parquet", "--include-headers", TOPIC, tmp_path / "whole")
    assert out.returncode == 0, out.stderr
    parquet = [f for f in sorted((tmp_path / "whole").rglob("*")) if f.is_file()]
    assert all(f.parent == tmp_path / "whole" / "topic=upgraded-gzip" / "partition=0" and f.suffix == ".parquet" for f in parquet)
    assert [row for f in parquet for row in pq.ParquetFile(f).read().to_pylist()] == kolumn.read(TOPIC, include_headers=True).to_pylist()
    again = run("to-parquet", TOPIC, tmp_path / "whole")
    assert (again.returncode, f"({len(parquet)} file{'s' * (len(parquet) > 1)} in all): use --overwrite" in again.stderr) == (2, True)
    assert run("to-parquet", "--overwrite", TOPIC, tmp_path / "whole").returncode == 0
    assert run("to-parquet", damaged, tmp_path / "lake").returncode == 1
    assert [f for f in (tmp_path / "lake").rglob("*") if f.is_file()] == [], "nothing is left of a damaged segment"


def test_doctor_and_warmup(tmp_path):
    environment = {"KOLUMN_NATIVE": "1", "KOLUMN_CACHE_DIR": str(tmp_path)}
    found = json.loads(started("doctor", "--json", **environment).stdout)
    cpu, missing = found["cpu"], "reading, small segments, writing, typed values, Avro, Protobuf, JSON"
    assert (cpu["backend"], found["gpu"]["backend"][:9], cpu["gzip"][:5], cpu["zstd"][:7]) == ("can run", "can't run", "ISA-L", "libzstd")
    assert found["packages"]["pyarrow"]
    assert "Kolumn" in found["spark"]["workers' Python"]
    assert cpu["machine code"] == f"not there for {missing}: compiled on first use, or by `kolumn warmup`"
    folder = Path(cpu["machine code cache"])
    assert folder.parent == tmp_path
    folder.mkdir()
    for group in GROUPS:
        (folder / f"{group}.ready").touch(mode=0o644)
    program = "from typer.testing import CliRunner; from kolumn.cli import app\n"
    program += "for words in (['doctor', '--json'], ['warmup'], ['warmup', '--json']): print(CliRunner().invoke(app, words).stdout, end='')"
    command = [sys.executable, "-c", program]
    out = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
    doctor, warmup, as_json = out.splitlines()
    assert json.loads(doctor)["cpu"]["machine code"] == "there"
    assert (warmup.startswith("nothing to do, all "), json.loads(as_json)["folder"]) == (True, str(folder))
    assert "CRC-32C" in run("doctor").stdout


def test_compilation_is_shown_on_a_terminal_alone():
    """On a pseudo-terminal the line and the bar are shown; in a file, neither is written."""
    program = "from kolumn.cli.ending import compiling\nwith compiling('compiling it', 2) as step: step(1); step(1)"
    main, other = os.openpty()
    subprocess.run([sys.executable, "-c", program], stderr=other, check=True)
    os.close(other)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert shown.startswith("kolumn: compiling it")
    assert "2/2" in shown
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_convert_says_what_is_lost(tmp_path):
    done = run("convert", "--magic", "0", TOPIC, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    first, *_, last, others, _ = done.stderr.splitlines()
    assert (first, last) == ("lost: headers: 532", "lost: timestamps: 750")
    assert others.startswith("Not in the source, and this format could not store: ")
    assert "headers" not in others
    assert kolumn.read(tmp_path / "out").num_rows == kolumn.read(TOPIC).num_rows
    out = json.loads(run("convert", "--to", "v3-compact", "--json", TOPIC, tmp_path / "three").stdout)
    assert (out["records"], out["lost"]) == (kolumn.read(TOPIC).num_rows, {})
    assert run("verify", "--format", "v3-compact", tmp_path / "three").returncode == 0


def test_compact_and_clean(tmp_path):
    out = json.loads(run("compact", "--json", "--include-active", CORPUS / "compacted" / "compact-none-0", tmp_path / "out").stdout)
    assert out["retained"] == kolumn.verify(tmp_path / "out").records < out["records"]
    for age in ("0", "0s", "7d"):
        done = run("apply-retention", "--retention-ms", age, "--now", "2100-01-01", TOPIC, tmp_path / f"clean-{age}")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "0 segments stay")


NAME = os.fsdecode(b"bad-\xfftopic-0")
RETAIN = ("apply-retention", "--retention-ms", "9999999999999")
PRINTING = [
    ("verify", TOPIC), ("inspect", TOPIC), ("cat", TOPIC), ("cat", "--json", "--limit", "1", TOPIC), ("stats", TOPIC), ("space",),
    ("columns",), ("doctor",), ("--help",), ("--version",),
]  # fmt: skip


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


def test_outputs_that_are_closed_or_full(damaged: Path, tmp_path: Path) -> None:
    out = started("verify", TOPIC, shell=">&-")
    assert (out.returncode, out.stderr) == (3, "kolumn: output cannot be written: Bad file descriptor\n")
    # It does not matter where nothing is printed.
    assert started("to-parquet", TOPIC, tmp_path / "lake", shell=">&- <&-").returncode == 0
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in (tmp_path / "lake").rglob("*.parquet")) == 1000
    # Damage, and an output that cannot be written.
    assert run("verify", damaged, stdout="/dev/full").returncode == 3


@pytest.mark.parametrize(
    ("name", "made"),
    [
        (("to-parquet",), "topic=bad-%FFtopic/partition=0/00000000000000000000.parquet"),
        *((name, f"{NAME}/00000000000000000000.log") for name in (("convert", "--json"), ("compact",), RETAIN)),
    ],
)
def test_names_that_are_no_text_are_written(odd: Path, tmp_path: Path, name: tuple[str, ...], made: str) -> None:
    """`test_hostile_names.py` asks how commands print them."""
    out = run(*name, odd, "-o", tmp_path / "out")
    assert (out.returncode, "Traceback" in out.stderr, (tmp_path / "out" / made).is_file()) == (0, False, True)
    if "--json" in name:
        assert [Path(path) for path in json.loads(out.stdout)["segments"]] == [tmp_path / "out" / made]


def test_the_library_reads_names_that_are_no_text(odd: Path) -> None:
    table = kolumn.read(odd, columns=["topic", "segment", "offset"])
    assert set(table["topic"].to_pylist()) == {r"bad-\xfftopic"}
    assert table["segment"][0].as_py().endswith(r"/bad-\xfftopic-0/00000000000000000000.log")
    assert kolumn.verify(odd).ok
    out = run("verify", odd / NAME)
    assert (out.returncode, "Traceback" in out.stderr) == (2, False)


@pytest.mark.parametrize("name", [("to-parquet",), ("convert",), ("compact",), RETAIN])
def test_nothing_goes_into_a_data_folder(tmp_path: Path, name: tuple[str, ...]) -> None:
    """Most likely the target was forgotten, so that the last source is used as the target."""
    for one in ("orders-0", "orders-1"):
        shutil.copytree(TOPIC, tmp_path / one)
    before = sorted(tmp_path.rglob("*"))
    for last in (tmp_path / "orders-1", *([tmp_path] if name == ("to-parquet",) else [])):
        out = run(*name, tmp_path / "orders-0", last)
        assert (out.returncode, f"{last} contains Kafka segments" in out.stderr) == (2, True)
    assert sorted(tmp_path.rglob("*")) == before


def test_targets(tmp_path: Path) -> None:
    assert run("convert", TOPIC, "--output", tmp_path / "out").returncode == 0
    with pytest.raises(ArgumentError, match=r"s3://lake: .*kolumn\.append writes tables"):
        list(write_parquet([], "s3://lake", 1, "zstd", False))


def test_what_the_library_logs_has_the_names_of_options(tmp_path: Path) -> None:
    for name in "ab":
        kolumn.write(pa.table({"value": [b'{"%s": 1}' % name.encode()]}), tmp_path / f"{name}-0")
    out = run("cat", "--value-format", "json", "--value-columns", "a", tmp_path)
    assert (out.returncode, out.stderr) == (0, "b: --value-columns: unknown field 'a'; fields are b; its values stay bytes\n")


READING = """
import kolumn, kolumn.cli, kolumn.decode.pipeline, os, signal, sys, time
# Ignored from the start under nohup or in the background of a shell, where tests may run.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
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


def signalled(call: str, number: signal.Signals) -> tuple[int, str]:
    """Exit code and standard error of a process that gets a signal while it decodes; `tests/faults` has those that write."""
    command = [sys.executable, "-c", READING + CALLS[call], str(TOPIC)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "reading\n"
        process.send_signal(number)
        said = process.stderr.read()
        return process.wait(60), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_a_command(number: signal.Signals) -> None:
    code, said = signalled("verify on the command line", number)
    assert (code, "Traceback" in said) == (128 + number, False)


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("call", [call for call in CALLS if call != "verify on the command line"])
def test_signals_while_chunks_are_decoded(call: str, number: signal.Signals) -> None:
    """The API raises Python's own interrupt; commands print one line and return an exit code. Nothing hangs, with or without threads."""
    code, said = signalled(call, number)
    if "cli" in CALLS[call]:
        assert (code, "Traceback" in said) == (128 + number, False)
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
    raises(kind, "", exit_code_of, fail)
