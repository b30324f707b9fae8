"""Jars of Maven's central repository, fetched by Ivy, which comes with Spark, into the user's cache folder."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

import pyspark

from kolumn.commit.staged_file import make_folders
from kolumn.errors import MissingError
from kolumn.machine_code.cache import objection
from kolumn.spark_plugin.session.java import find_java

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
    """A jar by its coordinates.

    Attributes
    ----------
    group, name, release : str
    classifier : str
        Empty if it has none.
    sha256 : str
        What it must be; empty if that is not known.
    """

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
        """The file on this machine; None if it is in neither place.

        Raises
        ------
        MissingError
            Another user could have put it there, or it is another file.
        """
        for jar in self.places:
            if jar.is_file():
                if jar.parent == _cache() and (wrong := objection(_cache())) is not None:
                    raise MissingError(f"{jar} is not used, since somebody else could have put it there: {wrong}")
                self._compare(jar)
                return jar
        return None

    def fetch(self) -> Path:
        """`find`; if it is not there, it comes from Maven's central repository into the user's cache folder first.

        Raises
        ------
        MissingError
            As `find`; or it cannot be fetched, or there is no Java for that.
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
                found = file_digest(file, "sha256").hexdigest()
            if found != self.sha256:
                raise MissingError(f"{jar} is not {self}: its SHA-256 is {found}, expected {self.sha256}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kolumn" / "jars"
