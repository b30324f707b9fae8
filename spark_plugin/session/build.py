"""Builds the connector's jar from the sources in `spark_plugin/jvm/`: ``python -m kolumn.spark_plugin.session.build [FOLDER]``.

    kolumn/*.java, beside standins/ ──▶ Eclipse's compiler ──▶ kolumn/*.class
    native/shim.c                   ──▶ Zig's compiler     ──▶ kolumn/native/{amd64,aarch64}/libkolumn.so
    resources/                      ──────────────────────▶    as they are

Eclipse's compiler, one jar from Maven's central repository, runs on any Java from version 17 on, so no JDK is needed. Zig's is a package of
Python that compiles C for any processor and any glibc, so no other compiler is. Both make the same bytes everywhere, so a test can
compare the files in the jar that is shipped. The jar is the same for pyspark 4.0 to 4.3.

``standins/`` has the few classes of the RAPIDS Accelerator that the sources name, since its jar is too large to be fetched for a build.
They are not in the jar.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pyspark

from kolumn.core.errors import MissingError
from kolumn.core.packages import missing_package
from kolumn.spark_plugin.session.java import JAR, Artifact, find_java

PLUGIN = Path(__file__).resolve().parents[1]
JVM = PLUGIN / "jvm"
SOURCES = sorted(path for path in JVM.rglob("*") if path.is_file())
_COMPILER = Artifact("org.eclipse.jdt", "ecj", "3.42.0", sha256="29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29")
PROCESSORS = {"amd64": "x86_64", "aarch64": "aarch64"}
"""Processors that RAPIDS' jars are for, as Java and as Zig call them."""
_GLIBC = "2.17"
"""The oldest one that a machine may have."""
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


def digest() -> str:
    """SHA-256 of the sources, which the jar's manifest names: by that a jar is known to be out of date without a compiler."""
    total = sha256()
    for path in SOURCES:
        total.update(f"{path.relative_to(JVM).as_posix()}\0".encode() + sha256(path.read_bytes()).digest())
    return total.hexdigest()


def build(folder: Path) -> Path:
    """Compile the sources and write the jar into a folder. Raises `MissingError` without Java or a compiler, or if that fails."""
    with tempfile.TemporaryDirectory() as scratch:
        compile_java(Path(scratch))
        compile_native(Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / JAR, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as jar:
            _add(jar, "META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\n{_folded(f'Kolumn-Sources: {digest()}')}\r\n\r\n".encode())
            for root, part in ((Path(scratch), "kolumn"), (JVM / "resources", "")):
                for path in sorted(path for path in (root / part).rglob("*") if path.is_file()):
                    _add(jar, path.relative_to(root).as_posix(), path.read_bytes())
    return folder / JAR


def compile_java(folder: Path, *more: Path) -> None:
    """Classes of the connector, of the stand-ins, and of ``more`` sources, into a folder. Raises `MissingError`."""
    compiler = _COMPILER.fetch()
    jars = os.pathsep.join(str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")))
    java = str(find_java() / "bin" / "java")
    # --release would need a file that runtimes do not have.
    how = ["-source", "17", "-target", "17", "-encoding", "UTF-8", "-proc:none", "-g:none", "-cp", jars, "-d", str(folder)]
    sources = [*(path for path in SOURCES if path.suffix == ".java"), *more]
    _run([java, "-jar", str(compiler), *how, *map(str, sources)], "the connector")


def compile_native(folder: Path) -> None:
    """Libraries for all processors, into a folder. Raises `MissingError`."""
    if find_spec("ziglang") is None:
        raise missing_package("the connector's library needs Zig's compiler", "ziglang")
    for processor, zig in PROCESSORS.items():
        library = folder / "kolumn" / "native" / processor / "libkolumn.so"
        library.parent.mkdir(parents=True, exist_ok=True)
        how = ["-target", f"{zig}-linux-gnu.{_GLIBC}", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-s", *_WARNINGS]
        command = [sys.executable, "-m", "ziglang", "cc", *how, "-o", str(library), "shim.c"]
        # From its folder, so that no path of this machine can end up in it.
        _run(command, "the connector's library", JVM / "native")


def _run(command: list[str], what: str, folder: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise MissingError(f"{what} does not compile:\n{done.stdout[-4000:]}")


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Always the same time: the same sources make the same files.
    jar.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def _folded(line: str) -> str:
    """A manifest has lines of at most 72 bytes."""
    return "\r\n ".join([line[:70], *(line[i : i + 69] for i in range(70, len(line), 69))])


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else PLUGIN / "jars"))
