"""The settings of a session with the RAPIDS Accelerator, and what it makes of a plan.

The jar of the RAPIDS Accelerator: which release, for which Spark, and where it is. It is never shipped: 576 MB.
"""

import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyspark

from kolumn.core.errors import ArgumentError, MissingError
from kolumn.core.keywords import known_keywords
from kolumn.spark_plugin.rapids.fit import check_jar, check_machine
from kolumn.spark_plugin.rapids.plan import Explanation, parse
from kolumn.spark_plugin.session.gpu_task import JVM_SHARE, SHARE, WORKERS
from kolumn.spark_plugin.session.java import Artifact, connector_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


RELEASE = "26.08.1"
_JAR = Artifact("com.nvidia", "rapids-4-spark_2.13", RELEASE, "cuda13")

SPARKS = (
    *(f"3.5.{patch}" for patch in range(10)),
    *(f"4.0.{patch}" for patch in range(5)),
    "4.1.1", "4.1.2", "4.1.3",
    "4.2.0",
)  # fmt: skip
"""Versions of Spark that this release knows. It compares whole strings, and ends the application for any other."""


def check_spark(version: str) -> None:
    """Compare a version of Spark with those that the jar starts on.

    Raises
    ------
    ArgumentError
        With the version to install in its place: the newest one of the same line, else the newest of all.
    """
    if version in SPARKS:
        return
    line = version.rpartition(".")[0] + "."
    right = next((known for known in reversed(SPARKS) if known.startswith(line)), SPARKS[-1])
    raise ArgumentError(
        f"Spark {version}: the RAPIDS Accelerator {RELEASE} does not start on it. Install the one it knows: pip install pyspark=={right}"
    )


def find_jar() -> Path:
    """The jar on this machine: the file that KOLUMN_RAPIDS_JAR names, what `fetch_jar` has fetched, or one in Maven's local repository.

    Raises
    ------
    MissingError
        It is in none of these places.
    """
    named = os.environ.get("KOLUMN_RAPIDS_JAR")
    found = _JAR.find() if not named else Path(named) if Path(named).is_file() else None
    if found is None:
        raise MissingError(
            f"{named or _JAR.places[0]}: no jar of the RAPIDS Accelerator. kolumn.spark_plugin.rapids.fetch_jar() brings it "
            f"({_JAR}, 576 MB); or name the file in KOLUMN_RAPIDS_JAR"
        )
    return found


def fetch_jar() -> Path:
    """`find_jar`; where there is none, it comes from Maven's central repository into the user's cache folder first.

    Raises
    ------
    MissingError
        It can't be fetched, or there is no Java for that.
    """
    return find_jar() if os.environ.get("KOLUMN_RAPIDS_JAR") else _JAR.fetch()


CLUSTERS = ("standalone", "yarn", "kubernetes")
DISCOVERY = "discover_gpus.sh"

_ALWAYS = {
    "spark.plugins": "com.nvidia.spark.SQLPlugin",
    # The accelerator takes timestamps in UTC alone, and wants both ends to agree.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    # Its Python daemon imports what Spark 4.2 has moved: every worker would fail to start.
    "spark.rapids.sql.python.gpu.enabled": "false",
    # mapInArrow with strings falls back to the CPU otherwise.
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # `explain` says it, and says it once.
    "spark.rapids.sql.explain": "NONE",
}


@known_keywords()
def configure(
    builder: "SparkSession.Builder",
    *,
    jar: str | Path | None = None,
    cluster: Literal["standalone", "yarn", "kubernetes"] | None = None,
    cores: int = 8,
    jvm_share: float = 0.5,
    python_share: float = 0.3,
    concurrent_tasks: int = 2,
    pinned: str = "2g",
    explain_only: bool = False,
) -> "SparkSession.Builder":
    """Give a session every setting that the RAPIDS Accelerator needs.

    Parameters
    ----------
    builder : SparkSession.Builder
        Before ``getOrCreate``: these are settings for the start. Jars are added to the ``spark.jars`` that the builder has. The Java
        options are set and not added to: what else you need there, give afterwards and together with what is here.
    jar : str or Path, optional
        By default what `jar.find_jar` finds. Spark ships a file of the driver's machine to all executors, whatever the cluster;
        ``local:///path`` is one that every executor has, as in an image for Kubernetes. What is in a file of this machine is compared with
        Spark; of other URIs the name.
    cluster : str, optional
        None for a local session, else "standalone", "yarn" or "kubernetes": each executor has one GPU then, and a script says which.
    cores : int
        Cores of an executor: so many tasks share its GPU. A local session counts this machine's cores where they are more; its master
        must not ask for more threads than that.
    jvm_share : float
        Part of the GPU's memory that is the JVM's pool.
    python_share : float
        Part of the GPU's memory for all Python workers of an executor together; each takes its part of that
        (`gpu_task.use_gpu`). The rest is for CUDA's contexts.
    concurrent_tasks : int
        JVM tasks that use the GPU at a time.
    pinned : str
        Pinned host memory for copies; the executors' memory overhead grows by it.
    explain_only : bool
        Plan for a GPU and run on the CPU.

    Returns
    -------
    SparkSession.Builder
        The same.

    Raises
    ------
    ArgumentError
        A version of Spark that the jar refuses, a jar for another Scala or Spark, an unknown cluster, or shares that leave nothing for
        the contexts: of a local session on this machine's GPU, of a cluster as far as that can be told without one. What the GPU of an
        executor has is compared by each worker.
    MissingError
        No jar; for a local session also no GPU, or a driver that is too old for the jar's CUDA.
    """
    _check(cluster, cores, jvm_share, python_share, concurrent_tasks)
    extra = _mebibytes(pinned)
    found = find_jar() if jar is None else jar
    check_jar(found, pyspark.__version__)
    workers = cores if cluster is not None else max(cores, os.cpu_count() or 1)
    if cluster is None and not explain_only:
        check_machine(found, workers, jvm_share, python_share)
    settings: dict[str, bool | float | int | str | None] = {
        **_ALWAYS,
        **connector_settings(builder, str(found)),
        "spark.rapids.memory.pinnedPool.size": pinned,
        "spark.rapids.sql.concurrentGpuTasks": str(concurrent_tasks),
        "spark.rapids.sql.mode": "explainOnly" if explain_only else "executeOnGPU",
        **_shares(jvm_share, python_share, workers),
        **({} if cluster is None else _cluster(cluster, cores, extra)),
    }
    return builder.config(map=settings)


