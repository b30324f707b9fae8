"""The writers that the tests of this folder try. A new one needs a row here."""

import shutil
from functools import partial
from pathlib import Path

import kolumn
from kit import object_store
from kit.faults import Writer, records

assert object_store.ObjectStore.protocol == "objects"
YOUNG = "1700000000050"
"""A time for `clean`, between the first and the last record of each first segment."""


def make_source(folder: Path, scale: int = 1) -> Path:
    """A log directory with two topic-partitions, one of two segments and one of one."""
    for name, count in (("orders-0", 100 * scale), ("orders-1", 60 * scale)):
        kolumn.write(records(count), folder / name, segment_bytes=6000 * scale, batch_bytes=2000, index_interval_bytes=1000)
    return folder


def write_folder(source: Path, target: str) -> None:
    kolumn.write(kolumn.read(source / "orders-0"), f"{target}/orders-0", segment_bytes=6000, batch_bytes=2000)


def write_segment(source: Path, target: str) -> None:
    kolumn.write(kolumn.read(source / "orders-0"), f"{target}/orders-0/00000000000000000000.log", batch_bytes=2000)


def into_partition(source: Path, target: Path) -> None:
    (target / "orders-0").mkdir(parents=True)
    (target / "orders-0" / "partition.metadata").write_text("mine")


def one_is_there(source: Path, target: Path) -> None:
    """Another topic-partition, and a folder of one that is going to be written, with a file of somebody else in it."""
    kolumn.write(records(20), target / "payments-0")
    (target / "orders-0").mkdir()
    (target / "orders-0" / "leader-epoch-checkpoint").write_text("0\n")


def older_parquet(source: Path, target: Path) -> None:
    """Files with other contents, which a run replaces, and one that it does not know."""
    folder = target / "topic=orders" / "partition=0"
    folder.mkdir(parents=True)
    for log in sorted((source / "orders-0").glob("*.log")):
        (folder / f"{log.stem}.parquet").write_bytes(b"older")
    (target / "notes.txt").write_text("mine")


def side_files(source: Path, target: Path) -> None:
    """A copy of the source with files that an erasure copies: the source is that of other writers too."""
    copy = source.with_name("with-side-files")
    if not copy.exists():
        shutil.copytree(source, copy)
        for folder in copy.iterdir():
            for name in ("partition.metadata", "leader-epoch-checkpoint", f"{7:020}.snapshot"):
                (folder / name).write_text("0\n")


def erase(source: Path, target: str) -> None:
    kolumn.erase(source.with_name("with-side-files"), target, keys="key-3", verify=True)


def _spark_job(source: Path, target: str, overwrite: bool) -> None:
    """What Spark's driver and one task do for ``df.write``; a failed job is aborted."""
    from kolumn.spark_plugin.read.schema import spark_schema
    from kolumn.spark_plugin.write.writer import SegmentWriter, WriteOptions

    table = kolumn.read(source, columns=["topic", "partition", "offset", "key", "value"])
    options = WriteOptions.of({"path": target, "segmentBytes": "6000", "batchBytes": "2000"})
    job = SegmentWriter(options, spark_schema(table.schema), overwrite)
    try:
        job.commit([job.write(iter(table.combine_chunks().to_batches()))])
    except BaseException:
        job.abort([])
        raise


append, overwrite = (partial(_spark_job, overwrite=overwrite) for overwrite in (False, True))


def _epoch(source: Path, target: str, number: int) -> None:
    """What Spark does for an epoch of ``writeStream``: a writer in a Python of the driver, a task, and a writer in another Python."""
    from kolumn.spark_plugin.read.schema import spark_schema
    from kolumn.spark_plugin.write import stream

    class Task:
        """The task of a query."""

        get = classmethod(lambda cls: cls)

        @staticmethod
        def getLocalProperty(name: str) -> str:  # noqa: N802
            return {stream.ID_OF_TASK: "01234567-89ab-cdef-0123-456789abcdef"}[name]

    table = kolumn.read(source / f"orders-{number}", columns=["topic", "partition", "key", "value"])
    options = {"path": target, "segmentBytes": "6000", "batchBytes": "2000", "checkpointLocation": "/checkpoint"}
    vars(stream)["TaskContext"] = Task
    try:
        rows = iter(table.combine_chunks().to_batches())
        messages = [stream.StreamWriter(options, spark_schema(table.schema), False).write(rows)]
        stream.StreamWriter(options, spark_schema(table.schema), False).commit(messages, number)
    except BaseException:
        stream.StreamWriter(options, spark_schema(table.schema), False).abort([], number)
        raise


def first_epoch(source: Path, target: Path) -> None:
    one_is_there(source, target)
    _epoch(source, str(target), 0)


epochs = tuple(partial(_epoch, number=number) for number in (0, 1))


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


CONVERT = ("convert", "{source}", "-o", "{target}", "--codec", "lz4")
COMPACT = ("compact", "{source}", "{target}")
CLEAN = ("apply-retention", "{source}", "{target}", "--retention-ms", "0", "--now", YOUNG)
PARQUET = ("to-parquet", "{source}", "{target}")
URL = "objects://"
WRITERS = [
    Writer("write", function=write_folder),
    Writer("write-empty-folder", function=write_folder, before=lambda source, target: (target / "orders-0").mkdir(parents=True)),
    Writer("write-segment", function=write_segment, before=into_partition),
    Writer("convert", CONVERT),
    Writer("convert-beside-others", ("convert", "{source}", "-o", "{target}", "--magic", "1"), before=one_is_there),
    Writer("convert-to-redpanda", (*CONVERT, "--to", "redpanda")),
    Writer("compact", COMPACT),
    Writer("erase", function=erase, before=side_files),
    Writer("apply-retention", CLEAN),
    Writer("recover", ("recover", "{source}", "{target}")),
    Writer("spark-append", function=append, before=one_is_there, refuses="were to be appended"),
    Writer("spark-overwrite", function=overwrite, before=older_logs, replaces=True),
    Writer("spark-stream-begins", function=epochs[0], before=one_is_there),
    Writer("spark-stream", function=epochs[1], before=first_epoch, replaces=True),
    Writer(
        "rebuild-index",
        function=lambda _, target: kolumn.rebuild_index(target, index_interval_bytes=1000),
        before=stale_indexes,
        replaces=True,
    ),
    Writer("to-parquet", PARQUET),
    Writer("to-parquet-overwrite", (*PARQUET, "--overwrite"), before=older_parquet, replaces=True),
    Writer("url-write", function=write_folder, scheme=URL),
    Writer("url-write-segment", function=write_segment, before=into_partition, scheme=URL),
    Writer("url-convert", CONVERT, before=one_is_there, scheme=URL),
    Writer("url-convert-to-redpanda", (*CONVERT, "--to", "redpanda"), scheme=URL),
    Writer("url-compact", COMPACT, scheme=URL),
    Writer("url-erase", function=erase, before=side_files, scheme=URL),
    Writer("url-clean", CLEAN, scheme=URL),
    Writer("url-spark-append", function=append, before=one_is_there, refuses="were to be appended", scheme=URL),
    Writer("url-spark-overwrite", function=overwrite, before=older_logs, replaces=True, scheme=URL),
    Writer("url-spark-stream-begins", function=epochs[0], before=one_is_there, scheme=URL),
    Writer("url-spark-stream", function=epochs[1], before=first_epoch, replaces=True, scheme=URL),
]
