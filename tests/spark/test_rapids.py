"""The RAPIDS Accelerator: its settings and, with the real jar, the operators of each query that would run on a GPU."""

import json
import os
import random
import re
import subprocess
import sys
import zipfile
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE as CORPUS
from kit.fuzz import FIRST
from kit.plain_spark import Builder
from kit.queries import TYPED
from kit.reads import AVRO, EVERYTHING, NOT_ON_GPU, random_queries, reads
from kit.spark_session import run_job
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.spark_plugin import configure, connector_jar, rapids
from kolumn.spark_plugin.read.schema import arrow_schema, spark_schema
from kolumn.values.narrowing import Narrowed

JAR = "local:///opt/rapids.jar"
TOPIC = CORPUS / "v2-java" / "java-zstd-0"


def configured(**options: Any) -> Builder:
    settings = Builder()
    found: Any = rapids.configure(cast(Any, settings), jar=JAR, **options)
    assert found is settings
    return settings


@pytest.fixture(autouse=True)
def _known_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings do not depend on the Spark that is installed, nor on a GPU."""
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    monkeypatch.setattr(rapids, "gpu_sizes", lambda: [1000 << 30])
    monkeypatch.setattr(rapids, "driver_cuda", lambda: 13)


def test_other_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("3.5.0", "4.0.4", "4.1.3", "4.2.0"):
        rapids.check_spark(known)
    for version, right in {"4.1.4": "4.1.3", "4.1.0": "4.1.3", "4.2.1": "4.2.0", "4.3.0": "4.2.0", "3.4.1": "4.2.0"}.items():
        monkeypatch.setattr("pyspark.__version__", version)
        with pytest.raises(ArgumentError, match=rf"Spark {version}: .* does not start on it.*pyspark=={right}$"):
            configured()


def test_a_local_session() -> None:
    settings = configured(jvm_share=0.4, python_share=0.2)
    assert settings.items() >= {
        "spark.plugins": "com.nvidia.spark.SQLPlugin", "spark.jars": f"{JAR},{connector_jar()}", "spark.rapids.sql.mode": "executeOnGPU",
        "spark.rapids.memory.gpu.allocFraction": "0.4", "spark.rapids.memory.gpu.maxAllocFraction": "0.4",
        "spark.executorEnv.KOLUMN_GPU_SHARE": "0.2", "spark.rapids.sql.python.gpu.enabled": "false",
    }.items()  # fmt: skip
    assert configured(explain_only=True)["spark.rapids.sql.mode"] == "explainOnly"
    assert not [name for name in settings if "resource.gpu" in name]
    # Jars of the builder stay; the order of calls does not matter, nor does a second one.
    builder: Any = SparkSession.Builder().config("spark.jars", "/opt/own.jar,/opt/other.jar")
    for made in (configure, lambda one: rapids.configure(one, jar=JAR), configure):
        made(builder)
    assert sorted(builder._options["spark.jars"].split(",")) == sorted(["/opt/own.jar", "/opt/other.jar", JAR, str(connector_jar())])


def test_workers_get_no_memory_unless_they_are_given_some() -> None:
    names = ("spark.rapids.memory.gpu.allocFraction", "spark.executorEnv.KOLUMN_GPU_SHARE")
    for options, shares in (
        ({}, ("0.9", "0")),
        ({"python_share": 0.3}, ("0.5", "0.3")),
        ({"jvm_share": 0.8, "python_share": 0}, ("0.8", "0")),
    ):
        settings = configured(**options)
        assert tuple(settings[name] for name in names) == shares
    with pytest.warns(FutureWarning, match=r"python_share is 0 now where it is not given; it was 0\.3"):
        assert configured(jvm_share=0.8)[names[1]] == "0"


def test_settings_that_make_no_sense() -> None:
    options: Any
    for options, message in (
        ({"cluster": "mesos"}, "expected None for a local session, or one of standalone, yarn, kubernetes"),
        ({"jvm_share": 0.9, "python_share": 0.1}, "expected at most 0.95 together"),
        ({"jvm_share": -0.1, "python_share": 0}, "expected parts of the GPU's memory, from 0 on"),
        ({"cluster": "yarn", "cores": 0}, "cores=0: expected an integer, at least 1"),
        ({"cluster": "yarn", "cores": "8"}, "cores='8': expected an integer"),
        ({"jvm_share": "0.5", "python_share": 0}, "jvm_share='0.5', python_share="),
        ({"concurrent_tasks": 0}, "concurrent_tasks=0: expected an integer, at least 1"),
        ({"cluster": "yarn", "pinned": "much"}, "expected a size such as 512m or 2g"),
        ({"explain_only": True, "pinned": "much"}, "expected a size such as 512m or 2g"),
    ):
        with pytest.raises(ArgumentError, match=message):
            configured(**options)


def test_every_cluster_ships_the_jar_and_says_which_gpu() -> None:
    for cluster in ("standalone", "yarn", "kubernetes"):
        settings = configured(cluster=cluster, cores=4, jvm_share=0.4, python_share=0.2)
        expected = {"jars": f"{JAR},{connector_jar()}", "executor.resource.gpu.amount": "1", "executor.cores": "4"}
        assert settings.items() >= {f"spark.{name}": value for name, value in expected.items()}.items()
        own = {name.rpartition("_GPU_")[2]: settings[name] for name in settings if name.startswith("spark.executorEnv.KOLUMN_GPU_")}
        assert own == {"SHARE": "0.2", "JVM_SHARE": "0.4", "WORKERS": "4"}
    discovery = "spark.executor.resource.gpu.discoveryScript"
    yarn, kubernetes = configured(cluster="yarn"), configured(cluster="kubernetes", pinned="512m", cores=4)
    script = configured(cluster="standalone")[discovery]
    assert (Path(script).name, yarn[discovery], kubernetes[discovery]) == ("discover_gpus.sh", "./discover_gpus.sh", script)
    assert all(os.access(one, os.X_OK) for one in (script, yarn["spark.files"]))
    assert (kubernetes["spark.executor.resource.gpu.vendor"], kubernetes["spark.executor.memoryOverhead"]) == ("nvidia.com", "4608m")
    for cores in range(1, 33):
        # In Spark floor(1 / amount) tasks share a GPU.
        assert int(1 / float(configured(cluster="standalone", cores=cores)["spark.task.resource.gpu.amount"])) == cores


def test_a_local_session_shares_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, cores, workers in ((16, 8, "16"), (4, 8, "8"), (None, 8, "8")):
        monkeypatch.setattr(os, "cpu_count", lambda threads=threads: threads)
        assert configured(cores=cores)["spark.executorEnv.KOLUMN_GPU_WORKERS"] == workers
    monkeypatch.setattr(rapids, "gpu_sizes", lambda: [80 << 30, 8 << 30])
    with pytest.raises(ArgumentError, match=r"a GPU of 8\.0 GiB: 50% for the JVM, 30% for 8 Python workers"):
        configured(python_share=0.3)
    # The JVM alone is one process on the GPU.
    configured()
    monkeypatch.setattr(rapids, "gpu_sizes", lambda: [3 << 30])
    with pytest.raises(ArgumentError, match=r"a GPU of 3\.0 GiB: 90% for the JVM, 0% for 0 Python workers and 0\.4 GiB for the contexts"):
        configured()
    monkeypatch.setattr(rapids, "gpu_sizes", list)
    with pytest.raises(MissingError, match=r"no GPU on this machine.*explain_only=True plans for a GPU and runs on the CPU"):
        configured()
    # The GPUs of these are elsewhere, or not used.
    configured(explain_only=True)
    configured(cluster="yarn")


@pytest.mark.parametrize("name", ["rapids-4-spark", "cudf-spark"], ids=["up to release 26.08", "from 26.10 on"])
def test_a_jar_for_another_cuda_or_scala(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapids, "driver_cuda", lambda: 12)
    jar = f"local:///opt/{name}_2.13-26.08.1-cuda13.jar"
    with pytest.raises(MissingError, match=r"is for CUDA 13, and the driver of this machine's GPU knows CUDA 12: .*classifier cuda12"):
        rapids.configure(Builder(), jar=jar)
    for fine in (f"{name}_2.13-26.08.1-cuda12.jar", f"{name}_2.13-26.08.1.jar", "own.jar"):
        rapids.configure(Builder(), jar=f"hdfs:///jars/{fine}")
    monkeypatch.setattr(rapids, "driver_cuda", lambda: 13)
    rapids.configure(Builder(), jar=jar)
    jar = f"local:///opt/{name}_2.12-26.08.1-cuda13.jar"
    with pytest.raises(ArgumentError, match=rf"is for Scala 2\.12, and Spark 4\.2\.0 has Scala 2\.13: take {name}_2\.13"):
        rapids.configure(Builder(), jar=jar, cluster="kubernetes")


def test_a_jar_for_other_versions_of_spark(tmp_path: Path) -> None:
    jar = tmp_path / "rapids-4-spark_2.13-25.02.0-cuda12.jar"
    for shims, message in (
        (("spark350", "spark401", "spark400db173"), r"does not start on Spark 4\.2\.0; .*: 3\.5\.0, 4\.0\.1$"),
        ((), "is not a jar of the RAPIDS Accelerator"),
    ):
        with zipfile.ZipFile(jar, "w") as made:
            for shim in (*shims, "META-INF"):
                made.writestr(f"{shim}/a.properties", "")
        with pytest.raises(ArgumentError, match=message):
            rapids.configure(Builder(), jar=jar, cluster="yarn")
    for nowhere in (tmp_path, tmp_path / "other.jar", "rapids.jar"):
        with pytest.raises(MissingError, match=r"is not a file of this machine; one that every executor has is local:///path"):
            rapids.configure(Builder(), jar=nowhere, cluster="yarn")
    jar.write_bytes(b"<html>")
    with pytest.raises(ArgumentError, match="is not a jar: "):
        rapids.configure(Builder(), jar=jar, cluster="yarn")


def test_the_real_jar_fits() -> None:
    """What the jar says of itself is what `rapids.SPARKS` says."""
    try:
        jar = rapids.find_jar()
    except MissingError as error:
        pytest.skip(str(error))
    for version in rapids.SPARKS:
        rapids.check_jar(jar, version)
    for version in ("4.1.4", "4.2.1", "4.3.0"):
        with pytest.raises(ArgumentError, match="does not start on Spark"):
            rapids.check_jar(jar, version)
    assert rapids.jar_cuda(jar) == 13


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = configured(cluster="kubernetes")["spark.executor.resource.gpu.discoveryScript"]
    monkeypatch.undo()
    fake = tmp_path / "nvidia-smi"
    fake.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for said, sizes in (("echo 81559; echo 15360", [81559 << 20, 15360 << 20]), ("exit 9", [])):
        fake.write_text(f"#!/bin/sh\n{said}\n")
        assert rapids.gpu_sizes() == sizes
    fake.write_text("#!/bin/sh\necho 0\necho 1\n")
    told = subprocess.run([script], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == {"name": "gpu", "addresses": ["0", "1"]}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KOLUMN_RAPIDS_JAR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("bare")
def test_the_jar_is_found_or_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"fetch_jar\(\) brings it \(com\.nvidia:rapids-4-spark_2\.13:26\.08\.1, classifier cuda13, 576 MB\)"
    with pytest.raises(MissingError, match=message):
        rapids.find_jar()
    jar = tmp_path / ".m2/repository/com/nvidia/rapids-4-spark_2.13/26.08.1/rapids-4-spark_2.13-26.08.1-cuda13.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert rapids.fetch_jar() == rapids.find_jar() == jar
    fetched = tmp_path / ".cache/kolumn/jars" / jar.name
    fetched.parent.mkdir(parents=True)
    fetched.touch()
    assert rapids.find_jar() == fetched
    monkeypatch.setenv("KOLUMN_RAPIDS_JAR", str(tmp_path / "other.jar"))
    for look in (rapids.find_jar, rapids.fetch_jar):
        with pytest.raises(MissingError, match=r"other\.jar: no jar"):
            look()


@pytest.mark.usefixtures("bare")
def test_a_jar_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    java.write_text("#!/bin/sh\necho no network\n")
    monkeypatch.setattr("kolumn.spark_plugin.session.java.find_java", lambda: tmp_path / "java")
    with pytest.raises(MissingError, match="classifier cuda13, could not be fetched: no network"):
        rapids.fetch_jar()
    assert list((tmp_path / ".cache/kolumn/jars").iterdir()) == []


PLAN = """\
!Exec <ProjectExec> cannot run on GPU because not all expressions can be replaced
  ! <Foo> foo(value#1) cannot run on GPU because GPU does not currently support the operator class Foo
  *Exec <HashAggregateExec> will run on GPU
    ^Expression <OctetLength> octet_length(value#1) will run on GPU via CPU bridge because BinaryType is not supported
    ^Expression <OctetLength> octet_length(value#1) will run on GPU via CPU bridge because BinaryType is not supported
    !Exec <BatchScanExec> cannot run on GPU because not all scans can be replaced
      ! <PythonScan> cannot run on GPU because GPU does not currently support the operator class PythonScan
      @Expression <AttributeReference> key#0 could run on GPU
    #Exec <SortExec> could run on GPU but is going to be removed because replacing sortMergeJoin with shuffleHashJoin
"""


def test_a_plan_in_words() -> None:
    found = rapids.parse(PLAN)
    assert (found.on_gpu, found.on_cpu) == (("HashAggregate",), ("Project", "BatchScan"))
    assert str(found).splitlines() == [
        "On the GPU: HashAggregate.",
        "On the CPU: Project, BatchScan.",
        "  Project: not all expressions can be replaced",
        "  Project: Foo: GPU does not currently support the operator class Foo",
        "  HashAggregate: OctetLength: BinaryType is not supported",
        "  BatchScan: not all scans can be replaced",
        "  BatchScan: PythonScan: GPU does not currently support the operator class PythonScan",
    ]
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(conf={}))
    with pytest.raises(ArgumentError, match="this session has no RAPIDS Accelerator"):
        rapids.explain(frame)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the session of the real jar is asked: see rapids_job.py."""
    scratch, chance = tmp_path_factory.mktemp("rapids"), random.Random(FIRST)
    queries = [query for kind in (None, *TYPED) for query in islice(random_queries(scratch, chance, kind), 6)]
    return {
        "topic": str(TOPIC), "scratch": str(scratch), "orders": str(scratch / "orders"), "avro": (str(scratch / "avro"), EVERYTHING),
        "reads": reads(scratch), "queries": queries,
        "damaged": (str(scratch / "damaged"), {"errors": "skip"}),
        "pruned": (str(scratch / "avro"), EVERYTHING, ["value.items.sku", "value.inner.x", "offset"]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(asked: dict[str, Any]) -> dict[str, Any]:
    """What one session of the real jar answers."""
    try:
        jar = rapids.fetch_jar()
    except MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the jar of the RAPIDS Accelerator could not be fetched, so nothing is proved about it: {error}")
        pytest.skip(f"the jar of the RAPIDS Accelerator could not be fetched: {error}")
    question = Path(asked["scratch"], "asked.json")
    question.write_text(json.dumps(asked))
    return run_job(
        "ask", question, script="rapids_job.py", env={**os.environ, "KOLUMN_RAPIDS_JAR": str(jar), "PYSPARK_PYTHON": sys.executable}
    )


AGGREGATE = ["HashAggregate", "ShuffleExchange", "HashAggregate"]
RECORDS = ["Project", "MapInArrow", "Range"]
DECODED = ["Project", "Generate", "Range"]
# Query: operators on the GPU and operators on the CPU, each from the plan's last step to its first.
PLACES = {
    "source": (DECODED, []),
    "source in Python": (["Project"], ["BatchScan"]),
    "source, by the CPU": ([], ["BatchScan"]),
    "source, aggregated": ([*AGGREGATE, "Project", "Filter", *DECODED], []),
    "source, strings grouped by key": (AGGREGATE + DECODED, []),
    "source, counted from headers": ([*AGGREGATE, "Project"], ["BatchScan"]),
    "segments": (RECORDS, []),
    "segments, aggregated": (AGGREGATE + RECORDS, []),
    "segments, length of a binary value": (AGGREGATE + RECORDS, []),
    "segments, grouped by a binary key": (["HashAggregate", "HashAggregate", *RECORDS], ["ShuffleExchange"]),
    "segments with headers": (RECORDS, []),
    "strings, grouped by key": (AGGREGATE + RECORDS, []),
    "strings, parsed": (RECORDS, []),
    "transformed": ([*AGGREGATE, "MapInArrow", "Range"], []),
}


@pytest.mark.slow
def test_where_operators_land_and_why(verdicts: dict[str, Any]) -> None:
    plans = verdicts["plans"]
    assert {name: (plans[name]["gpu"], plans[name]["cpu"]) for name in PLACES} == PLACES
    assert "BatchScan: PythonScan: GPU does not currently support the operator class" in plans["source in Python"]["text"]
    assert "BinaryType is not supported" in plans["segments, grouped by a binary key"]["text"]
    assert "OctetLength" in plans["segments, length of a binary value"]["text"]
    assert "BinaryType" not in plans["strings, grouped by key"]["text"]
    assert verdicts["rows"] == kolumn.read(TOPIC).num_rows
    for name, reason in {
        "source, by the CPU": "backend=cpu",
        "source, counted from headers": "headers alone are read",
        "source": None,
    }.items():
        ((text, why),) = plans[name]["scans"]
        assert (why, str(TOPIC) in text, f"decoded on the CPU: {reason}" in text) == (reason, True, reason is not None)
    assert "Decoded on the GPU: kolumn_decode {path=" in plans["source"]["text"]


@pytest.mark.slow
def test_queries_run_on_the_gpu_as_a_whole(verdicts: dict[str, Any]) -> None:
    found = {name: plan for name, plan in verdicts["plans"].items() if name not in PLACES}
    assert {name: plan["cpu"] for name, plan in found.items()} == {name: [] for name in found}
    assert len(found) == 13
    for plan in found.values():
        assert ("Generate", "Range") in set(pairwise(plan["gpu"])), plan["text"]
    assert "DataWritingCommand" in found["written"]["gpu"]


@pytest.mark.slow
def test_each_type_goes_where_the_strategy_says(verdicts: dict[str, Any]) -> None:
    for name, plan in verdicts["columns"].items():
        assert (plan["cpu"], [why for _, why in plan["scans"]]) == ([], [None]), name
    assert set(verdicts["columns"]) == set(RECORD_COLUMNS)
    found = verdicts["types"]
    assert list(found) == [field["name"] for field in AVRO["fields"]]  # type: ignore[index]
    assert {name: one["type"] for name, one in found.items() if one["scans"][0][1] is not None} == NOT_ON_GPU
    for name, one in found.items():
        ((_, why),) = one["scans"]
        assert (one["cpu"] == [], "BatchScan" in one["cpu"]) == (why is None, why is not None), name
        # A column of nulls would be taken, and has no memory to decode into.
        assert one["taken"] == (why is None or one["type"] == "void"), name
    assert found["local"]["scans"][0][1] == "the accelerator has no column like value, struct<local:timestamp_ntz>"


def in_spark(table: pa.Table) -> pa.Table:
    (batch,) = table.combine_chunks().to_batches()
    return pa.Table.from_batches([Narrowed(arrow_schema(spark_schema(batch.schema))).batch(batch)])


def lines(table: pa.Table) -> list[str]:
    """Rows in any order; what a producer called a string need not be one."""
    bytes_ = [column.cast(pa.binary()) if pa.types.is_string(column.type) else column for column in table.columns]
    return sorted(map(repr, pa.table(bytes_, table.column_names).to_pylist()))


@pytest.mark.slow
def test_the_function_makes_the_rows_of_a_read(verdicts: dict[str, Any], asked: dict[str, Any]) -> None:
    renamed = {"columns": lambda text: text.split(","), "value_columns": lambda text: text.split(",")}
    for name, path, options in asked["reads"]:
        named = {re.sub("([A-Z])", lambda match: "_" + match[1].lower(), key): value for key, value in options.items()}
        named = {key: value for key, value in named.items() if key not in ("split_bytes", "payload")}
        wanted = kolumn.read(path, **{key: renamed.get(key, str)(value) for key, value in named.items()})
        found = pq.read_table(f"{asked['scratch']}/{name}.parquet")
        assert found.column_names == wanted.column_names
        assert wanted.num_rows > 100
        assert lines(found) == lines(in_spark(wanted)), name
    assert verdicts["pruned"].count("Row(") == 300
    assert "CorruptBatchError" in verdicts["error"]
    size = Path(asked["damaged"][0], "bad-0", f"{0:020d}.log").stat().st_size
    counted = verdicts["counted"]
    assert (counted["damaged stretches left out"], size > counted["bytes of the log"] > size // 2) == (1, True)
    lost = 500 - kolumn.read(asked["damaged"][0], errors="skip").num_rows
    assert counted["records in damaged stretches, as far as they are known"] == lost


@pytest.mark.slow
def test_answers_are_those_of_a_session_without_the_accelerator(
    spark: SparkSession, verdicts: dict[str, Any], asked: dict[str, Any]
) -> None:
    plans = []
    for (path, options, query), *found in zip(asked["queries"], verdicts["answers"], verdicts["answers left"], strict=True):
        spark.read.format("kolumn").options(reader="columnar", **options).load(path).createOrReplaceTempView("log")
        frame = spark.sql(query)
        wanted = sorted(map(repr, map(tuple, frame.collect())))
        plans.append(str(frame._jdf.queryExecution().executedPlan().toString()))
        for one in found:
            assert one == wanted, (query, one[:5], wanted[:5])
    spark.catalog.dropTempView("log")
    assert not [plan for plan in plans if "Generate explode(kolumn" in plan]
    assert [plan for plan in plans if "BatchScan kolumn" in plan]


@pytest.mark.slow
def test_what_is_left_on_the_cpu_is_scanned_by_columns(verdicts: dict[str, Any]) -> None:
    final, _, initial = verdicts["left"].partition("Initial Plan")
    assert ("BatchScan kolumn" in final, "Generate" in final, "Generate explode(kolumn_decode {path=" in initial) == (True, False, True)
    assert "ReusedExchange" in verdicts["reused"]
    # Workers of the connector know the shares in a local session too.
    assert "this session gives workers no memory of the GPU" in verdicts["no share"]
    assert ("BatchScan kolumn" in verdicts["off"], "Generate" in verdicts["off"]) == (True, False)


@pytest.mark.slow
def test_a_condition_that_only_spares_splits_is_left_out(verdicts: dict[str, Any]) -> None:
    assert verdicts["joined"] == [[False, True, 396, sum(range(4, 400))], [True, False, 396, sum(range(4, 400))]]


@pytest.mark.slow
def test_a_split_decodes_to_about_a_batch_of_the_accelerator(verdicts: dict[str, Any]) -> None:
    whole, some, many, on_cpu = verdicts["splits"]
    size = kolumn.read(TOPIC).nbytes
    assert whole == on_cpu <= 2
    assert size / 200_000 / 2 < some < size / 200_000 * 2 + 2
    assert size / 50_000 / 2 < many < size / 50_000 * 2 + 2


def test_a_class_path_without_the_accelerator(spark: SparkSession) -> None:
    """Kolumn's jar may be where it does not see the accelerator's: reads go the other way, and plans say why."""
    names = {"spark.sql.legacy.setCommandRejectsSparkCoreConfs": "false", "spark.plugins": "com.nvidia.spark.SQLPlugin"}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        frame = spark.read.format("kolumn").option("reader", "columnar").load(str(TOPIC)).filter("offset > 10").select("offset")
        plan = str(frame._jdf.queryExecution().executedPlan().toString())
        rows = frame.count()
    finally:
        for name in reversed(names):
            spark.conf.unset(name) if before[name] is None else spark.conf.set(name, str(before[name]))
    assert "BatchScan kolumn" in plan
    assert re.search(r"decoded on the CPU: this Spark, or its class path, is not what Kolumn knows: .*com/nvidia/spark/RapidsUDF", plan)
    assert rows == kolumn.read(TOPIC, start_offset=11).num_rows
