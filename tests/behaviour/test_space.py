"""`kolumn.space` assigns every byte of every entry to one purpose, in every format."""

import random
from pathlib import Path

import pytest

import kolumn
from kit.draft_segments import FORMATS, Maker
from kit.encoder import Record, batch, message
from kolumn.accounting.draft_table import draft_table
from kolumn.accounting.picture import draw
from kolumn.errors import ArgumentError

DATA = Path(__file__).parent.parent / "data" / "corpus"
TIME = 1_700_000_000_000


def test_the_table_of_the_kip98_draft() -> None:
    """The numbers of the document, computed from encoded bytes."""
    assert [tuple(row.values()) for row in draft_table()] == [(1, 34, 62), (3, 102, 96), (10, 340, 215), (50, 1700, 895), (100, 3400, 1745)]


def test_a_batch_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(batch([Record(0, b"key", b"value", TIME, ((b"h", b"12"),)), Record(1, None, b"v" * 100, TIME + 100)]))
    first, *others = kolumn.space(path)
    assert first.bytes == path.stat().st_size == sum(first.parts.values())
    # lengths: batch length 4, record count 4, two record lengths 1 + 2, key 1 + 1, value 1 + 2, header counts 1 + 1, header key and value 2
    assert dict(first.parts) == {
        "keys": 3, "values": 105, "headers": 3, "offsets": 12 + 2, "timestamps": 16 + 1 + 2, "lengths": 20, "crc": 4, "producer": 14,
        "attributes": 7 + 2,
    }  # fmt: skip
    by_name = {(one.format, one.magic): one for one in others}
    assert by_name["kafka", 2].bytes == first.bytes
    assert by_name["kafka", 0].bytes == 2 * 26 + 108
    assert by_name["kafka", 1].bytes == by_name["kip87", 2].bytes == 2 * 34 + 108
    assert by_name["kafka", 1].lost["headers"] == 1


@pytest.mark.parametrize("format", FORMATS)
def test_every_byte_of_the_drafts(tmp_path: Path, format: str) -> None:
    for seed in range(5):
        path = tmp_path / f"{seed}.log"
        path.write_bytes(b"".join(entry.data for entry in Maker(format, random.Random(seed)).segment(20)))
        found = kolumn.space(path, source_format=format, codec="none")
        assert found[0].bytes == path.stat().st_size
        assert all(one.bytes == sum(one.parts.values()) for one in found)
        assert all(one.parts["compression"] == 0 for one in found[1:]), [(one.format, one.parts["compression"]) for one in found]


@pytest.mark.parametrize("case", ["v2-java", "upgraded", pytest.param("transactional", marks=pytest.mark.slow), "v1-append-time"])
def test_what_conversion_gives_is_what_was_said(tmp_path: Path, case: str) -> None:
    for one in kolumn.space(DATA / case, codec="lz4")[1:]:
        target = tmp_path / f"{one.format}-{one.magic}"
        dropped = one.format in ("enriched", "kip87") or (one.format == "kafka" and one.magic != 2)
        kolumn.convert(DATA / case, target, format=one.format, magic=one.magic, codec="lz4", drop_transactions=dropped)
        written = sum(path.stat().st_size for path in target.rglob("*.log"))
        # The conversion copies batches that are already in the format, and the account encodes them again.
        assert abs(written - one.bytes) <= 0.02 * written, (one.format, one.magic)
        assert kolumn.verify(target, format=one.format).records == one.records


@pytest.mark.parametrize("kind", [".svg", ".png"])
def test_pictures(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.log"
    path.write_bytes(message(1, Record(0, b"a", b"b", TIME)))
    draw(kolumn.space(path), str(tmp_path / f"a{kind}"))
    assert (tmp_path / f"a{kind}").stat().st_size > 1000
    with pytest.raises(ArgumentError, match=r"ends in \.svg"):
        draw([], "a.txt")
