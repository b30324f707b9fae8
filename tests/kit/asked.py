"""What many tests ask of a log, in short."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import kolumn
from kolumn.cli import app


def offsets(source: Any, **options: Any) -> list[int]:
    """Offsets of a read."""
    return kolumn.read(source, columns=["offset"], **options)["offset"].to_pylist()


def skipping(source: Any, **options: Any) -> tuple[pa.Table, kolumn.Skipped]:
    """What can be read, and what was left out."""
    skipped = kolumn.Skipped()
    return kolumn.read(source, errors="skip", on_damage=skipped, **options), skipped


def put(folder: Path, *entries: bytes, base: int = 0) -> Path:
    """Write a segment into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(b"".join(entries))
    return path


def invoked(*arguments: object) -> Result:
    """What a command says and how it ends, in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def watched(patch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a function, and behind them its result."""
    calls, real = list[tuple[Any, ...]](), getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        result = real(*arguments, **named)
        calls.append((*arguments, result))
        return result

    patch.setattr(owner, name, call)
    return calls
