"""Random queries in one session, with random settings: the connector and the source written in Python answer as Spark does over the
table of `kolumn.read`, and the connector's memory stays bounded."""

import os
import random
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import cases
from kit.fuzz import FIRST, SECONDS
from kit.queries import COLUMNS, TYPED, Asks, avro_value, own_logs
from kit.spark_session import connector_workers

pytestmark = [pytest.mark.spark, pytest.mark.slow]


PYTHON = float(os.environ.get("KOLUMN_CONNECTOR_PYTHON", "0.1"))
"""The part of the queries that are asked of the source written in Python too."""
SETTINGS = {
    "spark.kolumn.handOver": ["memory", "memory", "pipe"],
    "spark.kolumn.reportPartitioning": ["true", "false"],
    "spark.sql.adaptive.enabled": ["true", "false"],
    "spark.sql.ansi.enabled": ["true", "false"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "10485760"],
    "spark.sql.codegen.wholeStage": ["true", "true", "false"],
    "spark.sql.requireAllClusterKeysForCoPartition": ["true", "false"],
    "spark.sql.session.timeZone": ["UTC", "Asia/Kathmandu", "America/St_Johns"],
}


def settings(spark: SparkSession, chance: random.Random) -> dict[str, str]:
    for name, choices in SETTINGS.items():
        spark.conf.set(name, chance.choice(choices))
    found = {"splitBytes": chance.choice(["5000", "200000", "134217728"]), "chunkBytes": chance.choice(["3000", "100000", "16777216"])}
    return found | chance.choice([{}, {}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "400"}, {"checkCrcs": "true"}])


def asked(spark: SparkSession, query: str, table: str) -> list[str]:
    """Rows in any order, or the kind of an error of Spark's: ANSI has more of them."""
    try:
        return sorted(map(repr, map(tuple, spark.sql(re.sub(r"\b(FROM|JOIN) log\b", rf"\1 {table}", query)).collect())))
    except PySparkException as error:
        return [str(error.getCondition() or type(error).__name__)]


def same(spark: SparkSession, query: str, *others: str) -> None:
    # OFFSET is a word of SQL too.
    query = re.sub(r"\boffset\b", "`offset`", query)
    found = asked(spark, query, "log")
    for table in ("truth", *others):
        wanted, drawn = asked(spark, query, table), {name: spark.conf.get(name) for name in SETTINGS}
        assert found == wanted, (query, table, found[:5], wanted[:5], len(found), len(wanted), drawn)


def sources(root: Path, chance: random.Random) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Logs, and the options of `kolumn.read` that change rows."""
    folders = [case.directory for case in cases()]
    while True:
        yield own_logs(root / str(chance.randrange(10**9)), chance), {}
        yield own_logs(root / str(chance.randrange(10**9)), chance), TYPED["json"]
        yield own_logs(root / str(chance.randrange(10**9)), chance, avro_value), TYPED["avro"]
        for folder in chance.sample(folders, 2):
            yield folder, chance.choice([{}, {"isolation_level": "read_committed"}, {"include_control": True}])


def test_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(FIRST)
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    until, done, grown = time.monotonic() + SECONDS, 0, []
    try:
        for path, more in sources(tmp_path / "logs", chance):
            if time.monotonic() > until:
                break
            columns = [*COLUMNS, *(["valueValid"] if "value_format" in more else [])]
            rows = kolumn.read(path, columns=columns, threads=1, **more)
            pq.write_table(rows, tmp_path / f"{done}.parquet")
            spark.read.parquet(str(tmp_path / f"{done}.parquet")).createOrReplaceTempView("truth")
            named = {re.sub("_(.)", lambda match: match[1].upper(), name): str(value) for name, value in more.items()}
            asks = Asks(chance, rows, more.get("value_format"))
            for _ in range(12):
                options = {"columns": ",".join(columns)} | named | settings(spark, chance)
                readers = {"log": "columnar", **({"python": "python"} if chance.random() < PYTHON else {})}
                for view, reader in readers.items():
                    log = spark.read.format("kolumn").options(**options | {"reader": reader}).load(str(path))
                    log.createOrReplaceTempView(view)
                same(spark, asks.query(), *list(readers)[1:])
                done += 1
            grown.append(grown_to(spark))
            print(done, "queries,", path, grown[-1], flush=True)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
        for view in ("truth", "log", "python"):
            spark.catalog.dropTempView(view)
    assert done
    # The JVM maps what workers have, and what they have dropped since they last handed a batch over.
    for name, most in (("files", 100), ("bytes", 1 << 29), ("mapped", 250)):
        assert max(found[name] for found in grown) < most


def grown_to(spark: SparkSession) -> dict[str, int]:
    """The most open files of a worker, bytes of its blocks, and mappings of all workers' blocks in the JVM."""
    jvm = spark._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
    files = {pid: list(Path(f"/proc/{pid}/fd").iterdir()) for pid in connector_workers(spark)}
    blocks = {pid: [file.stat().st_size for file in found if stat.S_ISREG(file.stat().st_mode)] for pid, found in files.items()}
    return {
        "files": max(map(len, files.values()), default=0),
        "bytes": max(map(sum, blocks.values()), default=0),
        "mapped": Path(f"/proc/{jvm}/maps").read_text().count("memfd:kolumn"),
        "all mappings": Path(f"/proc/{jvm}/maps").read_text().count("\n"),
    }
