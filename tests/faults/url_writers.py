"""Writers whose target is a URL, and exports, which commit in the same way at every target."""

import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

import kolumn
from faults.writers import YOUNG, older_logs, one_is_there
from kit import object_store
from kit.faults import Writer
from kolumn.commit import remote as remote_commit
from kolumn.commit.manifest import FOLDER, ExportTarget
from kolumn.encode.outgoing import send
from kolumn.source import storage

assert object_store.ObjectStore.protocol == "objects"
URL = "objects://{target}"


def write_folder(source: Path, target: Path) -> None:
    kolumn.write(kolumn.read(source / "orders-0"), f"objects://{target}/orders-0", segment_bytes=6000, batch_bytes=2000)


def write_segment(source: Path, target: Path) -> None:
    kolumn.write(kolumn.read(source / "orders-0"), f"objects://{target}/orders-0/00000000000000000000.log", batch_bytes=2000)


def _publish(source: Path, target: Path, overwrite: bool) -> None:
    """The end of a Spark job: staged files of its tasks get their final names."""
    from kolumn.spark_plugin.write.publish import StagedSegments, publish

    url = f"objects://{target}"
    staging, pieces = remote_commit.new_folder(url, "write"), []
    for partition in (0, 1):
        table = kolumn.read(source / f"orders-{partition}")
        attempt = f"{staging}/{uuid.uuid4().hex}"
        with TemporaryDirectory() as folder:
            kolumn.write(table, Path(folder, f"orders-{partition}"), segment_bytes=6000, batch_bytes=2000)
            send(Path(folder), attempt)
        pieces.append(StagedSegments("orders", partition, f"{attempt}/orders-{partition}", 0, table.num_rows - 1))
    try:
        publish(url, staging, pieces, overwrite)
    finally:
        remote_commit.discard(staging)


def append(source: Path, target: Path) -> None:
    _publish(source, target, overwrite=False)


def overwrite(source: Path, target: Path) -> None:
    _publish(source, target, overwrite=True)


def export(where: str) -> Callable[[Path, Path], None]:
    """An export without its Spark job: new records are staged and published, under the target's lock if it has one."""

    def run(source: Path, target: Path) -> None:
        place, run = ExportTarget(*storage.file_system(where.format(target=target))), uuid.uuid4().hex
        with place.alone():
            before = place.open()
            place.sweep()
            files = []
            for partition in (0, 1):
                table = kolumn.read(source / f"orders-{partition}", columns=["offset", "value"])
                new = table.slice(before.next_offset("orders", partition) or 0)
                for part in (new.slice(0, 30), new.slice(30)):
                    if part.num_rows:
                        files.append(_stage(place, run, partition, part))
            if files:
                moves = {f"{FOLDER}/staging/{run}/{one['path'].rpartition('-')[2]}": one["path"] for one in files}
                place.publish(before.after(files), moves)
            if not place.pending():
                place.discard(run)

    return run


def _stage(place: ExportTarget, run: str, partition: int, part: pa.Table) -> dict[str, object]:
    name = f"{uuid.uuid4().hex}.parquet"
    place.files.create_dir(place.staging(run), recursive=True)
    with place.files.open_output_stream(f"{place.staging(run)}/{name}") as out:
        pq.write_table(part, out)
    first, last = part["offset"][0].as_py(), part["offset"][-1].as_py()
    path = f"topic=orders/partition={partition}/{first:020d}-{name}"
    return {"path": path, "topic": "orders", "partition": partition, "rows": part.num_rows, "first": first, "last": last}


def notes(source: Path, target: Path) -> None:
    """Put files of somebody else into the target."""
    (target / "topic=orders" / "partition=0").mkdir(parents=True)
    (target / "topic=orders" / "partition=0" / "mine.parquet").write_text("mine")
    (target / "notes.txt").write_text("mine")


def into_partition(source: Path, target: Path) -> None:
    (target / "orders-0").mkdir(parents=True)
    (target / "orders-0" / "partition.metadata").write_text("mine")


WRITERS = [
    Writer("url-write", function=write_folder),
    Writer("url-write-segment", function=write_segment, before=into_partition),
    Writer("url-convert", ("convert", "{source}", "-o", URL, "--codec", "lz4"), before=one_is_there),
    Writer("url-compact", ("compact", "{source}", URL)),
    Writer("url-clean", ("clean", "{source}", URL, "--retention-ms", "0", "--now", YOUNG)),
    Writer("url-spark-append", function=append, before=one_is_there, refuses="were to be appended"),
    Writer("url-spark-overwrite", function=overwrite, before=older_logs, replaces=True),
    Writer("url-export", function=export(URL), before=notes, replaces=True),
    Writer("export", function=export("{target}"), before=notes, replaces=True),
]
