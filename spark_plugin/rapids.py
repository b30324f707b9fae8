"""The RAPIDS Accelerator for a session: its settings, its jar, and what it makes of a plan. Nothing here touches CUDA.

In a session with it ``format("kolumn")`` is planned as operators that the accelerator runs: `GpuStrategy.java`. Its jar, 576 MB, is
never shipped.
What does not fit together is found before a session starts: the accelerator finds most of it too, but ends the JVM with it, and Python
sees a connection that was refused.
"""

import ctypes
import os
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from warnings import warn

import pyspark

from kolumn.core.errors import ArgumentError, MissingError
from kolumn.core.keywords import known_keywords
from kolumn.spark_plugin.session.gpu_task import JVM_SHARE, SHARE, WORKERS, check_shares
from kolumn.spark_plugin.session.java import Artifact, connector_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Explanation", "configure", "explain", "fetch_jar", "find_jar"]

RELEASE = "26.08.1"
_JAR = Artifact("com.nvidia", "rapids-4-spark_2.13", RELEASE, "cuda13")
SPARKS = (*(f"3.5.{patch}" for patch in range(10)), *(f"4.0.{patch}" for patch in range(5)), "4.1.1", "4.1.2", "4.1.3", "4.2.0")
"""Versions of Spark that this release knows. It compares whole strings, and ends the application for any other."""


def check_spark(version: str) -> None:
    """Raise `ArgumentError` for a version of Spark that the jar does not start on; it names the newest of the same line, else of all."""
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
    jar = _JAR.find() if not named else Path(named) if Path(named).is_file() else None
    if jar is None:
        raise MissingError(
            f"{named or _JAR.places[0]}: no jar of the RAPIDS Accelerator. kolumn.spark_plugin.rapids.fetch_jar() brings it "
            f"({_JAR}, 576 MB); or name the file in KOLUMN_RAPIDS_JAR"
        )
    return jar


def fetch_jar() -> Path:
    """`find_jar`; where there is none, it comes from Maven's central repository into the user's cache folder first.

    Raises
    ------
    MissingError
        It can't be fetched, or there is no Java for that.
    """
    return find_jar() if os.environ.get("KOLUMN_RAPIDS_JAR") else _JAR.fetch()


