"""The jar of the RAPIDS Accelerator: which release, for which Spark, and where it is. It is never shipped: 576 MB."""

import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

from kolumn.commit.staged_file import make_folders
from kolumn.errors import ArgumentError, MissingError
from kolumn.machine_code.ownership import objection
from kolumn.spark_plugin.session.java import find_java

GROUP, ARTIFACT, RELEASE, CLASSIFIER = "com.nvidia", "rapids-4-spark_2.13", "26.08.1", "cuda13"
JAR = f"{ARTIFACT}-{RELEASE}-{CLASSIFIER}.jar"

SPARKS = (
    *(f"3.5.{patch}" for patch in range(10)),
    *(f"4.0.{patch}" for patch in range(5)),
    "4.1.1", "4.1.2", "4.1.3",
    "4.2.0",
)  # fmt: skip
"""Versions of Spark that this release knows. It compares whole strings, and ends the application for any other."""

# Ivy, which comes with Spark, knows where Maven's central repository is. The POM names a parent that is not there.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_WANTED = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kolumn" module="rapids"/>
  <dependencies>
    <dependency org="{GROUP}" name="{ARTIFACT}" rev="{RELEASE}" transitive="false">
      <artifact name="{ARTIFACT}" type="jar" ext="jar" m:classifier="{CLASSIFIER}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


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
    maven = Path.home().joinpath(".m2", "repository", *GROUP.split("."), ARTIFACT, RELEASE, JAR)
    places = [Path(named)] if named else [_cache() / JAR, maven]
    for jar in places:
        if jar.is_file():
            if jar == _cache() / JAR and (wrong := objection(_cache())) is not None:
                raise MissingError(f"{jar} is not used, since somebody else could have put it there: {wrong}")
            return jar
    raise MissingError(
        f"{places[0]}: no jar of the RAPIDS Accelerator. kolumn.spark_plugin.rapids.fetch_jar() brings it ({GROUP}:{ARTIFACT}:{RELEASE}, "
        f"classifier {CLASSIFIER}, 576 MB); or name the file in KOLUMN_RAPIDS_JAR"
    )


def fetch_jar() -> Path:
    """`find_jar`; where there is none, it comes from Maven's central repository into the user's cache folder first.

    Raises
    ------
    MissingError
        It can't be fetched, or there is no Java for that.
    """
    try:
        return find_jar()
    except MissingError:
        if os.environ.get("KOLUMN_RAPIDS_JAR"):
            raise
    folder = _cache()
    make_folders(folder, 0o700)
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        settings, wanted = Path(scratch, "settings.xml"), Path(scratch, "ivy.xml")
        settings.write_text(_SETTINGS.format(cache=Path(scratch, "cache")))
        wanted.write_text(_WANTED)
        fetched = Path(scratch, "[artifact]-[revision]-[classifier].[ext]")
        command = [str(find_java() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main"]
        arguments = ["-settings", str(settings), "-ivy", str(wanted), "-retrieve", str(fetched)]
        done = subprocess.run(
            command + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode or not Path(scratch, JAR).is_file():
            raise MissingError(f"{GROUP}:{ARTIFACT}:{RELEASE}, classifier {CLASSIFIER}, could not be fetched: {done.stdout[-1500:]}")
        Path(scratch, JAR).replace(folder / JAR)
    return folder / JAR


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kolumn" / "jars"
