"""Each fast path and the general path return the same, KOLUMN_PATHS turns off what it says, and `explain` says which ones are taken."""

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import json_values, redpanda, redpanda_mutants
from kit.asked import watched
from kit.corpus import HERE as CORPUS
from kit.mutate import make_segment, mutate
from kit.outcome import raises
from kit.paths import FAST, GENERAL, counted, without
from kolumn.core import paths
from kolumn.core.paths import STREAMED
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.source.segment_file import SegmentFile

TOPIC = CORPUS / "v2-java" / "java-zstd-0"
COLUMNS = ["offset", "timestamp", "key", "value", "headers", "sequence", "tombstone", "topic", "position", "codec", "isControl"]
READS: list[dict[str, Any]] = [
    {"threads": 2},
    {"threads": 2, "errors": "skip"},
    {"threads": 1, "errors": "skip", "on_damage": None, "include_control": True},
    {"threads": 2, "errors": "skip", "binary": "view", "chunk_bytes": 2000},
    {"threads": 1, "errors": "skip", "on_damage": None, "check_crcs": False, "memory_bytes": 500},
    {"threads": 1, "errors": "skip", "columns": ["timestampMs", "key", "controlType"], "include_control": True},
]


def rows(source: Any, **options: Any) -> Any:
    damage: list[str] = []
    if "on_damage" in options:
        options["on_damage"] = lambda one: damage.append(str(one))
    try:
        found = kolumn.read(source, **{"columns": COLUMNS, **options})
    except kolumn.KolumnError as error:
        return str(error)
    found.validate(full=True)
    # NaN equals NaN in a text.
    return repr(found.to_pydict()) if options.get("value_format") else found, damage


def same(tmp_path: Path, chosen: Iterable[str], ask: Callable[[Path], Any]) -> None:
    """Ask with and without each of some paths, which has to be taken once and not to be taken once."""
    with counted() as calls:
        expected = ask(tmp_path / "fast")
    assert [one for one in chosen if not calls[one]] == []
    for off in (*chosen, GENERAL):
        with counted() as calls, without(off):
            found = ask(tmp_path / off)
        wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
        assert not wrong, (off, len(wrong), wrong[0])
        assert not any(calls[one] for one in (FAST if off == GENERAL else [off])), (off, calls)
        assert off != GENERAL or calls[GENERAL]


READING = (paths.STREAMED, paths.MESSAGES, paths.SHORT, paths.TOGETHER)


