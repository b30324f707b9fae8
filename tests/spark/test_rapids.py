"""The RAPIDS Accelerator: its settings and, with the real jar, the operators of each query that would run on a GPU."""

import json
import os
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit.corpus import HERE as CORPUS
from kit.plain_spark import Builder
from kit.spark_session import run_job
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.spark_plugin import configure, connector_jar, rapids

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


def test_settings_that_make_no_sense() -> None:
    options: Any
    for options, message in (
        ({"cluster": "mesos"}, "expected None for a local session, or one of standalone, yarn, kubernetes"),
        ({"jvm_share": 0.9, "python_share": 0.1}, "expected at most 0.95 together"),
        ({"jvm_share": -0.1}, "expected parts of the GPU's memory, from 0 on"),
        ({"cluster": "yarn", "cores": 0}, "cores=0: expected an integer, at least 1"),
        ({"cluster": "yarn", "cores": "8"}, "cores='8': expected an integer"),
        ({"jvm_share": "0.5"}, "jvm_share='0.5', python_share="),
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
def verdicts() -> dict[str, Any]:
    """The real jar's verdict on every query of `gpu_plans` in jobs.py."""
    try:
        jar = rapids.fetch_jar()
    except MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the jar of the RAPIDS Accelerator could not be fetched, so nothing is proved about it: {error}")
        pytest.skip(f"the jar of the RAPIDS Accelerator could not be fetched: {error}")
    return run_job("gpu_plans", TOPIC, env={**os.environ, "KOLUMN_RAPIDS_JAR": str(jar)})


AGGREGATE = ["HashAggregate", "ShuffleExchange", "HashAggregate"]
RECORDS = ["Project", "MapInArrow", "Range"]
# Query: operators on the GPU and operators on the CPU, each from the plan's last step to its first.
PLACES = {
    "source": ([], ["BatchScan"]),
    "source in Python": (["Project"], ["BatchScan"]),
    "source, aggregated": ([*AGGREGATE, "Project", "Filter"], ["BatchScan"]),
    "source, strings grouped by key": (AGGREGATE, ["BatchScan"]),
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
    assert {name: (found["gpu"], found["cpu"]) for name, found in verdicts["plans"].items()} == PLACES
    plans = verdicts["plans"]
    assert "BatchScan: PythonScan: GPU does not currently support the operator class" in plans["source in Python"]["text"]
    assert "BatchScan: LogScan: GPU does not currently support the operator class kolumn.LogScan" in plans["source"]["text"]
    assert "BinaryType is not supported" in plans["segments, grouped by a binary key"]["text"]
    assert "OctetLength" in plans["segments, length of a binary value"]["text"]
    assert "BinaryType" not in plans["strings, grouped by key"]["text"]
    assert verdicts["rows"] == kolumn.read(TOPIC).num_rows
