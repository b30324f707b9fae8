"""Is device memory freed before other libraries are done with it? Streams are noted, not run."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.device_columns import resident
from kit.emulated import Emulated, run_loops
from kit.ordering import OTHERS, Ordering
from kolumn.kernels.columns import assemble
from kolumn.kernels.columns.table import Column, DeviceTable
from kolumn.kernels.machine import device as current
from kolumn.kernels.machine.staging import Block

pytest.importorskip("pylibcudf", reason="make gpu-packages")


@pytest.fixture
def ordering() -> Iterator[Ordering]:
    """Of an emulated device that all threads use."""
    noted = Ordering()
    with current.using(Emulated(run_loops, ordering=noted)):
        yield noted


@pytest.fixture
def log(tmp_path: Path) -> Path:
    table = pa.table({"key": [b"a", None, b"ccc"] * 200, "value": [b"x" * 50] * 600})
    kolumn.write(table, tmp_path / "t-0", batch_bytes=1000)
    return tmp_path / "t-0"


def used_by_cudf(ordering: Ordering, tables: list[DeviceTable]) -> None:
    """cuDF is asked for something with every column, and returns before it is done."""

    def use(column: Column) -> None:
        for memory in (column.data, column.bitmap):
            if memory is not None:
                ordering.used(memory.address)
        for child in column.children:
            use(child)

    for table in tables:
        assemble.to_pylibcudf(table)
        for column in table.columns:
            use(column)


FAULTS: dict[str, tuple[str, Any, str]] = {
    # What must not be done with memory that others were shown, and a call that lets others begin at once.
    "freed on its own stream": ("__del__", lambda block: block._free(block.streams.own), "freed on thread"),
    "not ordered": ("share", lambda block: setattr(block, "_shared", True), "used on others"),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
@pytest.mark.parametrize("threads", [1, 3])
def test_columns_that_are_dropped_while_cudf_works(
    fault: str | None, threads: int, log: Path, ordering: Ordering, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is not None:
        monkeypatch.setattr(Block, *FAULTS[fault][:2])
    if fault == "not ordered":
        # Today every table is waited for before it is handed out; this is for those that will not be.
        monkeypatch.setattr(Emulated, "synchronize", lambda _: None)
    tables = resident(log, "string", columns=["key", "value", "offset", "timestamp"], threads=threads, chunk_bytes=3000)
    assert len(tables) > 3
    used_by_cudf(ordering, tables)
    tables.clear()
    gc.collect()
    # The next read takes memory at once.
    resident(log, "string", columns=["offset"], threads=threads)
    assert ordering.shared > 20 or fault is not None
    assert bool(ordering.faults) is (fault is not None)
    assert fault is None or any(FAULTS[fault][2] in one for one in ordering.faults)


def test_tables_that_are_concatenated(log: Path, ordering: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDF's copies may be running when the read returns, and the pieces are gone by then."""
    import pylibcudf

    joined = []

    def concatenate(pieces: list[Any]) -> Any:
        joined.append(len(pieces))
        for column in pieces:
            for view in (column.data(), column.null_mask()):
                if view is not None:
                    ordering.used(view.ptr, OTHERS)
        return pieces[0]

    monkeypatch.setattr(pylibcudf.concatenate, "concatenate", concatenate)
    kolumn.read_pylibcudf(log, columns=["key", "offset"], payload="string", chunk_bytes=3000)
    gc.collect()
    assert joined[0] > 3
    assert ordering.shared > 3
    assert ordering.faults == []