_NAME = re.compile(r"(?P<name>rapids-4-spark|cudf-spark)_(?P<scala>[\d.]+)-(?P<release>\d[\d.]*)(?:-cuda(?P<cuda>\d+))?(?:-arm64)?\.jar$")
"""From release 26.10 on the jar has the second name."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DEFAULT_CUDA = 12
"""Of a jar without a classifier."""


def check_jar(jar: str | Path, spark: str) -> None:
    """Compare a jar with the version of Spark, where the jar is a file of this machine; by its name where it is a URI.

    Raises `ArgumentError` for a jar of another Scala, of other versions of Spark, or of something else, and `MissingError` for a path
    without a file.
    """
    name, scala = _NAME.search(str(jar)), _spark_scala()
    if name and scala and name["scala"] != scala:
        raise ArgumentError(f"{jar} is for Scala {name['scala']}, and Spark {spark} has Scala {scala}: take {name['name']}_{scala}")
    if _URI.match(str(jar)):
        # Where Spark gets it, or where every executor has it.
        return
    if not Path(jar).is_file():
        raise MissingError(f"{jar} is not a file of this machine; one that every executor has is local:///path")
    try:
        with zipfile.ZipFile(jar) as archive:
            shims = {match[1] for entry in archive.namelist() if (match := re.match(r"spark(\d+)/", entry))}
    except zipfile.BadZipFile as error:
        raise ArgumentError(f"{jar} is not a jar: {error}") from error
    if not shims:
        raise ArgumentError(f"{jar} is not a jar of the RAPIDS Accelerator: it names no version of Spark")
    if spark.replace(".", "") not in shims:
        known = ", ".join(".".join(shim) for shim in sorted(shims))
        raise ArgumentError(f"{jar} does not start on Spark {spark}; the versions that it knows, by their digits: {known}")


def _spark_scala() -> str | None:
    """The Scala version of the Spark that is installed, "2.13"; None where that can't be told."""
    for library in (Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"):
        return ".".join(library.stem.removeprefix("scala-library-").split(".")[:2])
    return None


def _check_machine(jar: str | Path, workers: int, jvm: float, python: float) -> None:
    """Compare a jar and shares of memory with the GPUs of this machine, for a session that runs on it.

    Raises `MissingError` without a GPU, or if its driver is too old for the jar's CUDA, and `ArgumentError` if all together would take
    more than the smallest GPU has.
    """
    sizes = gpu_sizes()
    if not sizes:
        raise MissingError(
            "no GPU on this machine (nvidia-smi lists none): the accelerator would end the JVM at its start. "
            "explain_only=True plans for a GPU and runs on the CPU"
        )
    wanted, known = jar_cuda(jar), driver_cuda()
    if wanted is not None and known is not None and known < wanted:
        raise MissingError(
            f"{jar} is for CUDA {wanted}, and the driver of this machine's GPU knows CUDA {known}: install a newer driver, "
            f"or take the jar with the classifier cuda{known}"
        )
    check_shares(min(sizes), jvm, python, workers if python else 0)


def gpu_sizes() -> list[int]:
    """Bytes of each GPU of this machine. Asks nvidia-smi, so that this process begins nothing with a GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) << 20 for line in answer.stdout.split() if line.isdigit()]


def jar_cuda(jar: str | Path) -> int | None:
    """Major version of a jar's CUDA by its name, None where the name does not tell."""
    name = _NAME.search(str(jar))
    return None if name is None else int(name["cuda"] or _DEFAULT_CUDA)


def driver_cuda() -> int | None:
    """Major version of CUDA that the driver knows, None without a driver. This call begins nothing with a GPU."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except OSError:
        return None
    return version.value // 1000


PYTHON_SHARE = 0
JVM_SHARES = {False: 0.9, True: 0.5}
"""Without and with a share for Python workers."""
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
    jvm_share: float | None = None,
    python_share: float | None = None,
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
        By default what `find_jar` finds. Spark ships a file of the driver's machine to all executors, whatever the cluster;
        ``local:///path`` is one that every executor has, as in an image for Kubernetes. What is in a file of this machine is compared with
        Spark; of other URIs the name.
    cluster : str, optional
        None for a local session, else "standalone", "yarn" or "kubernetes": each executor has one GPU then, and a script says which.
    cores : int
        Cores of an executor: so many tasks share its GPU. A local session counts this machine's cores where they are more; its master
        must not ask for more threads than that.
    jvm_share : float, optional
        Part of the GPU's memory that is the JVM's pool, in which ``format("kolumn")`` decodes. By default 0.9, or 0.5 beside a
        ``python_share``.
    python_share : float, optional
        Part of the GPU's memory for all Python workers of an executor together; each takes its part of that
        (`gpu_task.use_gpu`). The rest is for CUDA's contexts. By default 0: no worker opens a GPU then. `read_segments` needs it for
        ``backend="gpu"`` and ``frame="cudf"``.
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
    if jvm_share is not None and python_share is None:
        warn(f"python_share is {PYTHON_SHARE} now where it is not given; it was 0.3", FutureWarning, stacklevel=3)
    python_share = PYTHON_SHARE if python_share is None else python_share
    jvm_share = JVM_SHARES[bool(python_share)] if jvm_share is None else jvm_share
    _check(cluster, cores, jvm_share, python_share, concurrent_tasks)
    extra = _mebibytes(pinned)
    jar = find_jar() if jar is None else jar
    check_jar(jar, pyspark.__version__)
    workers = cores if cluster is not None else max(cores, os.cpu_count() or 1)
    if cluster is None and not explain_only:
        _check_machine(jar, workers, jvm_share, python_share)
    settings: dict[str, bool | float | int | str | None] = {
        **_ALWAYS,
        **connector_settings(builder, str(jar)),
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
    if not all(isinstance(share, int | float) and share >= 0 for share in (jvm_share, python_share)):
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
        # Rounded down: Spark would fit one task less on a GPU otherwise.
        "spark.task.resource.gpu.amount": f"{10**6 // cores / 10**6:.6f}",
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


def _mebibytes(size: str) -> int:
    units = {"m": 1, "g": 1024}
    if size[-1:] not in units or not size[:-1].isdigit():
        raise ArgumentError(f"pinned={size!r}: expected a size such as 512m or 2g")
    return int(size[:-1]) * units[size[-1]]


_LINE = re.compile(r"^ *(?P<mark>[*!@#^]) ?(?P<type>\w*) ?<(?P<name>\w+)> (?P<text>.*)$")


FUNCTION = "kolumn_decode"
_KEEP_PLAN = "spark.kolumn.rapids.keepPlan"


@dataclass
class Operator:
    """An operator of a plan: its name in Spark without "Exec", and why it is not on the GPU, or what in it goes through the CPU."""

    name: str
    on_gpu: bool
    reasons: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """Kolumn's functions in it, as EXPLAIN shows them."""


@dataclass(frozen=True)
class Scan:
    """A scan of ``format("kolumn")``: its text in plans, and why it is decoded on the CPU; None if the GPU decodes it."""

    text: str
    reason: str | None

    @property
    def on_gpu(self) -> bool:
        """Whether the GPU decodes it, in the executor's process."""
        return self.reason is None


@dataclass(frozen=True)
class Explanation:
    """Which parts of a plan run on the GPU, and where each scan is decoded. Its text says so in words."""

    operators: tuple[Operator, ...]
    scans: tuple[Scan, ...] = ()

    @property
    def on_gpu(self) -> tuple[str, ...]:
        """Names of the operators on the GPU, the last step of the plan first."""
        return tuple(operator.name for operator in self.operators if operator.on_gpu)

    @property
    def on_cpu(self) -> tuple[str, ...]:
        """Names of the others."""
        return tuple(operator.name for operator in self.operators if not operator.on_gpu)

    def __str__(self) -> str:
        lines = [f"On the GPU: {', '.join(self.on_gpu) or 'nothing'}.", f"On the CPU: {', '.join(self.on_cpu) or 'nothing'}."]
        lines += [f"  {operator.name}: {reason}" for operator in self.operators for reason in operator.reasons]
        for scan in self.scans:
            lines.append(f"Decoded on the {'GPU' if scan.on_gpu else 'CPU'}: {scan.text}")
        return "\n".join(lines)


def parse(text: str) -> Explanation:
    """Read the text of ``ExplainPlan.explainPotentialGpuPlan`` with the argument "ALL".

        *Exec <ProjectExec> will run on GPU
          *Expression <Alias> … will run on GPU
          *Exec <MapInArrowExec> will partially run on GPU
            !Exec <BatchScanExec> cannot run on GPU because not all scans can be replaced
              ! <PythonScan> cannot run on GPU because …

    ``*`` runs on the GPU, ``^`` there by way of the CPU bridge, ``!`` on the CPU, ``@`` and ``#`` could run on the GPU and do not.
    Lines below an operator, until the next one, are its expressions.
    """
    operators: list[Operator] = []
    above = Operator("", True)
    for match in filter(None, map(_LINE.match, text.splitlines())):
        is_operator = match["type"] == "Exec"
        if is_operator:
            above = Operator(match["name"].removesuffix("Exec"), match["mark"] in "*^")
            # As the sorts below a join that the accelerator makes without them.
            operators += [] if "is going to be removed" in match["text"] else [above]
        elif match["name"] == "ScalaUDF" and match["text"].startswith(FUNCTION):
            above.functions.append(match["text"])
        _, because, why = match["text"].partition(" because ")
        reason = why if is_operator else f"{match['name']}: {why}"
        if because and match["mark"] in "!^#" and reason not in above.reasons:
            above.reasons.append(reason)
    return Explanation(tuple(operators))


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
    # Spark has planned the frame already, and the connector has put its own scans where the accelerator left something on the CPU.
    with _kept_plans(session):
        again = gateway.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, df._jdf.queryExecution().logical())
        found = parse(gateway.com.nvidia.spark.rapids.ExplainPlan.explainPotentialGpuPlan(again, "ALL"))
        scans = [(str(text), reason) for text, reason in gateway.kolumn.Scans.of(again.queryExecution())]
    return Explanation(found.operators, tuple(_scans(scans, found.operators)))


@contextmanager
def _kept_plans(session: "SparkSession") -> Iterator[None]:
    """Plans stay as the accelerator has seen them."""
    before = session.conf.get(_KEEP_PLAN, None)
    session.conf.set(_KEEP_PLAN, "true")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_KEEP_PLAN)
        else:
            session.conf.set(_KEEP_PLAN, before)


def _scans(found: Iterable[tuple[str, str | None]], operators: Iterable[Operator]) -> Iterator[Scan]:
    left = [(one, function) for one in operators if not one.on_gpu for function in one.functions]
    for text, reason in found:
        why = next((one for one, function in left if function.startswith(text)), None)
        yield Scan(text, reason if why is None else f"{why.name} is not on the GPU: {'; '.join(why.reasons)}")
