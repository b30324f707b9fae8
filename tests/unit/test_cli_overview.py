"""`kolumn PATH`: what does one screen say, and does it agree with what a whole read finds? And completion in shells."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import kolumn
from kolumn.cli import app
from kolumn.tools.overview import overview
from unit.test_cli_layout import on_terminal

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
MANY = CORPUS / "v2-many-segments" / "many-segments-0"


def said(*args: object) -> tuple[int, str]:
    out = CliRunner().invoke(app, [*map(str, args)])
    return out.exit_code, out.stdout


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
            assert one.first_offset <= min(own)
            assert one.last_offset is not None
            assert one.last_offset >= max(own)


def test_one_screen_names_what_is_there_and_what_comes_next() -> None:
    code, text = said(MANY)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith(f"{MANY}: 1 topic, 1 partition, {len(list(MANY.glob('*.log')))} segments, ")
    assert lines[0].endswith(", 900 records")
    assert lines[1] == "No damage in the headers; checksums and records are not checked here."
    assert [line.split("#")[0].split() for line in lines if line.startswith("  kolumn verify")] == [["kolumn", "verify", str(MANY)]]
    assert said("overview", MANY) == (code, text)


def test_the_steps_that_it_names_run(tmp_path: Path) -> None:
    steps = [line.split("#")[0].split() for line in said(MANY)[1].splitlines() if line.startswith("  kolumn ")]
    assert len(steps) >= 3
    for step in steps:
        words = [str(tmp_path / word) if word in ("parquet", "report.html") else word for word in step[1:]]
        assert CliRunner().invoke(app, words).exit_code == 0, words


def test_damage_that_headers_show(tmp_path: Path) -> None:
    folder = tmp_path / "many-segments-0"
    shutil.copytree(MANY, folder)
    cut = sorted(folder.glob("*.log"))[1]
    os.truncate(cut, cut.stat().st_size - 10)
    code, text = said(folder)
    assert code == 1
    assert "DAMAGED: 1 damaged stretch in the headers" in text
    assert f"many-segments-0/{cut.name} at " in text
    assert "--errors skip" in text
    found = json.loads(said(folder, "--json")[1])
    assert found["checked"] == "headers"
    assert [one["segment"] for one in found["damage"]] == [str(cut)]


def test_eighty_columns() -> None:
    lines = on_terminal(80, str(CORPUS / "v2*"))
    table = lines[lines.index("") + 1 : lines.index("Next:")]
    assert max(map(len, table)) <= 80
    assert any(line.startswith("java-zstd") for line in table)
    # Codecs are not given up for the time of day.
    lines = on_terminal(80, str(CORPUS / "transactional"))
    assert lines[lines.index("") + 1].split() == ["topic", "records", "size", "first", "last", "codecs"]


def test_a_misspelt_command_is_no_path() -> None:
    out = CliRunner().invoke(app, ["verfy", "x"])
    assert out.exit_code == 2
    assert "Did you mean 'verify'?" in out.stderr
    out = CliRunner().invoke(app, ["/no/such/place"])
    assert (out.exit_code, out.stderr) == (2, "kolumn: /no/such/place: no such file or directory\n")


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", {"COMP_WORDS": "kolumn ver", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "kolumn ver"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "kolumn ver", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_completion(shell: str, words: dict[str, str]) -> None:
    program = "import sys; sys.argv[0] = 'kolumn'; from kolumn.cli import main; main()"
    environment = {**os.environ, **words, "_KOLUMN_COMPLETE": f"complete_{shell}"}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "verify" in out.stdout
    assert "inspect" not in out.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("kolumn cat --isolation-level read_c", "read_committed"),
        ("kolumn convert --codec z", "zstd"),
        ("kolumn cat --value-format pro", "protobuf"),
        ("kolumn cat --columns key,offset,timestampM", "key,offset,timestampMs"),
    ],
)
def test_completion_of_values(line: str, found: str) -> None:
    environment = {"COMP_WORDS": line, "COMP_CWORD": "3", "_KOLUMN_COMPLETE": "complete_bash"}
    assert CliRunner().invoke(app, [], env=environment, prog_name="kolumn").stdout.split() == [found]


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
