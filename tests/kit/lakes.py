"""A table of Iceberg or of Delta on this machine, which others than Kolumn read."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

ENGINES = ["iceberg", "delta"]


class Lake:
    """A table that is made by the first append, and opened anew for each question."""

    def __init__(self, engine: str, root: Path, url: str = "") -> None:
        pytest.importorskip({"iceberg": "pyiceberg", "delta": "deltalake"}[engine], reason=f"pip install '.[{engine}]'")
        self.engine, self.root, self.path = engine, root, root / "delta"
        self.table, self.warehouse, self.settings = url or self.path, url or f"file://{root}/warehouse", dict[str, str]()
        root.mkdir(exist_ok=True, parents=True)
        if engine == "iceberg":
            # It makes tables of its own, which two can't do at once.
            self.catalog.create_namespace_if_not_exists("db")

    @property
    def catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("lake", uri=f"sqlite:///{self.root}/catalog.db?timeout=60", warehouse=self.warehouse, **self.settings)

    def target(self) -> Any:
        """What `kolumn.append` takes; a handle of this moment, if the table is there."""
        if self.engine == "delta":
            return self.table
        from kolumn.tools.iceberg import IcebergTarget

        return IcebergTarget("db.records", self.catalog)

    def handle(self) -> Any:
        """The engine's own object."""
        if self.engine == "delta":
            from deltalake import DeltaTable

            return DeltaTable(self.table)
        return self.catalog.load_table("db.records")

    def read(self, *columns: str) -> pa.Table:
        """All rows, in the order of the log, by the engine's own reader."""
        table = self.handle().to_pyarrow_table() if self.engine == "delta" else self.handle().scan().to_arrow()
        table = table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
        return table.select(list(columns)) if columns else table

    def rows(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of each row."""
        columns = self.read("topic", "partition", "offset").to_pydict()
        return list(zip(*columns.values(), strict=True))

    def data_files(self) -> set[str]:
        """Files of data that exist, whether a commit names them or not."""
        return {path.name for path in self.root.rglob("*.parquet") if "kolumn-" in path.parent.name}

    def committed_files(self) -> set[str]:
        """Files that the newest version names."""
        table = self.handle()
        paths = table.file_uris() if self.engine == "delta" else table.inspect.files()["file_path"].to_pylist()
        return {Path(path).name for path in paths}

    def add_by_others(self, rows: pa.Table) -> None:
        """A commit of another writer."""
        if self.engine == "delta":
            from deltalake import write_deltalake

            write_deltalake(self.path, rows, mode="append")
        else:
            self.handle().append(rows)

    def forget_history(self) -> None:
        """Leave the newest version alone."""
        table = self.handle()
        if self.engine == "delta":
            table.optimize.compact()
            table.create_checkpoint()
            for path in sorted((self.path / "_delta_log").glob("*.json"))[:-1]:
                path.unlink()
        else:
            time.sleep(0.01)
            newest = table.current_snapshot().snapshot_id
            table.maintenance.expire_snapshots().by_ids(
                [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest]
            ).commit()
