"""One session in which queries decode in the executor, on the tests' own libcuda: ``executor_queries_job.py ask FOLDER``.

There is no accelerator: `OnDevice.java` calls the connector's function as that would.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from jobs import session, tell  # type: ignore[import-not-found]
from py4j.java_gateway import get_field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from rapids_job import answers, counted, failure, final_plan, joined, load  # type: ignore[import-not-found]

import kolumn.spark_plugin as plugin
from kit.decode_calls import HARNESS
from kit.fuzz import FIRST, SECONDS
from kit.own_libcuda import OwnLibcuda
from kit.plain_spark import soon
from kit.queries import TYPED
from kit.reads import EVERYTHING, messages, no_text, random_queries, reads, trusted
from kolumn.spark_plugin import connector_jar
from kolumn.spark_plugin.session import build as building


def ask(folder: str) -> None:
    """Queries that decode there, beside what the same ones answer with ``backend=cpu``."""
    scratch, classes = Path(folder), Path(folder, "classes")
    building.compile_java(classes, *HARNESS)
    settings = {
        "spark.plugins": "com.nvidia.spark.SQLPlugin", "spark.sql.extensions": "kolumn.OnDevice", "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": os.pathsep.join([str(classes), str(connector_jar())]), "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-ea:ai.rapids.cudf...", "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    with OwnLibcuda(scratch / "libraries") as gpu:
        os.environ |= gpu.environment | {"PYSPARK_PYTHON": sys.executable}
        spark = session("local[2]", settings)
        plugin.register(spark)
        found = Asking(spark, gpu, scratch).everything()
        spark.stop()
    tell(found)


class Asking:
    def __init__(self, spark: SparkSession, gpu: OwnLibcuda, scratch: Path) -> None:
        self.spark, self.gpu, self.scratch, self.patience = spark, gpu, scratch, 20
        jvm: Any = spark._jvm
        self.device, self.standin, self.jvm = jvm.kolumn.OnDevice, jvm.ai.rapids.cudf.StandIn, jvm

    def everything(self) -> dict[str, Any]:
        chance = random.Random(FIRST)
        made = [*reads(self.scratch), *(one(self.scratch, chance) for one in (trusted, messages, no_text))]
        places = {name: (path, options) for name, path, options in made}
        found: dict[str, Any] = {"reads": {name: self.rows(load, path, **options) for name, path, options in made}}
        found["parts"] = {part.__name__: self.rows(part, *places[name]) for name, part in PARTS}
        found["queries"] = list(self.queries(chance))
        path, options = places["damaged"]
        found["taken"] = self.taken(places["string"][0])
        found["joined"] = joined(self.spark, places["string"][0])
        found["turns"] = self.turns()
        found["counted"] = counted(self.spark, path, options)
        found["errors"] = [failure(load(self.spark, path, backend=one)) for one in ("auto", "cpu")]
        found["explained"] = self.explained(places["string"][0])
        found["failed"] = self.failed(places["string"][0])
        found["cancelled"] = [self.cancelled(places["string"][0], interrupt) for interrupt in (False, True)]
        found["after"] = self.rows(load, places["typed"][0], **places["typed"][1])
        found["most"], found["inflated"] = self.device.MOST, self.gpu.asked["inflate"]
        found["messages written"] = self.gpu.asked["launched write_messages"]
        found["locked"] = self.locked()
        return found

    def calls(self) -> int:
        return int(self.device.CALLS)

    def left(self) -> list[int]:
        """Calls, buffers, views, columns and pieces of memory of the device that are there still, when no task should run."""

        def found() -> list[int]:
            return [self.device.running(), self.standin.BUFFERS, self.standin.VIEWS, self.standin.COLUMNS, len(self.gpu.live)]

        if not soon(lambda: not any(found()), self.patience):
            # What was not closed will not be the next time either.
            self.patience = 0
        return found()

    def rows(self, ask: Callable[..., DataFrame], *place: Any, **options: str) -> dict[str, Any]:
        """Whether a read has the same rows both ways, in the order of the log."""
        before = self.calls()
        found = ask(self.spark, *place, **options).toArrow()
        calls = self.calls() - before
        wanted = ask(self.spark, *place, backend="cpu", **options).toArrow()
        wrong = "" if found.equals(wanted) else f"{difference(found, wanted)}"
        return {"rows": wanted.num_rows, "calls": calls, "wrong": wrong, "left": self.left(), "more": self.calls() - before - calls}

    def queries(self, chance: random.Random) -> Iterator[dict[str, Any]]:
        """Random ones, for some seconds, and at least one of each kind of log."""
        kinds = [random_queries(self.scratch, chance, kind) for kind in (None, *TYPED)]
        until, number = time.monotonic() + SECONDS, 0
        while number < len(kinds) or time.monotonic() < until:
            path, options, query = next(kinds[number % len(kinds)])
            options["splitBytes"] = chance.choice(["30000", "200000"])
            number += 1
            # Without it exchanges are there before the operators of a device are.
            self.spark.conf.set("spark.sql.adaptive.enabled", chance.choice(["true", "true", "false"]))
            before = self.calls()
            found, calls = answers(self.spark, path, options, query), self.calls() - before
            wanted = answers(self.spark, path, options | {"backend": "cpu"}, query)
            wrong = [] if found == wanted else [found[:5], wanted[:5]]
            yield {"query": query, "rows": len(wanted), "calls": calls, "wrong": wrong, "left": self.left()}
        self.spark.conf.unset("spark.sql.adaptive.enabled")

    def taken(self, path: str) -> list[Any]:
        """A limit that the first splits satisfy: the rows both ways, and how many calls that took."""
        before, found = self.calls(), []
        for backend in ("auto", "cpu"):
            frame = load(self.spark, path, splitBytes="3000", backend=backend).filter("length(value) > 3").select("partition", "offset")
            found.append([tuple(row) for row in frame.limit(90).collect()])
        return [*found, self.calls() - before, self.left()]

    def explained(self, path: str) -> list[str]:
        """What EXPLAIN says, and two plans that have run: the first with an exchange that is used twice."""
        load(self.spark, path).createOrReplaceTempView("log")
        said: Any = self.spark.sql("EXPLAIN SELECT key FROM log WHERE `offset` > 5").first()
        self.spark.conf.set("spark.sql.adaptive.enabled", "false")
        one, other = (load(self.spark, path, splitBytes="3000").groupBy("partition").agg(sql.sum("offset")) for _ in range(2))
        reused = final_plan(one.union(other))
        self.spark.conf.unset("spark.sql.adaptive.enabled")
        return [said[0], reused, final_plan(load(self.spark, path).groupBy("partition").agg(sql.sum("offset")))]

    def failed(self, path: str) -> list[Any]:
        """A launch fails on the device; then all is well again."""
        self.gpu.fail("cuLaunchKernel", 719)
        text = failure(load(self.spark, path))
        return [text, self.left(), load(self.spark, path).selectExpr("sum(length(value))").collect()[0][0]]

    def cancelled(self, path: str, interrupt: bool) -> dict[str, Any]:
        """A job is cancelled while its tasks wait for the device."""
        context, told = self.spark.sparkContext, []
        before, calls = self.device.RECORDS, self.calls()

        def run() -> None:
            context.setJobGroup("cancelled", "", interruptOnCancel=interrupt)
            told.append(failure(load(self.spark, path, splitBytes="3000")))

        with self.held("cuLaunchKernel") as begun:
            thread = threading.Thread(target=run)
            thread.start()
            waits = begun.wait(60)
            context.cancelJobGroup("cancelled")
            thread.join(60)
            # Spark tells the tasks at about the time when the job has ended.
            soon(self.device.areKilled)
        left = self.left()
        return {
            "waits": waits, "told": told, "left": left, "calls": self.calls() - calls, "records": self.device.RECORDS - before,
        }  # fmt: skip

    @contextmanager
    def held(self, call: str) -> Iterator[threading.Event]:
        """The device does not answer a call before the context ends; the event says that somebody waits."""
        answer, begun, over = self.gpu.answer, threading.Event(), threading.Event()

        def late(name: str, numbers: list[int], more: bytes) -> tuple[int, int]:
            if name == call:
                begun.set()
                over.wait(120)
            return answer(name, numbers, more)

        self.gpu.answer = late  # type: ignore[method-assign]
        try:
            yield begun
        finally:
            over.set()
            self.gpu.answer = answer  # type: ignore[method-assign]

    def turns(self) -> list[int]:
        """How often tasks let others use the GPU, and how often they waited for it then."""
        semaphore: Any = getattr(getattr(self.jvm.com.nvidia.spark.rapids, "GpuSemaphore$"), "MODULE$")
        asked = get_field(semaphore, "asked")
        return [self.jvm.java.util.Collections.frequency(asked, one) for one in ("release", "acquire")]

    def locked(self) -> int:
        """Pieces of memory of workers that are page-locked still when the workers have ended."""
        self.jvm.org.apache.spark.SparkEnv.get().conf().set("spark.kolumn.worker.idleSeconds", "0")
        soon(lambda: not self.gpu.locked)
        return len(self.gpu.locked)


def difference(found: pa.Table, wanted: pa.Table) -> str:
    """Types or numbers of rows, or the first rows that differ."""
    if found.schema != wanted.schema or found.num_rows != wanted.num_rows:
        return f"{found.num_rows} rows of {found.schema}, not {wanted.num_rows} of {wanted.schema}"
    names = [name for name in found.column_names if not found[name].equals(wanted[name])]
    # As text, since a number that is none is not equal to itself.
    pairs = [[repr(one.select(names).slice(row, 1).to_pydict()) for one in (found, wanted)] for row in range(found.num_rows)]
    return str([pair for pair in pairs if pair[0] != pair[1]][:3] or "")


def parts_of_values(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    """A read without the columns that a query does not need, nor fields of structs and of structs in arrays."""
    frame = load(spark, path, **EVERYTHING, **more)
    return frame.select("value.items.sku", "value.inner.x", "value.named", "value.dec9", "value.dec18", "value.dec38", "offset")


def a_limit(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    return load(spark, path, **options, **more).limit(7)


def no_splits(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    return load(spark, path, **more).filter("partition = 77")


def no_rows(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    return load(spark, path, **options, **more).filter("length(key) > 1000")


def no_columns(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    return load(spark, path, **options, **more).selectExpr("1 AS one")


def a_count(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    """For which headers do not suffice."""
    return load(spark, path, **options, **more).groupBy().count()


def cached(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    return load(spark, path, **options, **more).cache()


def of_two(spark: SparkSession, path: str, options: dict[str, str], **more: str) -> DataFrame:
    """A sorted join of two scans."""
    one, other = (load(spark, path, splitBytes=size, **more).select("partition", "offset", "key") for size in ("3000", "9000"))
    return one.hint("merge").join(other, ["partition", "offset"]).orderBy("partition", "offset")


PARTS: list[tuple[str, Callable[..., DataFrame]]] = [
    ("typed", parts_of_values),
    ("string", a_limit),
    ("string", no_splits),
    ("string", no_rows),
    ("string", no_columns),
    ("committed", a_count),
    ("string", cached),
    ("string", of_two),
]


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
