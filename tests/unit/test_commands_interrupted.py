"""Every command: Ctrl-C at some of its looks at files, and a reader that closes the pipe. No traceback, and nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.corpus import HERE as CORPUS

COMMANDS: dict[str, list[str]] = {
    "PATH": ["{log}"], "overview": ["overview", "--json", "{log}"], "verify": ["verify", "{log}"], "inspect": ["inspect", "{log}"],
    "cat": ["cat", "{log}"], "cat --json": ["cat", "--json", "{log}/upgraded-gzip-0"], "stats": ["stats", "{log}"],
    "space": ["space", "{log}/upgraded-gzip-0"], "report": ["report", "{log}", "-o", "{out}/report.html"],
    "sql": ["sql", "{log}", 'select * from "upgraded-gzip"'], "schemas": ["schemas", "{log}"], "groups": ["groups", "{log}"],
    "transactions": ["transactions", "{log}"], "to-parquet": ["to-parquet", "{log}/upgraded-gzip-0", "-o", "{out}"],
    "convert": ["convert", "--json", "{log}/upgraded-gzip-0", "-o", "{out}"],
    "compact": ["compact", "--json", "{log}/upgraded-gzip-0", "-o", "{out}"],
    "erase": ["erase", "--json", "--where", "a=b", "--verify", "{log}/upgraded-gzip-0", "-o", "{out}"],
    "apply-retention": ["apply-retention", "--json", "--retention-ms", "0", "{log}/upgraded-gzip-0", "-o", "{out}"],
    "recover": ["recover", "--json", "{log}/upgraded-gzip-0", "-o", "{out}"], "rebuild-index": ["rebuild-index", "{out}"],
    "tidy": ["tidy", "{out}"], "columns": ["columns"], "jar": ["jar"], "doctor": ["doctor"], "help": ["cat", "--help"],
}  # fmt: skip
NO_FILES = {"columns", "jar", "doctor", "help", "tidy"}
WARM = r"""
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import kolumn, kolumn.cli, kolumn.tools.statistics, kolumn.cli.ending, kolumn.tools.parquet
import matplotlib.backends.backend_svg, matplotlib.figure, pyarrow.compute, pyarrow.parquet, rich.console, rich.progress
log = sys.argv[1]
# What is imported and loaded on first use; one thread, for a process with several cannot be forked.
kolumn.read(f"{log}/upgraded-gzip-0", threads=1)
kolumn.verify(f"{log}/upgraded-gzip-0", threads=1)

def child(arguments, root, at, out, err, count):
    os.dup2(out, 1)
    os.dup2(err, 2)
    steps = [0]
    def look(event, found):
        if event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.link", "os.rename") and str(found[0]).startswith(root):
            steps[0] += 1
            if steps[0] == at:
                signal.raise_signal(signal.SIGINT)
    sys.addaudithook(look)
    sys.argv = ["kolumn", *arguments]
    try:
        kolumn.cli.main()
    finally:
        os.write(count, b"%d" % steps[0])

for line in sys.stdin:
    arguments, root, at, output, closed = json.loads(line)
    ours, theirs = os.pipe()
    counted, count = os.pipe()
    if closed:
        os.close(ours)
    target = theirs if closed else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    error = os.open(output + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    pid = os.fork()
    if not pid:
        child(arguments, root, at, target, error, count)
    for one in {theirs, target, error, count} | (set() if closed else {ours}):
        os.close(one)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    steps = int(os.read(counted, 20) or 0)
    os.close(counted)
    print(json.dumps([code, steps]), flush=True)
"""


class Place:
    """A log, a target, and a process that forks commands on them."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.out = root, root / "log", root / "out"
        for name in ("upgraded/upgraded-gzip-0", "transactional/txn-open-0", "internal/__consumer_offsets-0"):
            shutil.copytree(CORPUS / name, self.log / name.split("/")[1])
        key = {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
        value = {"subject": "a", "version": 1, "id": 1, "schema": '"int"'}
        table = pa.table({"key": [json.dumps(key).encode()], "value": [json.dumps(value).encode()]})
        kolumn.write(table, self.log / "_schemas-0")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", WARM, str(self.log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fresh(self, name: str) -> dict[str, bytes]:
        """The target as a command finds it."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        if name == "rebuild-index":
            shutil.copytree(self.log / "upgraded-gzip-0", self.out / "upgraded-gzip-0")
        return self.files()

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.out)): path.read_bytes() for path in sorted(self.out.rglob("*")) if path.is_file()}

    def run(self, name: str, at: int = 0, closed: bool = False) -> tuple[int, int, str]:
        """Exit code, number of looks at files, and what was printed on standard error."""
        arguments = [part.format(log=self.log, out=self.out) for part in COMMANDS[name]]
        self.process.stdin.write(json.dumps([arguments, str(self.root), at, str(self.root / "printed"), closed]) + "\n")
        self.process.stdin.flush()
        code, steps = json.loads(self.process.stdout.readline())
        return code, steps, (self.root / "printed.err").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = Place(tmp_path_factory.mktemp("place"))
    with found.process:
        yield found
    assert found.process.returncode == 0


@pytest.mark.sample
@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_closes_the_pipe(place: Place, name: str) -> None:
    place.fresh(name)
    code, _, said = place.run(name, closed=True)
    assert (code, "Traceback" in said, "Broken pipe" in said) == (0, False, False), said


@pytest.mark.sample
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NO_FILES])
def test_interrupts(place: Place, name: str) -> None:
    before = place.fresh(name)
    code, steps, said = place.run(name)
    assert (code, steps > 0) == (0, True), said
    after = place.files()
    for at in sorted({1, steps // 2 + 1}):
        place.fresh(name)
        code, _, said = place.run(name, at)
        assert (code, [line for line in said.splitlines() if line != "kolumn: interrupted"]) == (130, []), f"look {at} of {steps}"
        assert os.path.basename(said.strip()) == "kolumn: interrupted"
        assert place.files() in (before, after)
