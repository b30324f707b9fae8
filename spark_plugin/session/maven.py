"""The connector's jar as a Maven artifact: ``python -m kolumn.spark_plugin.session.maven FOLDER`` writes a repository into a folder.

``spark-submit --packages`` and managed platforms take it from there or from a server to which it is copied. The jar is that of the package,
byte for byte. It has no dependencies: all that it names comes with Spark.
"""

import hashlib
import io
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from kolumn.spark_plugin.session.build import JVM, SOURCES
from kolumn.spark_plugin.session.java import connector_jar

GROUP, NAME = "io.github.kolumn", "kolumn-spark_2.13"
VERSION = version("kolumn")
COORDINATES = f"{GROUP}:{NAME}:{VERSION}"
_POM = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
         xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{GROUP}</groupId>
  <artifactId>{NAME}</artifactId>
  <version>{VERSION}</version>
  <name>Kolumn's connector for Spark</name>
  <description>Reads Apache Kafka log segments into Spark by columns, with the Python package kolumn {VERSION} beside it.</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
  <developers>
    <developer>
      <name>The Kolumn authors</name>
    </developer>
  </developers>
</project>
"""
_METADATA = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>{GROUP}</groupId>
  <artifactId>{NAME}</artifactId>
  <versioning>
    <latest>{VERSION}</latest>
    <release>{VERSION}</release>
    <versions>
      <version>{VERSION}</version>
    </versions>
  </versioning>
</metadata>
"""
_JAVADOC = "The connector has no classes to be called. Its options and settings are in Kolumn's documentation.\n"


def write_repository(folder: Path) -> Path:
    """Write pom, jar, sources and javadoc with their checksums into a repository; returns the folder of this version.

    Raises `MissingError` if the package was installed without the jar.
    """
    own = folder.joinpath(*GROUP.split("."), NAME)
    target = own / VERSION
    target.mkdir(parents=True, exist_ok=True)
    sources = {path.relative_to(JVM).as_posix(): path.read_bytes() for path in SOURCES if path.is_relative_to(JVM / "kolumn")}
    parts = {
        ".pom": _POM.encode(),
        ".jar": connector_jar().read_bytes(),
        "-sources.jar": _archive(sources),
        "-javadoc.jar": _archive({"README.txt": _JAVADOC.encode()}),
    }
    for end, data in parts.items():
        _write(target / f"{NAME}-{VERSION}{end}", data)
    _write(own / "maven-metadata.xml", _METADATA.encode())
    return target


def _archive(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return data.getvalue()


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for kind in ("md5", "sha1", "sha256", "sha512"):
        path.with_name(f"{path.name}.{kind}").write_text(hashlib.new(kind, data, usedforsecurity=False).hexdigest())


if __name__ == "__main__":
    print(write_repository(Path(sys.argv[1])), COORDINATES)
