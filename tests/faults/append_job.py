"""One run of `kolumn.append`, killed at a numbered step: ``append_job.py ENGINE LOG ROOT STEP``. Prints how many steps there are."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import kolumn
from kit.lakes import Lake
from kolumn.tools import append as module
from kolumn.writers.commit.staged_file import StagedFile

steps = 0


def step(at: int) -> None:
    global steps
    steps += 1
    if steps == at:
        os.kill(os.getpid(), signal.SIGKILL)


def watched(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """A function before and after which there is a step."""

    def call(*arguments: Any, **options: Any) -> Any:
        step(at)
        result = function(*arguments, **options)
        step(at)
        return result

    return call


def main(engine: str, log: str, root: str, at: int) -> None:
    lake = Lake(engine, Path(root))
    places: list[tuple[Any, str]] = [
        (pq.ParquetWriter, "write_batch"), (StagedFile, "complete"), (module._Run, "_write"), (module._Run, "_remove_unless_sent"),
    ]  # fmt: skip
    if engine == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.table import Transaction

        places += [(SqlCatalog, "create_table_transaction"), (Transaction, "add_files"), (SqlCatalog, "commit_table")]
    else:
        from deltalake import DeltaTable

        from kolumn.tools import delta

        places += [(delta, "create_table_with_add_actions"), (DeltaTable, "create_write_transaction")]
    for owner, name in places:
        setattr(owner, name, watched(getattr(owner, name), at))
    kolumn.append(log, lake.target(), threads=1, chunk_bytes=4000)
    print(steps)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
