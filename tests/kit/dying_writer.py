"""A commit that is killed: in a Python worker, where Spark commits, or with the driver and Java."""

import os
import signal
from itertools import count
from typing import Any

from kolumn.spark_plugin.source import RecordSource
from kolumn.spark_plugin.write.writer import SegmentWriter, WriteOptions
from kolumn.writers.commit import run

GROUP, WHERE = "KOLUMN_TEST_GROUP", "KOLUMN_TEST_WHERE"
"""Environment: a group of processes that are killed too, and where; "journal" is before any file has its name."""


def end_of_all() -> None:
    """Kill the group, with driver and Java, and this process."""
    if GROUP in os.environ:
        os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(SegmentWriter):
    """Its process is killed after it has given three files their names, or none."""

    def commit(self, messages: Any) -> None:
        real, moves = run._move, count(1)

        def dies(*args: Any) -> None:
            if os.environ.get(WHERE) == "journal":
                end_of_all()
            real(*args)
            if next(moves) == 3:
                end_of_all()

        run._move = dies  # type: ignore[assignment]
        super().commit(messages)


class DyingSource(RecordSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: Any, overwrite: bool) -> DyingWriter:
        return DyingWriter(WriteOptions.of(self.options), schema, overwrite)
