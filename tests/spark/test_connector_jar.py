"""The connector's jar: that it is the one of the sources, that it can be built again byte by byte, and how a session gets it."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kolumn.spark_plugin.session.java as maven
from kolumn.core.errors import MissingError
from kolumn.spark_plugin import configure, connector_jar
from kolumn.spark_plugin.jvm import build as building
from kolumn.spark_plugin.session.java import JAR


def test_the_jar_is_that_of_the_sources() -> None:
    assert building.digest_in(connector_jar()) == building.digest(), "the Java sources have changed: make jar"


def test_a_build_makes_the_same_bytes(tmp_path: Path) -> None:
    try:
        built = building.build(tmp_path)
    except MissingError as error:
        if "could not be fetched" not in str(error):
            raise
        if os.environ.get("CI"):
            pytest.fail(f"the jar could not be built, so nothing is proved about it: {error}")
        pytest.skip(f"the jar could not be built: {error}")
    assert built.read_bytes() == connector_jar().read_bytes(), "the jar is not that of the sources: make jar"


class Builder:
    """Keeps what it is given, as Spark's does."""

    def __init__(self, **options: str) -> None:
        self._options: dict[str, Any] = options

    def config(self, map: dict[str, str]) -> "Builder":
        self._options |= map
        return self


def test_a_session_gets_the_jar_beside_its_others() -> None:
    builder: Any = Builder(**{"spark.jars": "/a.jar,/b.jar"})
    assert configure(configure(builder)) is builder
    assert builder._options == {"spark.jars": f"/a.jar,/b.jar,{connector_jar()}", "spark.kolumn.driver.python": sys.executable}


def test_a_package_without_the_jar_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kolumn.spark_plugin.session.java.files", lambda _: tmp_path)
    with pytest.raises(MissingError, match=rf"{JAR}: no jar; `make jar` builds it"):
        connector_jar()


def test_a_compiler_that_is_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maven, "Path", SimpleNamespace(home=lambda: tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(maven, "_cache", lambda: tmp_path / "none")
    place = tmp_path / ".m2/repository/org/eclipse/jdt/ecj/3.42.0/ecj-3.42.0.jar"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"something else")
    with pytest.raises(MissingError, match="its SHA-256 is"):
        building._COMPILER.find()
