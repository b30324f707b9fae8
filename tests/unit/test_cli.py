"""The command line: its output, its exit codes, and Parquet files, which are whole or absent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kolumn
from kit.command_line import run
from kit.rows_as_lines import shown
from kolumn.cpu_fallback.machine.compile_ahead import GROUPS

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
TOPIC = CORPUS / "upgraded" / "upgraded-gzip-0"


def started(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a new process, with these variables in its environment."""
    command = [sys.executable, "-c", "from kolumn.cli import main; main()", *map(str, args)]
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
    out = started("--help")
    assert out.returncode == 0
    for name in ("verify", "inspect", "cat", "to-parquet", "convert", "compact", "apply-retention", "space", "schemas", "doctor"):
        assert name in out.stdout
    assert run("--version").stdout == f"kolumn {kolumn.__version__}\n"


def test_verify(damaged):
    good = run("verify", TOPIC)
    assert good.returncode == 0
    assert good.stdout.startswith("OK: ")
    bad = run("verify", damaged)
    assert bad.returncode == 1
    assert "crc" in bad.stdout
    assert "\x1b" not in bad.stdout
    found = json.loads(run("verify", "--json", damaged).stdout)
    assert found["ok"] is False
    assert found["damage"] == kolumn.verify(damaged).damage.to_pylist()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("verify", "/no/such/place"), 2), (("cat", "--columns", "offst", TOPIC), 2), (("cat", "--start-timestamp", "yesterday", TOPIC), 2),
        (("cat",), 2), (("to-parquet", "--compression", "zip", TOPIC, "target"), 2),
    ],
)  # fmt: skip
def test_wrong_arguments(args, code, tmp_path):
    out = run(*args, cwd=tmp_path)
    assert (out.returncode, out.stdout) == (code, "")
    assert "Traceback" not in out.stderr
    assert out.stderr


def test_damage_ends_cat_with_the_message_of_the_library(damaged):
    with pytest.raises(kolumn.CorruptBatchError) as caught:
        kolumn.read(damaged)
    out, said = run("cat", damaged), str(caught.value).replace("errors='skip'", "--errors skip")
    assert (out.returncode, out.stderr) == (1, f"kolumn: {said}\n")
    assert "--errors skip" in said
    assert run("cat", "--errors", "skip", damaged).returncode == 1


def test_inspect_json_is_the_batch_table_and_cat_prints_a_range():
    lines = [json.loads(line) for line in run("inspect", "--json", TOPIC).stdout.splitlines()]
    assert (lines, len(run("inspect", "--limit", 2, TOPIC).stdout.splitlines())) == (kolumn.batches(TOPIC).to_pylist(), 3)
    out = run("cat", "--columns", "offset", "--start-offset", 10, "--end-offset", 13, TOPIC)
    assert out.stdout == "offset=10\noffset=11\noffset=12\n"


def test_cat_json_says_how_bytes_areshown():
    lines = [json.loads(line) for line in run("cat", "--json", "--include-headers", "--limit", 200, TOPIC).stdout.splitlines()]
    rows = kolumn.read(TOPIC, include_headers=True).slice(0, 200).to_pylist()
    for line, row in zip(lines, rows, strict=True):
        assert line["offset"] == row["offset"]
        for name in ("key", "value"):
            assert (line[name], line.get(f"{name}Encoding")) == ((None, None) if row[name] is None else shown(row[name]))
        assert [h["key"] for h in line["headers"]] == [h["key"] for h in row["headers"]]
    assert shown(b"\xff") == ("/w==", "base64")


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
    assert (again.returncode, "--overwrite" in again.stderr) == (2, True)
    assert run("to-parquet", "--overwrite", TOPIC, tmp_path / "whole").returncode == 0
    assert run("to-parquet", damaged, tmp_path / "lake").returncode == 1
    assert [f for f in (tmp_path / "lake").rglob("*") if f.is_file()] == [], "nothing is left of a damaged segment"


def test_to_parquet_leaves_nothing_when_it_is_interrupted(tmp_path):
    source = tmp_path / "many-0"
    source.mkdir()
    data = (CORPUS / "v2-java" / "java-zstd-0" / "00000000000000000000.log").read_bytes()
    (source / "00000000000000000000.log").write_bytes(data * 60)
    target = tmp_path / "lake"
    script = "from kolumn.cli import main; main()"
    command = [sys.executable, "-c", script, "to-parquet", "--row-group-rows", "100", str(source), str(target)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(target.rglob("*.partial")):
        assert process.poll() is None, "it was done before it could be interrupted"
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode != 0, message
    assert [f for f in target.rglob("*") if f.is_file()] == []


def test_doctor():
    found = json.loads(started("doctor", "--json").stdout)
    assert found["cpu"]["backend"] == "can run"
    assert found["gpu"]["backend"].startswith("can't run")
    assert found["packages"]["pyarrow"]
    assert found["cpu"]["gzip"].startswith("ISA-L")
    assert found["cpu"]["zstd"].startswith("libzstd")
    assert "CRC-32C" in run("doctor").stdout
    assert "Kolumn" in found["spark"]["workers' Python"]


def test_doctor_and_warmup_say_whether_machine_code_is_there(tmp_path):
    environment = {"KOLUMN_NATIVE": "1", "KOLUMN_CACHE_DIR": str(tmp_path)}
    found = json.loads(started("doctor", "--json", **environment).stdout)["cpu"]
    missing = "reading, small segments, writing, typed values, Avro, Protobuf, JSON"
    assert found["machine code"] == f"not there for {missing}: compiled on first use, or by `kolumn warmup`"
    folder = Path(found["machine code cache"])
    assert folder.parent == tmp_path
    folder.mkdir()
    for group in GROUPS:
        (folder / f"{group}.ready").touch(mode=0o644)
    assert json.loads(started("doctor", "--json", **environment).stdout)["cpu"]["machine code"] == "there"
    assert started("warmup", **environment).stdout.startswith("nothing to do, all ")
    assert json.loads(started("warmup", "--json", **environment).stdout)["folder"] == str(folder)


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


def test_convert_says_what_is_lost_before_and_after(tmp_path):
    done = run("convert", "--magic", "0", TOPIC, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    before, *after = done.stderr.splitlines()
    assert before.startswith("This format cannot store: ")
    assert any(line.startswith("lost: timestamps: ") for line in after)
    assert kolumn.read(tmp_path / "out").num_rows == kolumn.read(TOPIC).num_rows
    out = json.loads(run("convert", "--to", "v3-compact", "--json", TOPIC, tmp_path / "three").stdout)
    assert (out["records"], out["lost"]) == (kolumn.read(TOPIC).num_rows, {})
    assert (run("convert", "--to", "csv", TOPIC, tmp_path / "four").returncode, run("convert", TOPIC).returncode) == (2, 2)
    assert run("verify", "--format", "v3-compact", tmp_path / "three").returncode == 0


def test_compact_and_clean(tmp_path):
    out = json.loads(run("compact", "--json", "--include-active", CORPUS / "compacted" / "compact-none-0", tmp_path / "out").stdout)
    assert out["retained"] == kolumn.verify(tmp_path / "out").records < out["records"]
    done = run("apply-retention", "--retention-ms", "0", TOPIC, tmp_path / "clean")
    assert (done.returncode, done.stderr.splitlines()[-1], run("apply-retention", TOPIC, tmp_path / "clean").returncode) == (
        0,
        "0 segments stay",
        2,
    )
