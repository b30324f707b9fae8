"""The jar of the RAPIDS Accelerator: which release, for which Spark, and where it is. It is never shipped: 576 MB."""

import os
from pathlib import Path

from kolumn.errors import ArgumentError, MissingError
from kolumn.spark_plugin.session.maven import Artifact

RELEASE = "26.08.1"
_JAR = Artifact("com.nvidia", "rapids-4-spark_2.13", RELEASE, "cuda13")

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
    """The jar on this machine: the file that KOLUMN_RAPIDS_JAR names, what `fetch_jar` has fetched, or one in Maven's local repository.

    Raises
    ------
    MissingError
        It is in none of these places.
    """
    named = os.environ.get("KOLUMN_RAPIDS_JAR")
    found = _JAR.find() if not named else Path(named) if Path(named).is_file() else None
    if found is None:
        raise MissingError(
            f"{named or _JAR.places[0]}: no jar of the RAPIDS Accelerator. kolumn.spark_plugin.rapids.fetch_jar() brings it "
            f"({_JAR}, 576 MB); or name the file in KOLUMN_RAPIDS_JAR"
        )
    return found


def fetch_jar() -> Path:
    """`find_jar`; where there is none, it comes from Maven's central repository into the user's cache folder first.

    Raises
    ------
    MissingError
        It can't be fetched, or there is no Java for that.
    """
    return find_jar() if os.environ.get("KOLUMN_RAPIDS_JAR") else _JAR.fetch()
