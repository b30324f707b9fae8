"""Builds the connector's jar from the Java sources in `spark_plugin/jvm/`: ``python -m kolumn.spark_plugin.session.build [FOLDER]``.

Eclipse's compiler, one jar from Maven's central repository, runs on any Java from version 17 on, so no JDK is needed. It makes the same
bytes everywhere, so a test can compare the jar that is shipped. The jar is the same for pyspark 4.1, 4.2 and 4.3.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pyspark

from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session.java import JAR, Artifact, find_java

PLUGIN = Path(__file__).resolve().parents[1]
SOURCES = sorted((PLUGIN / "jvm" / "kolumn").glob("*.java"))
_RESOURCES = PLUGIN / "jvm" / "resources"
RESOURCES = {path.relative_to(_RESOURCES).as_posix(): path for path in sorted(_RESOURCES.rglob("*")) if path.is_file()}
STANDINS = sorted((PLUGIN / "jvm" / "standins").rglob("*.java"))
"""What is compiled against and not put into the jar."""
_COMPILER = Artifact("org.eclipse.jdt", "ecj", "3.42.0", sha256="29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29")


def digest() -> str:
    """SHA-256 of the sources, which the jar's manifest names: by that a jar is known to be out of date without a compiler."""
    total = sha256()
    for path in (*SOURCES, *RESOURCES.values()):
        total.update(f"{path.name}\0".encode() + sha256(path.read_bytes()).digest())
    return total.hexdigest()


def build(folder: Path) -> Path:
    """Compile the sources and write the jar into a folder. Raises `MissingError` without Java or the compiler, or if that fails."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as standins:
        _compile(STANDINS, Path(standins))
        _compile(SOURCES, Path(scratch), standins)
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / JAR, "w", zipfile.ZIP_STORED) as jar:
            _add(jar, "META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\n{_folded(f'Kolumn-Sources: {digest()}')}\r\n\r\n".encode())
            for path in sorted(Path(scratch).rglob("*.class")):
                _add(jar, path.relative_to(scratch).as_posix(), path.read_bytes())
            for name, path in RESOURCES.items():
                _add(jar, name, path.read_bytes())
    return folder / JAR


def _compile(sources: list[Path], folder: Path, *classes: str) -> None:
    compiler = _COMPILER.fetch()
    jars = os.pathsep.join([*classes, *(str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")))])
    java = str(find_java() / "bin" / "java")
    # --release would need a file that runtimes do not have.
    how = ["-source", "17", "-target", "17", "-encoding", "UTF-8", "-proc:none", "-g:none", "-cp", jars, "-d", str(folder)]
    command = [java, "-jar", str(compiler), *how, *map(str, sources)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise MissingError(f"the connector does not compile:\n{done.stdout[-4000:]}")


def _add(jar: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Always the same time, and not compressed: compressors differ between versions of zlib.
    jar.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _folded(line: str) -> str:
    """A manifest has lines of at most 72 bytes."""
    return "\r\n ".join([line[:70], *(line[i : i + 69] for i in range(70, len(line), 69))])


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else PLUGIN / "jars"))
