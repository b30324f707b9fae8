"""What does not fit together, found before a session starts: a jar and Spark, a jar and the driver of the GPU, memory and shares.

The accelerator finds most of this too, but ends the JVM with it, and Python sees a connection that was refused.
"""

import ctypes
import re
import subprocess
import zipfile
from pathlib import Path

import pyspark

from kolumn.core.errors import ArgumentError, MissingError
from kolumn.spark_plugin.session.gpu_task import check_shares

_NAME = re.compile(r"(?P<name>rapids-4-spark|cudf-spark)_(?P<scala>[\d.]+)-(?P<release>\d[\d.]*)(?:-cuda(?P<cuda>\d+))?(?:-arm64)?\.jar$")
"""From release 26.10 on the jar has the second name."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHIM = re.compile(r"spark(\d+)/")
_DEFAULT_CUDA = 12
"""Of a jar without a classifier."""


def check_jar(jar: str | Path, spark: str) -> None:
    """Compare a jar with the version of Spark, where the jar is a file of this machine; by its name where it is a URI.

    Raises
    ------
    ArgumentError
        It is for another Scala or for other versions of Spark, or it is not a jar of the accelerator.
    MissingError
        It is a path, and no file is there.
    """
    name = _NAME.search(str(jar))
    scala = spark_scala()
    if name and scala and name["scala"] != scala:
        raise ArgumentError(f"{jar} is for Scala {name['scala']}, and Spark {spark} has Scala {scala}: take {name['name']}_{scala}")
    if _URI.match(str(jar)):
        # Where Spark gets it, or where every executor has it.
        return
    if not Path(jar).is_file():
        raise MissingError(f"{jar} is not a file of this machine; one that every executor has is local:///path")
    try:
        with zipfile.ZipFile(jar) as held:
            shims = {found[1] for one in held.namelist() if (found := _SHIM.match(one))}
    except zipfile.BadZipFile as error:
        raise ArgumentError(f"{jar} is not a jar: {error}") from error
    if not shims:
        raise ArgumentError(f"{jar} is not a jar of the RAPIDS Accelerator: it names no version of Spark")
    if spark.replace(".", "") not in shims:
        known = ", ".join(".".join(shim) for shim in sorted(shims) if shim.isdigit())
        raise ArgumentError(f"{jar} does not start on Spark {spark}; the versions that it knows, by their digits: {known}")


def spark_scala() -> str | None:
    """The Scala version of the Spark that is installed, "2.13"; None where that can't be told."""
    for library in (Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"):
        return ".".join(library.stem.removeprefix("scala-library-").split(".")[:2])
    return None


def check_machine(jar: str | Path, workers: int, jvm: float, python: float) -> None:
    """Compare a jar and shares of memory with the GPUs of this machine, for a session that runs on it.

    Raises
    ------
    MissingError
        There is no GPU, or its driver is too old for the jar's CUDA.
    ArgumentError
        All together would take more than the smallest GPU has.
    """
    sizes = gpu_sizes()
    if not sizes:
        raise MissingError(
            "no GPU on this machine (nvidia-smi lists none): the accelerator would end the JVM at its start. "
            "explain_only=True plans for a GPU and runs on the CPU"
        )
    wanted, has = jar_cuda(jar), driver_cuda()
    if wanted is not None and has is not None and has < wanted:
        raise MissingError(
            f"{jar} is for CUDA {wanted}, and the driver of this machine's GPU knows CUDA {has}: install a newer driver, "
            f"or take the jar with the classifier cuda{has}"
        )
    check_shares(min(sizes), jvm, python, workers)


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