def test_reads(tmp_path: Path) -> None:
    for folder in sorted(CORPUS.glob("*/*-0"))[::2]:
        shutil.copytree(folder, tmp_path / "brokers" / folder.name)
    rng = random.Random(0)
    for partition in range(100):
        entries = make_segment(rng)
        data = mutate(rng, entries).data if partition % 2 else b"".join(entries)
        path = tmp_path / str(partition // 20) / f"t-{partition % 20}" / f"{int.from_bytes(entries[0][:8], 'big'):020}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    sources = [tmp_path / "brokers", *(tmp_path / str(number) for number in range(5))]
    # A column alone, since what is decoded as one row must not have two values of it.
    alone = [(sources[1], {"threads": 1, "errors": "skip", "columns": [name]}) for name in RECORD_COLUMNS]
    asked = [*((source, options) for source in sources for options in READS), *alone]
    same(tmp_path, READING, lambda _: [rows(source, **options) for source, options in asked])


def test_reads_of_redpanda(tmp_path: Path) -> None:
    for folder in sorted(CORPUS.glob("v2-*/*-0"))[::2]:
        (tmp_path / "nodes" / folder.name).mkdir(parents=True)
        for path in folder.glob("*.log"):
            (tmp_path / "nodes" / folder.name / path.name).write_bytes(redpanda.swapped(path.read_bytes()))
    for seed in range(60):
        entries, mutant = redpanda_mutants.make(seed)
        path = tmp_path / str(seed // 20) / f"t-{seed % 20}" / f"{int.from_bytes(entries[0][8:16], 'little'):020}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(mutant.data if seed % 2 else b"".join(entries))
    sources = [tmp_path / "nodes", *(tmp_path / str(number) for number in range(3))]
    asked = [(source, options) for source in sources for options in READS]
    columns = [*COLUMNS, "rawOffset", "batchType"]
    chosen = (paths.STREAMED, paths.SHORT)
    same(tmp_path, chosen, lambda _: [rows(source, **{"format": "redpanda", "columns": columns, **options}) for source, options in asked])


def test_typed_values(tmp_path: Path) -> None:
    rng, asked = random.Random(1), list[tuple[list[bytes], dict[str, Any]]]()
    for _ in range(6):
        whole = json_values.flat_type(rng)
        some = [one.name for one in whole if not pa.types.is_nested(one.type) and one.name and "." not in one.name]
        values = json_values.alike(rng, whole, 150, 0.2)
        how = {"value_format": "json", "value_schema": pa.schema(whole)}
        asked += [(values, how), *((values, how | {"value_columns": one}) for one in some[:2])]
    for number, (values, _) in enumerate(asked):
        kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / f"t-{number}")

    def ask(_: Path) -> Any:
        return [rows(tmp_path / f"t-{n}", **how, columns=["value", "valueValid"]) for n, (_, how) in enumerate(asked)]

    same(tmp_path, (paths.JSON,), ask)


@pytest.mark.parametrize("text", ["streamed", "-streamd", "-streamed,", "general,-short"])
def test_unknown_paths_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known are all compared here, or in `tests/behaviour/test_compaction_ways.py`."""
    assert {*READING, paths.FILTER, paths.DOWN_CONVERSION, paths.JSON} == set(FAST)
    monkeypatch.setenv("KOLUMN_PATHS", text)
    paths.turned_off.cache_clear()
    with pytest.raises(kolumn.ArgumentError, match=r"KOLUMN_PATHS=.*expected general, or some of -streamed,-messages"):
        kolumn.read(TOPIC)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two partitions, of which one is written to two log directories, and what a broker leaves beside them."""
    some = pa.table({"value": [bytes([65 + i % 26]) * 50 for i in range(4000)], "offset": pa.array(range(4000), pa.int64())})
    for name in ("disk-1/orders-0", "disk-1/orders-1", "disk-2/orders-0"):
        kolumn.write(some, tmp_path / name, segment_bytes=1 << 16)
    stray = tmp_path / "disk-1" / "orders-2.0123456789abcdef0123456789abcdef-stray"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes((tmp_path / "disk-1/orders-1/00000000000000000000.log").read_bytes())
    (tmp_path / "disk-1/orders-1/00000000000000000000.log.deleted").write_bytes(b"gone")
    return tmp_path


def test_ranges_are_what_a_read_decodes(log: Path) -> None:
    options = {"start_offset": 1500, "end_offset": 2500}
    plan = kolumn.explain(log / "disk-1" / "orders-1", **options)
    files = list((log / "disk-1" / "orders-1").glob("*.log"))
    every = sum(path.stat().st_size for path in files)
    (one,) = plan.partitions.to_pylist()
    assert one == {
        "topic": "orders", "partition": 1, "copies": 1, "log": "one copy", "segments": len(files), "bytes": every,
        "bytesRead": pc.sum(plan.ranges["bytes"]).as_py(), "abortedTransactions": None, "openTransactions": None,
    }  # fmt: skip
    assert 0 < one["bytesRead"] < every
    assert set(plan.ranges["decoder"].to_pylist()) == {"block by block"}
    assert set(plan.left_out["kind"].to_pylist()) >= {"range", "deleted"}
    assert plan.schema == kolumn.read(log / "disk-1" / "orders-1", **options).schema


def test_copies(log: Path) -> None:
    source = [log / "disk-1", log / "disk-2"]
    raises(kolumn.ArgumentError, "replicas", kolumn.explain, source)
    first = kolumn.explain(source, replicas="first")
    by_partition = {row["partition"]: row for row in first.partitions.to_pylist()}
    assert (by_partition[0]["copies"], by_partition[1]["copies"]) == (2, 1)
    assert str(log / "disk-1" / "orders-0") in by_partition[0]["log"]
    copies = [row for row in first.left_out.to_pylist() if row["kind"] == "copy"]
    assert copies
    assert all("disk-2" in row["path"] for row in copies)
    merged = kolumn.explain(source, replicas="merge")
    assert "leader epochs" in {row["partition"]: row["log"] for row in merged.partitions.to_pylist()}[0]


def test_no_payload_is_read_and_folders_that_are_left_out_are_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = watched(monkeypatch, SegmentFile, "read")
    plan = kolumn.explain(log / "disk-1")
    assert plan.ranges.num_rows > 4
    assert sum(end - start for _, start, end, *_ in reads) <= 17 * (plan.ranges.num_rows + plan.left_out.num_rows)
    assert {row["kind"]: row["path"] for row in plan.left_out.to_pylist()}["stray"].endswith("-stray")
    assert "-stray" in str(plan)


def test_decoders_and_transactions_are_said() -> None:
    with without(STREAMED):
        row = kolumn.explain(TOPIC).ranges.to_pylist()[0]
    assert (row["decoder"], "KOLUMN_PATHS" in row["reason"]) == ("stage by stage", True)
    assert kolumn.explain(TOPIC, format="enriched", errors="skip").ranges["decoder"].to_pylist()[0] == "stage by stage"
    plan = kolumn.explain(CORPUS / "transactional", isolation_level="read_committed")
    assert pc.sum(plan.partitions["abortedTransactions"]).as_py() > 0
    raises(TypeError, "start_offset", kolumn.explain, TOPIC, startoffset=1)
