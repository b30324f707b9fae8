"""The RAPIDS Accelerator: its settings and, with the real jar, the operators of each query that would run on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kolumn
from kolumn.errors import ArgumentError, MissingError
from kolumn.spark_plugin import rapids
from kolumn.spark_plugin.rapids import jar as rapids_jar
from kolumn.spark_plugin.rapids.plan import parse

TOPIC = Path(__file__).resolve().parents[1] / "data" / "corpus" / "v2-java" / "java-zstd-0"


class Settings(dict[str, str]):
    """Settings that are given to a session's builder."""

    def config(self, map: dict[str, str]) -> "Settings":
        self.update(map)
        return self


def configured(**options: Any) -> Settings:
    settings = Settings()
    assert rapids.configure(settings, jar="rapids.jar", **options) is settings  # type: ignore[arg-type, comparison-overlap]
    return settings


@pytest.fixture(autouse=True)
def _known_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings do not depend on the Spark that is installed."""
    monkeypatch.setattr("pyspark.__version__", "4.2.0")


@pytest.mark.parametrize("version", ["3.5.0", "4.0.4", "4.1.3", "4.2.0"])
def test_versions_that_the_jar_knows(version: str) -> None:
    rapids_jar.check_spark(version)


@pytest.mark.parametrize(
    ("version", "right"), [("4.1.4", "4.1.3"), ("4.1.0", "4.1.3"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0"), ("3.4.1", "4.2.0")]
)
def test_other_versions_are_refused_by_name(version: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=rf"Spark {version}: .* does not start on it.*pyspark=={right}$"):
        rapids_jar.check_spark(version)
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(ArgumentError, match=f"pyspark=={right}"):
        configured()


def test_a_local_session() -> None:
    settings = configured(jvm_share=0.4, python_share=0.2)
    assert settings["spark.plugins"] == "com.nvidia.spark.SQLPlugin"
    assert settings["spark.jars"] == "rapids.jar"
    assert settings["spark.rapids.memory.gpu.allocFraction"] == settings["spark.rapids.memory.gpu.maxAllocFraction"] == "0.4"
    assert settings["spark.executorEnv.KOLUMN_GPU_SHARE"] == "0.2"
    assert settings["spark.rapids.sql.python.gpu.enabled"] == "false"
    assert settings["spark.rapids.sql.mode"] == "executeOnGPU"
    assert configured(explain_only=True)["spark.rapids.sql.mode"] == "explainOnly"
    assert not [name for name in settings if "resource.gpu" in name]


@pytest.mark.parametrize("cores", range(1, 33))
def test_all_tasks_of_an_executor_fit_on_its_gpu(cores: int) -> None:
    amount = float(configured(cluster="standalone", cores=cores)["spark.task.resource.gpu.amount"])
    # In Spark floor(1 / amount) tasks share a GPU.
    assert int(1 / amount) == cores


def test_clusters() -> None:
    yarn, kubernetes = configured(cluster="yarn"), configured(cluster="kubernetes", pinned="512m", cores=4)
    assert yarn["spark.executor.resource.gpu.discoveryScript"] == "./discover_gpus.sh"
    assert os.access(yarn["spark.files"], os.X_OK)
    assert kubernetes["spark.executor.resource.gpu.vendor"] == "nvidia.com"
    assert kubernetes["spark.executor.memoryOverhead"] == "4608m"
    assert kubernetes["spark.executorEnv.KOLUMN_GPU_WORKERS"] == kubernetes["spark.executor.cores"] == "4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "mesos"}, "expected None for a local session, or one of standalone, yarn, kubernetes"),
        ({"jvm_share": 0.9, "python_share": 0.1}, "expected at most 0.95 together"),
        ({"jvm_share": -0.1}, "expected at most 0.95 together"),
        ({"cluster": "yarn", "cores": 0}, "cores=0: expected at least 1"),
        ({"cluster": "yarn", "pinned": "much"}, "expected a size such as 512m or 2g"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        configured(**options)


def test_the_discovery_script_says_what_spark_reads(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 0\necho 1\n")
    fake.chmod(0o755)
    script = configured(cluster="kubernetes")["spark.executor.resource.gpu.discoveryScript"]
    said = subprocess.run([script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == {"name": "gpu", "addresses": ["0", "1"]}


def test_the_jar_is_found_or_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KOLUMN_RAPIDS_JAR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        MissingError, match=r"fetch_jar\(\) brings it \(com\.nvidia:rapids-4-spark_2\.13:26\.08\.1, classifier cuda13, 576 MB\)"
    ):
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


def test_a_jar_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no network\n")
    java.chmod(0o755)
    monkeypatch.delenv("KOLUMN_RAPIDS_JAR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("kolumn.spark_plugin.rapids.jar.find_java", lambda: tmp_path / "java")
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
    found = parse(PLAN)
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


@pytest.mark.spark
def test_a_session_without_the_accelerator_has_nothing_to_explain(spark: SparkSession) -> None:
    with pytest.raises(ArgumentError, match="this session has no RAPIDS Accelerator"):
        rapids.explain(spark.range(1))


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Any]:
    """The real jar's verdict on every query of rapids_job.py."""
    try:
        jar = rapids.fetch_jar()
    except MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the jar of the RAPIDS Accelerator could not be fetched, so nothing is proved about it: {error}")
        pytest.skip(f"the jar of the RAPIDS Accelerator could not be fetched: {error}")
    job = [sys.executable, str(Path(__file__).with_name("rapids_job.py")), str(TOPIC)]
    done = subprocess.run(job, env={**os.environ, "KOLUMN_RAPIDS_JAR": str(jar)}, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


AGGREGATE = ["HashAggregate", "ShuffleExchange", "HashAggregate"]
RECORDS = ["Project", "MapInArrow", "Range"]
# Query: operators on the GPU and operators on the CPU, each from the plan's last step to its first.
PLACES = {
    "source": (["Project"], ["BatchScan"]),
    "source, aggregated": ([*AGGREGATE, "Project", "Filter"], ["BatchScan"]),
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
@pytest.mark.parametrize("query", PLACES)
def test_where_operators_land(verdicts: dict[str, Any], query: str) -> None:
    found = verdicts["plans"][query]
    assert (found["gpu"], found["cpu"]) == PLACES[query]


@pytest.mark.slow
def test_why_the_rest_stays_on_the_cpu(verdicts: dict[str, Any]) -> None:
    plans = verdicts["plans"]
    assert "BatchScan: PythonScan: GPU does not currently support the operator class" in plans["source"]["text"]
    assert "BinaryType is not supported" in plans["segments, grouped by a binary key"]["text"]
    assert "OctetLength" in plans["segments, length of a binary value"]["text"]
    assert "BinaryType" not in plans["strings, grouped by key"]["text"]


@pytest.mark.slow
def test_rows_are_right_beside_the_plugin(verdicts: dict[str, Any]) -> None:
    assert verdicts["rows"] == kolumn.read(TOPIC).num_rows
