"""``-``: a segment on standard input."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kolumn.cli import main

SEGMENT = Path(__file__).resolve().parents[1] / "data" / "corpus" / "upgraded" / "upgraded-gzip-0" / f"{0:020}.log"
OF_NAMES = ("segment", "topic", "partition", "state")
"""What follows from the name of a file."""


class Input(io.TextIOWrapper):
    """Standard input with some bytes; or a terminal."""

    def __init__(self, data: bytes, *, terminal: bool) -> None:
        raw = io.BytesIO(data)
        raw.name = "<stdin>"  # type: ignore[attr-defined]
        super().__init__(raw)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Exit code, standard output and standard error of a command."""

    def run(data: bytes, *args: object, terminal: bool = False) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "stdin", Input(data, terminal=terminal))
        monkeypatch.setattr(sys, "argv", ["kolumn", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return run


@pytest.mark.parametrize(("command", "lines"), [("cat", 1000), ("verify", 1), ("inspect", 40), ("stats", 1)])
def test_the_same_as_of_a_file(run: Any, command: str, lines: int) -> None:
    code, out, err = run(SEGMENT.read_bytes(), command, "--json", "-")
    assert (code, err, out.count("\n")) == (0, "", lines)
    of_file = run(b"", command, "--json", SEGMENT)[1]
    assert [_unnamed(line) for line in out.splitlines()] == [_unnamed(line) for line in of_file.splitlines()]


def _unnamed(line: str) -> Any:
    found = json.loads(line)
    for one in (found, *(found["segments"] if "ok" in found else ())):
        for name in OF_NAMES:
            one.pop(name, None)
    return found


def test_damage_is_told_by_position(run: Any) -> None:
    data = bytearray(SEGMENT.read_bytes())
    data[len(data) // 2] ^= 1
    code, out, _ = run(bytes(data), "verify", "-")
    assert (code, "<stdin>" in out, "1 damaged stretch" in out) == (1, True, True)


def test_it_is_the_only_source(run: Any) -> None:
    code, _, err = run(b"", "verify", "-", SEGMENT)
    assert (code, "which is the only source" in " ".join(err.replace("│", "").split())) == (2, True)


def test_a_terminal_is_no_segment(run: Any) -> None:
    code, _, err = run(b"", "cat", "-", terminal=True)
    assert (code, "that is a terminal" in " ".join(err.replace("│", "").split())) == (2, True)
