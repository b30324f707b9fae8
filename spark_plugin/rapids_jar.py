"""The jar of the RAPIDS Accelerator: which release, for which Spark, and where it is. It is never shipped: 576 MB."""

import os
import shutil
import subprocess
from pathlib import Path

from kolumn.errors import ArgumentError, MissingError

GROUP, ARTIFACT, RELEASE, CLASSIFIER = "com.nvidia", "rapids-4-spark_2.13", "26.08.1", "cuda13"
COORDINATE = f"{GROUP}:{ARTIFACT}:{RELEASE}:jar:{CLASSIFIER}"

SPARKS = (
    *(f"3.5.{patch}" for patch in range(10)),
    *(f"4.0.{patch}" for patch in range(5)),
    "4.1.1", "4.1.2", "4.1.3",
    "4.2.0",
)  # fmt: skip
"""Versions of Spark that this release knows. It compares whole strings, and ends the application for any other."""


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
    """The jar on this machine: the file that KOLUMN_RAPIDS_JAR names, or the one in the local Maven repository.

    Raises
    ------
    MissingError
        Where it is in neither place; the message has the command that fetches it.
    """
    named = os.environ.get("KOLUMN_RAPIDS_JAR")
    jar = Path(named) if named else _in_repository()
    if not jar.is_file():
        raise MissingError(f"{jar}: no jar of the RAPIDS Accelerator. Fetch it ({' '.join(_FETCH)}), or name it in KOLUMN_RAPIDS_JAR")
    return jar


def fetch_jar() -> Path:
    """`find_jar`, and where there is none yet, Maven fetches it into its local repository.

    Raises
    ------
    MissingError
        Without Maven on the PATH, or where Maven fails.
    """
    try:
        return find_jar()
    except MissingError as error:
        if shutil.which(_FETCH[0]) is None:
            raise MissingError(f"{error}. There is no Maven on the PATH") from None
    done = subprocess.run(_FETCH, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{COORDINATE}: Maven could not fetch it: {done.stdout[-1000:]}")
    return find_jar()


_FETCH = ("mvn", "-q", "-B", "dependency:get", f"-Dartifact={COORDINATE}", "-Dtransitive=false")


def _in_repository() -> Path:
    folder = Path.home().joinpath(".m2", "repository", *GROUP.split("."), ARTIFACT, RELEASE)
    return folder / f"{ARTIFACT}-{RELEASE}-{CLASSIFIER}.jar"