def _check(cluster: str | None, cores: int, jvm_share: float, python_share: float, concurrent_tasks: int) -> None:
    check_spark(pyspark.__version__)
    if cluster is not None and cluster not in CLUSTERS:
        raise ArgumentError(f"cluster={cluster!r}: expected None for a local session, or one of {', '.join(CLUSTERS)}")
    if not all(isinstance(one, int | float) and one >= 0 for one in (jvm_share, python_share)):
        raise ArgumentError(f"jvm_share={jvm_share!r}, python_share={python_share!r}: expected parts of the GPU's memory, from 0 on")
    if jvm_share + python_share > 0.95:
        raise ArgumentError(f"jvm_share={jvm_share}, python_share={python_share}: expected at most 0.95 together, the rest is for contexts")
    for name, number in (("cores", cores), ("concurrent_tasks", concurrent_tasks)):
        if not isinstance(number, int) or number < 1:
            raise ArgumentError(f"{name}={number!r}: expected an integer, at least 1")


def _shares(jvm: float, python: float, workers: int) -> dict[str, str]:
    return {
        "spark.rapids.memory.gpu.allocFraction": str(jvm),
        "spark.rapids.memory.gpu.maxAllocFraction": str(jvm),
        "spark.rapids.memory.gpu.minAllocFraction": str(min(0.25, jvm)),
        f"spark.executorEnv.{SHARE}": str(python),
        f"spark.executorEnv.{WORKERS}": str(workers),
        f"spark.executorEnv.{JVM_SHARE}": str(jvm),
    }


def _cluster(cluster: str, cores: int, pinned: int) -> dict[str, str]:
    """``pinned`` in MiB."""
    script = str(files("kolumn.spark_plugin") / DISCOVERY)
    settings = {
        "spark.executor.cores": str(cores),
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": _part(cores),
        # Pinned memory and the Arrow batches of Python workers are outside of the heap.
        "spark.executor.memoryOverhead": f"{pinned + 1024 * cores}m",
    }
    if cluster == "yarn":
        # Executors find the script in their working folder.
        settings |= {"spark.files": script, "spark.executor.resource.gpu.discoveryScript": f"./{DISCOVERY}"}
    else:
        # The package is at the same place in the image, or on each worker.
        settings["spark.executor.resource.gpu.discoveryScript"] = script
    if cluster == "kubernetes":
        settings["spark.executor.resource.gpu.vendor"] = "nvidia.com"
    return settings


def _part(cores: int) -> str:
    """One of so many parts, rounded down: Spark would fit one task less on a GPU otherwise."""
    return f"{10**6 // cores / 10**6:.6f}"


def _mebibytes(size: str) -> int:
    units = {"m": 1, "g": 1024}
    if size[-1:] not in units or not size[:-1].isdigit():
        raise ArgumentError(f"pinned={size!r}: expected a size such as 512m or 2g")
    return int(size[:-1]) * units[size[-1]]


def explain(df: "DataFrame") -> Explanation:
    """Say which parts of a plan would run on the GPU and why the others would not. Runs nothing.

    Parameters
    ----------
    df : DataFrame
        Of a session that was started with the settings of `configure`, ``explain_only`` or not.

    Returns
    -------
    Explanation
        Printed, it says it in words.

    Raises
    ------
    ArgumentError
        The session was started without the accelerator.
    """
    session = df.sparkSession
    if session.conf.get("spark.plugins", "") != _ALWAYS["spark.plugins"]:
        raise ArgumentError("this session has no RAPIDS Accelerator: start it with kolumn.spark_plugin.rapids.configure(builder)")
    gateway = session._jvm
    assert gateway is not None
    return parse(gateway.com.nvidia.spark.rapids.ExplainPlan.explainPotentialGpuPlan(df._jdf, "ALL"))
