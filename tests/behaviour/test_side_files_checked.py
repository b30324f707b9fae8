"""`verify` compares side files with the log: it names what contradicts it, and says nothing about what a broker wrote."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import kolumn
from kit.corpus import HERE, cases
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch

FOLDERS = sorted({case.directory for case in cases() if any(case.directory.glob("*.log"))})


def found(folder: Path) -> list[str]:
    report = kolumn.verify(folder, check_crcs=False)
    assert report.ok
    return [row["remark"] for row in report.remarks.to_pylist() if row["kind"] == "side-file"]


def test_brokers_files_are_right() -> None:
    """Those of compacted logs, of logs whose first records were deleted, of crashed brokers, and of old ones."""
    wrong = {
        str(folder): row["remark"]
        for folder in FOLDERS
        for row in kolumn.verify(folder, check_crcs=False).remarks.to_pylist()
        if row["kind"] == "side-file"
    }
    assert len(FOLDERS) > 20
    assert wrong == {}


def changed(name: str, change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        change(data)
        (folder / name).write_bytes(data)

    return apply


def put(form: str, at: int, *values: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, at, *values)


FIRST = f"{0:020}"
CHANGES = {
    "position": (changed(f"{FIRST}.index", put(">i", 12, 1500)), "no batch begins there"),
    "offset": (changed(f"{FIRST}.index", put(">i", 0, 1)), "batches before it go up to offset"),
    "order": (changed(f"{FIRST}.index", put(">i", 16, 1)), "offsets or positions do not grow"),
    "time": (changed(f"{FIRST}.timeindex", put(">q", 36, 1795203217958)), "the largest timestamp up to offset"),
    "order of times": (changed(f"{FIRST}.timeindex", put(">q", 24, 5)), "timestamps or offsets do not grow"),
    "marker": (changed(f"{FIRST}.txnindex", put(">q", 18, 12)), "no ABORT marker of the producer"),
    "missing": (lambda folder: (folder / f"{FIRST}.txnindex").write_bytes(b""), "nothing of the transactions that were aborted at"),
    "version": (changed(f"{FIRST}.txnindex", put(">h", 0, 9)), "version 9, expected 0"),
    "checksum": (changed(f"{192:020}.snapshot", put(">b", 20, 99)), "checksum"),
    "epochs": (lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 100\n"), "epoch 1 at offset"),
    "order of epochs": (lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n0 100\n"), "do not grow"),
    "lines": (lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n"), "1 lines, expected 2"),
    "topic id": (lambda folder: (folder / "partition.metadata").write_text("version: 0\n"), "expected the lines version: and topic_id:"),
}


@pytest.mark.parametrize(("change", "text"), CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_named(change: Callable[[Path], None], text: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(HERE / "transactional" / "txn-open-0", tmp_path / "txn-open-0"))
    change(folder)
    remarks = found(folder)
    assert len(remarks) >= 1
    assert any(text in remark for remark in remarks), remarks
    # What can be written anew is right then.
    kolumn.rebuild_index(folder, index_interval_bytes=512)
    left = [remark for remark in found(folder) if "index:" in remark]
    assert left == []


def test_files_that_kolumn_writes_are_right(tmp_path: Path) -> None:
    table = pa.table(
        {"offset": range(5, 3005, 3), "timestampMs": [1_700_000_000_000 + i * 7 % 5000 for i in range(1000)], "value": [b"x" * 40] * 1000}
    )
    kolumn.write(table, tmp_path / "orders-0", batch_bytes=400, segment_bytes=9000, index_interval_bytes=500)
    assert found(tmp_path / "orders-0") == []
    # As a broker makes it; it has lines from the first batch of an epoch on.
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"")
    assert found(tmp_path / "orders-0") == []


def test_holes_are_no_contradiction(tmp_path: Path) -> None:
    """A transaction whose batches compaction has removed, and an index that names offsets that are gone."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = b"".join(
        [
            batch([Record(10, b"k", b"v", 100)]),
            batch([Record(20, b"k", b"v", 50)], flags=TRANSACTIONAL, producer_id=5, producer_epoch=0, last_offset=25),
            control_batch(30, 0, producer_id=5, producer_epoch=0),
            control_batch(40, 0, producer_id=6, producer_epoch=0),
        ]
    )
    (folder / f"{0:020}.log").write_bytes(data)
    second = len(batch([Record(10, b"k", b"v", 100)]))
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 25, second))
    (folder / f"{0:020}.timeindex").write_bytes(struct.pack(">qi", 120, 15))
    entries = struct.pack(">hqqqq", 0, 5, 18, 30, 31) + struct.pack(">hqqqq", 0, 6, 2, 40, 41)
    (folder / f"{0:020}.txnindex").write_bytes(entries)
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert found(folder) == []
