"""What many tests ask of a log, in short."""

from typing import Any

import pyarrow as pa

import kolumn


def offsets(source: Any, **options: Any) -> list[int]:
    """Offsets of a read."""
    return kolumn.read(source, columns=["offset"], **options)["offset"].to_pylist()


def skipping(source: Any, **options: Any) -> tuple[pa.Table, kolumn.Skipped]:
    """What can be read, and what was left out."""
    skipped = kolumn.Skipped()
    return kolumn.read(source, errors="skip", on_damage=skipped, **options), skipped
