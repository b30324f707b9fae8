"""What many tests ask of a log, in short."""

from pathlib import Path
from typing import Any

import pyarrow as pa
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
