"""Spark's workers run this Python unless another one is configured. If that is impossible, the error explains what to do."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException

import kolumn
from kolumn.core.errors import MissingError
from kolumn.spark_plugin.session import session as workers_python

JOB = Path(__file__).with_name("workers_python_job.py")


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A Python without packages."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'No module named kolumn' >&2\nexit 1\n")
    python.chmod(0o755)
    return python


def run(part: str, segment: Path, wrong: Path, **given: str) -> list[str]:
    """Lines that the job prints if ``python3`` of the PATH is the wrong one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    path = f"{wrong.parent}{os.pathsep}{os.environ['PATH']}"
    environment |= {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **given}
    job = [sys.executable, str(JOB), part, str(segment)]
    done = subprocess.run(job, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.partition("RESULT\n")[2].splitlines()


@pytest.mark.spark
@pytest.mark.slow
def test_an_environment_that_is_not_activated(segment: Path, wrong: Path) -> None:
    """Neither functions nor registered data sources run in the wrong python3 of the PATH."""
    rows = str(kolumn.read(segment).num_rows)
    assert run("main", segment, wrong) == ["python3", rows, "None", sys.executable, rows, "0"]


@pytest.mark.spark
@pytest.mark.slow
def test_nothing_is_registered(segment: Path, wrong: Path) -> None:
    """The JVM looks up the format in the Python that has imported Kolumn."""
    assert run("by_name", segment, wrong) == [str(kolumn.read(segment).num_rows)]


@pytest.mark.spark
@pytest.mark.slow
def test_the_wrong_one_was_asked_for(segment: Path, wrong: Path) -> None:
    """The error comes before any task fails."""
    advice = f"Set PYSPARK_PYTHON={sys.executable} before the session is started"
    text = f"Spark's workers would run {wrong}, where Kolumn is not installed. {advice}"
    assert run("main", segment, wrong, PYSPARK_PYTHON=str(wrong)) == [str(wrong), text]


class Context:
    """Stand-in with the attributes of a SparkContext that are read."""

    def __init__(self, master: str, python: str, **conf: str) -> None:
        self.master, self.pythonExec, self._python_includes = master, python, []
        self.getConf = lambda: {name.replace("_", "."): value for name, value in conf.items()}


def used(context: Context) -> str:
    session: Any = SimpleNamespace(sparkContext=context)
    workers_python.use_this_python(session)
    return context.pythonExec


def test_other_machines_are_left_alone(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert used(Context("local[2]", "python3")) == sys.executable
    assert used(Context("yarn", "python3")) == "python3"
    assert used(Context("spark://host:7077", str(wrong))) == str(wrong)


def test_what_was_asked_for_stays(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with pytest.raises(MissingError, match="Set PYSPARK_PYTHON="):
        used(Context("local", str(wrong), spark_pyspark_python=str(wrong)))
    monkeypatch.setenv("PYSPARK_PYTHON", str(wrong))
    with pytest.raises(MissingError, match="Set PYSPARK_PYTHON="):
        used(Context("local", str(wrong)))
    with pytest.raises(MissingError, match="no/such/python, which is not there"):
        used(Context("local", "no/such/python"))
    assert used(Context("local", sys.executable)) == sys.executable


def test_kolumn_may_come_with_the_job(wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(wrong))
    assert used(Context("local", str(wrong), spark_submit_pyFiles="kolumn.zip")) == str(wrong)


def test_spark_connect() -> None:
    class Connected:
        @property
        def sparkContext(self) -> Any:  # noqa: N802
            raise PySparkException("JVM_ATTRIBUTE_NOT_SUPPORTED")

    session: Any = Connected()
    workers_python.use_this_python(session)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, sys.executable),
        ({"PYSPARK_PYTHON": "python3"}, None),
        ({"PYSPARK_DRIVER_PYTHON": "python3"}, "python3"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, None),
    ],
)
def test_where_the_jvm_looks_for_formats(given: dict[str, str], expected: str | None, wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("PATH", str(wrong.parent), prepend=os.pathsep)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    workers_python.lacks_kolumn.cache_clear()
    workers_python.use_this_python_to_find_formats()
    # The setting must not remain.
    found = os.environ.get("PYSPARK_DRIVER_PYTHON")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    workers_python.lacks_kolumn.cache_clear()
    assert found == expected


def test_a_python3_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the folder of this Python, so nothing has to be set."""
    assert workers_python.lacks_kolumn(sys.executable) is None
    elsewhere = tmp_path / "python3"
    elsewhere.symlink_to(sys.executable)
    assert not workers_python._is_this(str(elsewhere))
