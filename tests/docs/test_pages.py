"""Every snippet of README and docs runs, and prints what the page shows.

A page's blocks share a folder, which has `dead-broker` and `other-broker` in it, and one namespace. What a block prints is compared
with the block of text right after it; in a `console` block, with the lines below each command. KOLUMN_DOCS_UPDATE=1 writes what was
printed into the pages instead.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from kit.spark_session import FOLDER
from kolumn.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"spark-issue-threads.md"}
"""Pages whose snippets another test runs: tests/spark/test_frames.py."""
UPDATE = os.environ.get("KOLUMN_DOCS_UPDATE") == "1"
WIDTH = 98
"""Columns of the terminal in the README: as many as code has where it is usually read."""
REASONS = {"needs a GPU", "needs a cluster", "needs a bucket", "needs Ray", "needs Iceberg", "needs Delta", "needs Iceberg or Delta"}
"""Why a block may be left out: ```` ```python no-test: needs a GPU ````. Those for tables are run by tests/spark/test_lakes.py."""


@dataclass
class Block:
    """A fenced block: its lines are [first, last) of the page, without the fences."""

    info: str
    text: str
    first: int
    last: int
    output: "Block | None" = None


def blocks(page: Path) -> list[Block]:
    """Blocks that can run, with the text after them that is their output."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text())
    found: list[Block] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type != "fence" or token.map is None:
            continue
        block = Block(token.info.strip(), token.content, token.map[0] + 1, token.map[1] - 1)
        language = block.info.split(" ")[0]
        if language == "text" and before is not None and before.type == "fence" and found and found[-1].last + 2 >= block.first - 2:
            found[-1].output = block
        elif language in ("python", "console"):
            found.append(block)
    return found


def left_out(block: Block) -> bool:
    """Whether a block says why it does not run; the reasons are few."""
    _, says, reason = block.info.partition(" no-test: ")
    assert not says or reason in REASONS, f"{block.info}: expected one of {sorted(REASONS)}"
    return bool(says)


SHOWN = [one for one in PAGES if one.name not in ELSEWHERE and blocks(one)]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two disks that the pages speak of."""
    folder, make = tmp_path_factory.mktemp("disks"), runpy.run_path(str(ROOT / "examples" / "dead_broker.py"))["make"]
    make(folder / "dead-broker")
    make(folder / "other-broker", 0.1)
    return folder


@pytest.fixture
def place(disks: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run a page in, which is that of Spark's JVM."""
    folder = FOLDER
    for old in folder.iterdir():
        if old.is_symlink() or old.is_file():
            old.unlink()
        else:
            shutil.rmtree(old)
    for disk in ("dead-broker", "other-broker"):
        shutil.copytree(disks / disk, folder / disk)
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.spark
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "SparkSession" in page.read_text():
        request.getfixturevalue("spark")
    if page.name == "README.md":
        monkeypatch.setenv("COLUMNS", str(WIDTH))
    names: dict[str, Any] = {"__name__": "__page__"}
    written: list[tuple[Block, str]] = []
    for block in blocks(page):
        if left_out(block):
            continue
        if block.info == "console":
            commands = re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
            printed = "".join(f"$ {command}\n{run(command)}" for command in commands)
            shown: Block | None = block
        else:
            printed, shown = execute(block, page, names), block.output
            assert UPDATE or shown is not None or not printed, f"{page.name}:{block.first}: prints what the page does not show:\n{printed}"
        if shown is not None or printed:
            written.append((shown or block, printed))
        text = f"{page.name}:{block.first}: expected\n{shown and shown.text}\nprinted\n{printed}"
        assert UPDATE or shown is None or same(shown.text, printed), text
    if UPDATE:
        update(page, written)


def run(command: str) -> str:
    """What a command prints; errors where a terminal would show them. A command of Kolumn alone needs no process of its own."""
    words = shlex.split(command)
    if words[0] == "kolumn" and not re.search(r"[|&><;*]", command):
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit):
            app(words[1:], prog_name="kolumn")
        return out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.stdout


def execute(block: Block, page: Path, names: dict[str, Any]) -> str:
    """What a block of Python prints."""
    code = compile("\n" * block.first + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: ``…`` stands for anything, and spaces at the ends of lines don't count."""
    return re.fullmatch(".*?".join(map(re.escape, _plain(shown).split("…"))), _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def update(page: Path, written: list[tuple[Block, str]]) -> None:
    """Write into a page what its blocks printed."""
    lines = page.read_text().split("\n")
    for block, printed in reversed(written):
        output = [line.rstrip() for line in printed.strip("\n").split("\n")]
        if same(block.text, printed):
            continue
        if block.info.startswith("python"):
            lines[block.last + 1 : block.last + 1] = ["", "```text", *output, "```"]
        else:
            lines[block.first : block.last] = output
    page.write_text("\n".join(lines))


@pytest.mark.slow
def test_lines_for_ray(disks: Path) -> None:
    """Ray is too large to be installed for the tests; where it is, its lines run too."""
    pytest.importorskip("ray")
    (block,) = (one for one in blocks(ROOT / "docs" / "howto" / "tools.md") if one.info.endswith("needs Ray"))
    program = f"from pathlib import Path\nimport kolumn\n{block.text}"
    # Its sockets have long names, and the name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        environment = {**os.environ, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
        out = subprocess.run([sys.executable, "-c", program], cwd=disks, env=environment, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split()[-1] == re.search(r"# (\d+)", block.text)[1]  # type: ignore[index]


def test_what_is_shown_is_compared() -> None:
    assert same("a  \nb …\n", "a\nb 12 c")
    assert not same("a\n", "a\nb")
    assert not same("1 record", "2 records")
