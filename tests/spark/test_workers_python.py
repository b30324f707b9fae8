"""Spark's workers run this Python unless another one is configured. If that is impossible, the error explains what to do."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import PropertyMock

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

import kolumn
from kit.spark_session import run_job
from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session import session as workers_python


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'No module named kolumn' >&2\nexit 1\n")
    python.chmod(0o755)
    return python


@pytest.mark.spark
@pytest.mark.slow
def test_an_environment_that_is_not_activated(segment: Path, wrong: Path) -> None:
    """Neither functions nor registered data sources run in the wrong python3 of the PATH, nor does the JVM look up formats in it.

    If the wrong one was asked for, the error comes before any task fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    path = f"{wrong.parent}{os.pathsep}{os.environ['PATH']}"
    environment |= {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    rows = kolumn.read(segment).num_rows
    assert run_job("wrong_python", segment, env=environment) == ["python3", rows, None, sys.executable, rows, 0]
    assert run_job("by_name", segment, env=environment) == rows
    advice = f"Set PYSPARK_PYTHON={sys.executable} before the session is started"
    text = f"Spark's workers would run {wrong}, where Kolumn is not installed. {advice}"
    assert run_job("wrong_python", segment, env=environment | {"PYSPARK_PYTHON": str(wrong)}) == [str(wrong), text]


class Context:
    """Stand-in with the attributes of a SparkContext that are read."""

    def __init__(self, master: str, python: str, **conf: str) -> None:
        self.master, self.pythonExec, self._python_includes = master, python, []
        self.getConf = lambda: {name.replace("_", "."): value for name, value in conf.items()}


def used(context: Context) -> str:
    session: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(getAll={}))
    workers_python.use_this_python(session)
    return context.pythonExec


def test_which_python_workers_run(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers on other machines keep theirs, and so do those for which one was asked for."""
    other = str(wrong)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert used(Context("local[2]", "python3")) == sys.executable
    assert used(Context("yarn", "python3")) == "python3"
    assert used(Context("spark://host:7077", other)) == other
    assert used(Context("local", "python3", spark_pyspark_python=sys.executable)) == sys.executable
    with pytest.raises(MissingError, match=f"would run {other}.* Set spark.pyspark.python={sys.executable}"):
        used(Context("local", "python3", spark_pyspark_python=other))
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    for python, message in ((other, "Set PYSPARK_PYTHON="), ("no/such/python", "no/such/python, which is not there")):
        with pytest.raises(MissingError, match=message):
            used(Context("local", python))
    assert used(Context("local", sys.executable)) == sys.executable
    # As under spark-submit, the setting counts before the variable.
    assert used(Context("local", other, spark_pyspark_python=sys.executable)) == sys.executable
    # Kolumn may come with the job.
    assert used(Context("local", other, spark_submit_pyFiles="kolumn.zip")) == other


@pytest.mark.parametrize("given", ["", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"])
def test_where_the_jvm_looks_for_formats(given: str, wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("PATH", str(wrong.parent), prepend=os.pathsep)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        # Set first, so that what the function sets does not remain.
        monkeypatch.setenv(name, "python3")
        if name != given:
            monkeypatch.delenv(name)
    workers_python.lacks_kolumn.cache_clear()
    workers_python.use_this_python_to_find_formats()
    workers_python.lacks_kolumn.cache_clear()
    assert os.environ.get("PYSPARK_DRIVER_PYTHON") == {"": sys.executable, "PYSPARK_DRIVER_PYTHON": "python3"}.get(given)


def test_a_python3_that_will_do(tmp_path: Path) -> None:
    """It is in the folder of this Python, so nothing has to be set."""
    assert workers_python.lacks_kolumn(sys.executable) is None
    elsewhere = tmp_path / "python3"
    elsewhere.symlink_to(sys.executable)
    assert not workers_python._is_this(str(elsewhere))


def test_spark_connect_has_no_context() -> None:
    none = PropertyMock(side_effect=PySparkException("JVM_ATTRIBUTE_NOT_SUPPORTED"))
    session = type("Connected", (), {"sparkContext": none, "conf": SimpleNamespace(getAll={})})()
    workers_python.use_this_python(session)
