"""A JVM that calls `kolumn.DeviceDecoder`, on stand-ins for RAPIDS' classes and the tests' libcuda; see `java/DecodeCalls.java`."""

import inspect
import json
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark

from kit import device_columns
from kit.own_libcuda import OwnLibcuda
from kit.plain_spark import soon
from kit.scripted_worker import Jvm
from kolumn.spark_plugin import connector_jar
from kolumn.spark_plugin.session import build as building
from kolumn.spark_plugin.session.java import find_java

HARNESS = sorted((Path(__file__).parent / "java").glob("*.java"))


class Calls:
    """A JVM that calls the decoder."""

    def __init__(self, java: list[str], python: Path, gpu: OwnLibcuda) -> None:
        environment = os.environ | gpu.environment
        self.process = subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.python, self.gpu = python, gpu

    def __call__(self, *scripts: Callable[[Jvm], None], given: dict[str, Any] | None = None, shared: bool = True, **call: Any) -> Any:
        """What comes of a call with a split for each script, to which something is given."""
        texts = [self._text(script, given or {}) for script in scripts]
        question = {"python": str(self.python), "shared": shared, "splits": texts, "work": texts[0], **call}
        found = self.ask(question)
        assert found["live"] == [0, 0, 0], (found.get("error"), "buffers, views and columns that nobody closed")
        assert self.gpu.live == {}
        return found

    def ask(self, question: dict[str, Any]) -> Any:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end_workers(self) -> list[str]:
        """End those that are idle; the threads that have had the GPU by then."""
        self.ask({"conf": {"idleSeconds": 0}})
        soon(lambda: not self.gpu.locked)
        return list(self.ask({"conf": {"idleSeconds": 60}})["haveDevice"])

    def _text(self, script: Callable[[Jvm], None], given: dict[str, Any]) -> str:
        return f"given = {given!r}\n" + textwrap.dedent(inspect.getsource(script)).replace(script.__name__, "script", 1)

    def fine(self, *scripts: Callable[[Jvm], None], **call: Any) -> Any:
        found = self(*scripts, **call)
        assert "error" not in found, found["error"]
        return found


@contextmanager
def running(folder: Path, python: str | Path, gpu: OwnLibcuda) -> Iterator[Calls]:
    """The JVM, whose workers are started by a Python; classes are compiled into a folder."""
    building.compile_java(folder, *HARNESS)
    jars = Path(pyspark.__file__).parent / "jars"
    places = os.pathsep.join([str(folder), str(connector_jar()), f"{jars}/*"])
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch")]
    # Assertions are enabled, as they may be in RAPIDS' classes.
    found = Calls([str(find_java() / "bin" / "java"), "-ea", "-Xmx512m", *opened, "-cp", places, "kolumn.DecodeCalls"], Path(python), gpu)
    try:
        yield found
        found.process.stdin.close()
        found.process.wait(30)
    finally:
        found.process.kill()
        found.process.stdout.close()


def table_of(found: Any, schema: pa.Schema) -> pa.Table:
    """The records of the only split of a call."""
    (items,) = found["column"]["children"]
    columns = zip(items["children"], schema, strict=True)
    return pa.Table.from_arrays([device_columns.as_type(as_column(child), field.type) for child, field in columns], schema=schema)


def as_column(found: Any) -> Any:
    """A column that the JVM described, by the names that the device's columns have."""
    part = {name: SimpleNamespace(bytes=np.frombuffer(bytes.fromhex(found[name]) or bytes(4), np.uint8)) for name in ("data", "offsets")}
    mask = SimpleNamespace(bytes=np.frombuffer(bytes.fromhex(found["valid"]), np.uint8)) if found["valid"] else None
    children = [as_column(child) for child in found.get("children", [])]
    if found["type"] in ("STRING", "LIST"):
        children = [SimpleNamespace(data=part["offsets"]), *children]
    return SimpleNamespace(
        kind=found["type"].lower(), rows=found["rows"], nulls=found["nulls"], data=part["data"], bitmap=mask, children=children
    )
