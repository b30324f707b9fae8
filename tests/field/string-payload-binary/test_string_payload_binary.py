"""Values that are no text, read as text."""

from pathlib import Path

import pytest

import kolumn


def test_the_record_is_named(disk: Path) -> None:
    whole = kolumn.read(disk / "bin-0")
    with kolumn.scan(disk / "bin-0", payload="string") as reader:
        (good, error) = reader.read_next_batch(), pytest.raises(kolumn.PayloadError, match=r"0\.log: offset 1: key: not UTF-8")
        with error:
            reader.read_next_batch()
    good.validate(full=True)
    assert (good.num_rows, whole.num_rows) == (1, 9)
    assert good["value"].to_pylist() == ["text"]
    assert whole["value"][1].as_py() == b"\x80binary"
