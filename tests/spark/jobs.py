"""Spark programs in processes of their own, because Spark allows one context in each: ``jobs.py <function> <argument>...``."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import kolumn.spark_plugin as plugin
from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session.java import use_java

QUIET = {
    "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
}  # fmt: skip


def session(master: str = "local[1]", settings: Mapping[str, str] = {}, configure: Callable[[Any], Any] = lambda builder: builder) -> Any:
    use_java()
    builder = configure(SparkSession.builder.master(master))
    for name, value in {**QUIET, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def on_cluster(
    master: str, home: Path, settings: Mapping[str, str], configure: Callable[[Any], Any] = lambda builder: builder, python: str = ""
) -> SparkSession:
    """A session with a driver and executors, each in a JVM of its own; ``python`` is that of the executors."""
    # Workers write files to a folder in Spark's home, so the home is a folder of links to the one in the environment.
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    os.environ |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python or sys.executable}
    return session(master, {"spark.executor.memory": "1g", "spark.sql.session.timeZone": "UTC", **settings}, configure)


def tell(result: object) -> None:
    """What `kit.spark_session.run_job` returns."""
    print("\nRESULT", json.dumps(result), flush=True)


def is_first(mark: str) -> bool:
    """Whether this is the first call for a mark, in any process."""
    with suppress(FileExistsError):
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        return True
    return False


def kill_once(mark: str) -> None:
    """Kill the executor that runs this task, the first time that any task calls this."""
    if not is_first(mark):
        return
    executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    os.kill(executor, signal.SIGKILL)
    signal.pause()


def cluster(source: str, target: str, package: str) -> None:
    """Read, while an executor is killed."""
    marks = tempfile.mkdtemp(dir=Path(target).parent)
    # A lost executor does not count as a failure of the task.
    settings = {"spark.submit.pyFiles": package, "spark.task.maxFailures": "8"}
    spark = on_cluster("local-cluster[2,1,1024]", Path(target).with_name("spark"), settings)

    def digest(batch: pa.RecordBatch) -> pa.RecordBatch:
        import kolumn

        if batch.column("offset")[-1].as_py() > 0:
            kill_once(f"{marks}/read")
        size = pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        values = {"file": kolumn.__file__, "topic": batch.column("topic")[0].as_py(), "rows": batch.num_rows, "bytes": size}
        return pa.RecordBatch.from_pylist([values])

    options = {"columns": ["value", "topic", "offset"], "split_bytes": 100_000}
    frame = plugin.read_segments(spark, source, transform=digest, schema="file string, topic string, rows long, bytes long", **options)
    topics = frame.groupBy("topic").agg(sql.sum("rows"), sql.sum("bytes"), sql.first("file")).collect()
    plugin.register(spark)
    rows = spark.read.format("kolumn").option("splitBytes", "100000").load(source).select("topic", "offset", "key", "value")
    pq.write_table(rows.toArrow(), f"{target}.rows.parquet")
    killed = sorted(os.listdir(marks))
    spark.stop()
    tell({"topics": [tuple(row) for row in topics], "killed": killed})


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A cluster with an executor on each of two hosts, because Spark makes no second attempt on the host of the first."""
    use_java()
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    master, java = f"spark://127.0.0.1:{port}", str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    commands = [f"master.Master --host 127.0.0.1 --port {port} --webui-port 0".split()]
    for host in ("127.0.0.2", "127.0.0.3"):
        commands.append([*f"worker.Worker --host {host} -c 1 -m 1g --webui-port 0 -d".split(), str(folder / host), master])
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([java, f"org.apache.spark.deploy.{name}", *rest], **quiet) for name, *rest in commands]
    try:
        yield master
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(60)


def misbehaving(spark: SparkSession, target: str, how: Callable[[str], None]) -> None:
    """Write segments. Each task writes correct rows, and then fails or waits the first time."""
    marks = f"{target}.marks"
    os.mkdir(marks)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = -1
        for batch in batches:
            first = batch.column("value")[0].as_py() if first == -1 else first
            yield batch
        how(f"{marks}/rows-{first}")

    plugin.register(spark)
    frame = spark.range(0, 60, 1, 3).selectExpr("cast(id as string) as value").mapInArrow(rows, "value string")
    frame.write.format("kolumn").mode("append").option("topic", "t").save(f"{target}/log")
    tell(sorted(os.listdir(marks)))


def failing(target: str) -> None:
    """Tasks fail once, after they have written."""

    def fails(mark: str) -> None:
        if is_first(mark):
            raise ValueError("the first attempt fails")

    os.environ["PYSPARK_PYTHON"] = sys.executable
    misbehaving(session("local[2,4]"), target, fails)


