"""How fast is a key's history beside a scan of keys alone, and the state of a topic beside a read?  python -m bench.history

Segments of 64 MiB: one in which a key is once, in 16 KiB batches and in 1 KiB ones; one with values of 1 KiB; two in which every
hundredth and every thousandth record has the key, so that every batch or some of them are decoded as a whole; and one in 2,000 segments.
Ways take turns, the best of some runs counts. ``history`` and ``cat`` are how many times as fast as a scan of keys these are
(`kolumn.scan` with ``columns=["key"]``; all columns of a history, filtered); ``latest`` is the time of `kolumn.read` of committed records
by that of `kolumn.latest`.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import kolumn
from bench import data, machine
from kolumn.tools.history import HISTORY_SCHEMA

RUNS = 12
SMALL_SEGMENTS, SMALL_BYTES = 2000, 32 << 10
READ = [name for name in HISTORY_SCHEMA.names if name not in ("transactionalId", "deletes", "keySize", "valueSize", "valueHash")]


def sources() -> dict[str, tuple[Path, bytes]]:
    """Folders with a key that is sought in them; what is not there yet is written."""
    rare = b"key%08d" % 1000
    made = {f"{codec}, a rare key": (data.segment(codec).parent, rare) for codec in ("none", "zstd")}
    made["batches of 1 KiB, a rare key"] = (data.segment("none", data.SEGMENT_BYTES, 1 << 10).parent, rare)
    for name, size, keys in (
        ("values of 1 KiB, a rare key", 1024, 1 << 30),
        ("values of 100 B, a key of 1 in 1,000", 100, 1000),
        ("values of 100 B, a key of 1 in 100", 100, 100),
    ):
        folder = data.FOLDER / f"history_lz4_{size}_{keys}-0"
        if not folder.exists():
            count = data.SEGMENT_BYTES // (size + 20)
            text = data.text(count * size)
            values = [text[i * size : (i + 1) * size] for i in range(count)]
            kolumn.write(pa.table({"key": [b"key%08d" % (i % keys) for i in range(count)], "value": values}), folder, codec="lz4")
        made[name] = (folder, rare if keys > 1000 else b"key%08d" % 7)
    folder = data.FOLDER / "history_small-0"
    if not folder.exists():
        folder.mkdir(parents=True)
        segment = data.segment("none", SMALL_BYTES).read_bytes()
        for base in range(0, SMALL_SEGMENTS * data.records(segment), data.records(segment)):
            (folder / f"{base:020d}.log").write_bytes(data.rebase(segment, base))
    made["2,000 segments, one hit in each"] = (folder, b"key%08d" % 7)
    return made


def scan(source: Path, columns: list[str] | None, key: bytes | None = None) -> int:
    rows = 0
    for batch in kolumn.scan(source, columns=columns):
        rows += batch.num_rows if key is None else batch.filter(pc.equal(batch["key"], pa.scalar(key, pa.binary()))).num_rows
    return rows


def measured(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each way: the best of some runs, in turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(RUNS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    rows = []
    for name, (source, key) in sources().items():
        ways: dict[str, Callable[[], object]] = {
            "keys": partial(scan, source, ["key"]), "history": partial(kolumn.history, source, key=key),
            "cat": partial(scan, source, [*READ, "key", "value"], key),
            "read": partial(kolumn.read, source, isolation_level="read_committed"),
            "latest": partial(kolumn.latest, source),
        }  # fmt: skip
        found = kolumn.history(source, key=key).num_rows
        took = measured(ways)
        ratios = {"history": took["keys"] / took["history"], "cat": took["keys"] / took["cat"], "latest": took["read"] / took["latest"]}
        rows.append({"log": name, "found": found, "keys_ms": round(1000 * took["keys"], 1), **{k: round(v, 2) for k, v in ratios.items()}})
        print(rows[-1], flush=True)
    print(machine.save("history", {"rows": rows}))


if __name__ == "__main__":
    main()
