"""The writers that the tests of this folder try. A new one needs a row here."""

import uuid
from pathlib import Path

import kolumn
from kit.faults import Writer, records

YOUNG = "1700000000050"
"""A time for `clean`, between the first and the last record of each first segment."""


def make_source(folder: Path, scale: int = 1) -> Path:
    """A log directory with two topic-partitions, one of two segments and one of one."""
    for name, count in (("orders-0", 100 * scale), ("orders-1", 60 * scale)):
        kolumn.write(records(count), folder / name, segment_bytes=6000 * scale, batch_bytes=2000, index_interval_bytes=1000)
    return folder


def _write(target_name: str, source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    kolumn.write(kolumn.read(source / "orders-0"), target / target_name, segment_bytes=6000, batch_bytes=2000)


def write_folder(source: Path, target: Path) -> None:
    _write("orders-0", source, target)


def write_segment(source: Path, target: Path) -> None:
    _write("00000000000000000000.log", source, target)


def into_empty_folder(source: Path, target: Path) -> None:
    (target / "orders-0").mkdir(parents=True)


def one_is_there(source: Path, target: Path) -> None:
    """Another topic-partition, and a folder of one that is going to be written, with a file of somebody else in it."""
    kolumn.write(records(20), target / "payments-0")
    (target / "orders-0").mkdir()
    (target / "orders-0" / "leader-epoch-checkpoint").write_text("0\n")


def older_parquet(source: Path, target: Path) -> None:
    """Files with other contents, which a run replaces, and one that it does not know."""
    for one in sorted((source / "orders-0").glob("*.log")):
        folder = target / "topic=orders" / "partition=0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{one.stem}.parquet").write_bytes(b"older")
    (target / "notes.txt").write_text("mine")


def _publish(source: Path, target: Path, overwrite: bool) -> None:
    """The end of a Spark job: staged files of its tasks get their final names."""
    from kolumn.spark_plugin.write.publish import StagedSegments, publish

    pieces = []
    for partition in (0, 1):
        table = kolumn.read(source / f"orders-{partition}")
        staged = target.parent / "staging" / uuid.uuid4().hex
        kolumn.write(table, staged / f"orders-{partition}", segment_bytes=6000, batch_bytes=2000)
        pieces.append(StagedSegments("orders", partition, str(staged / f"orders-{partition}"), 0, table.num_rows - 1))
    publish(str(target), str(target.parent / "staging"), pieces, overwrite)


def append(source: Path, target: Path) -> None:
    _publish(source, target, overwrite=False)


def overwrite(source: Path, target: Path) -> None:
    _publish(source, target, overwrite=True)


def older_logs(source: Path, target: Path) -> None:
    """Topic-partitions that are going to be replaced, one with the same name and one with another."""
    for name in ("orders-0", "payments-0"):
        kolumn.write(records(20), target / name)
    (target / "notes.txt").write_text("mine")


def stale_indexes(source: Path, target: Path) -> None:
    """The logs of the source, with index files that say something else."""
    for one in sorted(source.rglob("*.log")):
        folder = target / one.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / one.name).write_bytes(one.read_bytes())
        for suffix in (".index", ".timeindex", ".txnindex"):
            (folder / one.name).with_suffix(suffix).write_bytes(b"stale")


def rebuild(source: Path, target: Path) -> None:
    kolumn.rebuild_index(target, index_interval_bytes=1000)


PARQUET = ("to-parquet", "{source}", "{target}")
WRITERS = [
    Writer("write", function=write_folder),
    Writer("write-empty-folder", function=write_folder, before=into_empty_folder),
    Writer("write-segment", function=write_segment),
    Writer("convert", ("convert", "{source}", "-o", "{target}", "--codec", "lz4")),
    Writer("convert-beside-others", ("convert", "{source}", "-o", "{target}", "--magic", "1"), before=one_is_there),
    Writer("compact", ("compact", "{source}", "{target}")),
    Writer("clean", ("clean", "{source}", "{target}", "--retention-ms", "0", "--now", YOUNG)),
    Writer("recover", ("recover", "{source}", "{target}")),
    Writer("spark-append", function=append, before=one_is_there, refuses="were to be appended"),
    Writer("spark-overwrite", function=overwrite, before=older_logs, replaces=True),
    Writer("rebuild-index", function=rebuild, before=stale_indexes, replaces=True),
    Writer("to-parquet", PARQUET),
    Writer("to-parquet-overwrite", (*PARQUET, "--overwrite"), before=older_parquet, replaces=True),
]