def slow(target: str) -> None:
    """Two hosts and speculation: the first attempt of a task runs for longer than the job. One, because Spark compares it with others."""

    def takes_long(mark: str) -> None:
        if mark.endswith("rows-0") and is_first(mark):
            time.sleep(120)
            Path(f"{mark}-waited").touch()

    os.environ["PYSPARK_PYTHON"] = sys.executable
    names = {"interval": "100ms", "quantile": "0.3", "multiplier": "0.1", "minTaskRuntime": "1s"}
    settings = {"spark.speculation": "true", "spark.executor.memory": "1g"} | {f"spark.speculation.{k}": v for k, v in names.items()}
    with two_hosts(Path(f"{target}.home")) as master:
        misbehaving(session(master, settings), target, takes_long)


def packed(log: str, archive: str) -> None:
    """Only executors have the Python of the archive."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        # As spark-submit --jars "$(kolumn jar)" --archives ... does, without a call of `configure`.
        settings = {"spark.jars": str(plugin.connector_jar()), "spark.archives": f"{archive}#environment"}
        spark = on_cluster("local-cluster[1,1,1024]", Path(folder) / "home", settings, python="./environment/bin/python")
        records = spark.read.format("kolumn").option("reader", "columnar").load(log)
        tell([records.count(), records.select("value").count(), len(records.select("key").collect())])
        spark.stop()


def streaming(log: str, out: str, checkpoint: str, offsets: str, reader: str) -> None:
    """Read all available records, with at most ``offsets`` of them in a micro-batch."""
    spark = session(configure=plugin.configure)
    plugin.register(spark)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": offsets, "reader": reader}
    source = spark.readStream.format("kolumn").options(**options).load(log)
    writer = source.select("partition", "offset").writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(out).awaitTermination()
    spark.stop()


def mirroring(source: str, log: str, checkpoint: str, reader: str) -> None:
    """Write all available lines of text into a log, a file in each epoch."""
    spark = session(configure=plugin.configure, settings={"spark.kolumn.reader": reader})
    plugin.register(spark)
    frame = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(source)
    writer = frame.writeStream.format("kolumn").option("topic", "t").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(log).awaitTermination()
    spark.stop()


def slow_write(target: str) -> None:
    """Write until this process is killed."""
    spark = session()
    plugin.register(spark)

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            # By then the first ones have come through what lies between the processes.
            time.sleep(600 if number == 5 else 0)

    frame = spark.range(0, 80000, 1, 1).selectExpr("repeat('x', 1000) AS value").mapInArrow(slow, "value string")
    frame.write.format("kolumn").mode("append").option("topic", "t").save(target)


def smoke(path: str, scratch: str) -> None:
    """Read, stream and write by ``format("kolumn")``, which Spark finds though nothing is registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session("local[2]")
    frame = spark.read.format("kolumn").option("includeHeaders", "true").load(path)
    found = [frame.count(), plugin.read_segments(spark, path, include_headers=True).filter(sql.size("headers") >= 0).count()]
    stream = spark.readStream.format("kolumn").options(startingOffsets="earliest", maxOffsetsPerTrigger="3000").load(path)
    writer = stream.writeStream.format("memory").queryName("streamed").option("checkpointLocation", f"{scratch}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    found.append(spark.table("streamed").count())
    frame.coalesce(1).write.format("kolumn").mode("append").option("codec", "zstd").save(f"{scratch}/log")
    found.append(spark.read.format("kolumn").load(f"{scratch}/log").count())
    spark.stop()
    tell(found)


def by_packages(path: str, repository: str, coordinates: str, ivy: str) -> None:
    """As spark-submit --packages ... --repositories ... does, without a call of `configure`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.jars.packages": coordinates, "spark.jars.repositories": f"file://{repository}", "spark.jars.ivy": ivy}
    spark = session(settings=settings)
    rows = spark.read.format("kolumn").option("reader", "columnar").load(path).where("offset >= 0").count()
    tell([rows, *(Path(jar).name for jar in spark.sparkContext.getConf().get("spark.jars").split(","))])


def wrong_python(path: str) -> None:
    """Import Kolumn and set no Python for Spark, which would use a wrong one: the job has to work, or to explain the error."""
    spark = session()
    found: list[object] = [spark.sparkContext.pythonExec]
    try:
        found += [plugin.read_segments(spark, path).count(), plugin.register(spark), spark.sparkContext.pythonExec]
        found += [spark.read.format("kolumn").option("table", table).load(path).count() for table in ("records", "damage")]
    except MissingError as error:
        found.append(str(error))
    spark.stop()
    tell(found)


def by_name(path: str) -> None:
    """Read by the format's name, without registering it and without calling Kolumn."""
    tell(session().read.format("kolumn").load(path).count())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
