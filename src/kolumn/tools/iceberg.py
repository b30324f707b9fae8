"""Iceberg tables for `kolumn.append`, by pyiceberg.

The state is in the summary of the snapshot that has the files, and a second time in a property of the table, written by the same
commit: snapshots of others don't inherit a summary, and snapshots expire. What the newest snapshot's ancestors say counts. The property
counts only where their chain is broken: a table that was rolled back has a newer property, of rows that are no longer there.

pyiceberg repeats a commit that met another one, and does not compare the files again. So two runs would both add the same records. Of this
handle of the table repeating is turned off; the property of the table stays what it is.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pyarrow as pa
from pyarrow import fs

from kolumn.core.errors import ArgumentError
from kolumn.core.packages import missing_package
from kolumn.tools.tables import RUN, STATE, DataFile, OvertakenError, TableState

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationError
    from pyiceberg.io.pyarrow import PyArrowFileIO, UnsupportedPyArrowTypeException
    from pyiceberg.table import Table
    from pyiceberg.transforms import DayTransform, IdentityTransform
except ImportError as error:
    raise missing_package("Iceberg tables need pyiceberg", "pyiceberg[pyarrow,sql-sqlite]") from error


# Payloads have none, which pyiceberg would tell for each file.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(lambda record: "statistics missing" not in record.getMessage())
_RETRIES = "commit.retry.num-retries"
_REFUSALS = ValueError, OverflowError, NotImplementedError, ValidationError, UnsupportedPyArrowTypeException


class IcebergTarget:
    """A table, or the name of one that is made if it does not exist: in ``catalog``, or with the name of a catalog that pyiceberg's
    configuration knows in front."""

    in_names: tuple[str, ...] = ()

    def __init__(self, table: object, catalog: Catalog | None = None) -> None:
        self.table, self.catalog = None if isinstance(table, str) else cast(Table, table), catalog
        self.name = table if isinstance(table, str) else ".".join(cast(Table, table).name())
        self.files: fs.FileSystem
        self.root, self.by_day = "", False

    def prepare(self, schema: pa.Schema, make_by_day: bool) -> None:
        if self.table is None:
            self.table = self._opened(schema, make_by_day)
        table = self.table.refresh()
        table.metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, _RETRIES: "0"}})
        if not isinstance(table.io, PyArrowFileIO):
            raise ArgumentError(f"{self.name}: its files are not reached by pyarrow; set py-io-impl=pyiceberg.io.pyarrow.PyArrowFileIO")
        scheme, host, self.root = PyArrowFileIO.parse_location(table.location().rstrip("/"))
        self.files = table.io.fs_by_scheme(scheme, host or None)
        names = {field.field_id: field.name for field in table.schema().fields}
        self.by_day = False
        for field in table.spec().fields:
            column = names.get(field.source_id)
            is_day = isinstance(field.transform, DayTransform) and column == "timestamp"
            if not is_day and not (isinstance(field.transform, IdentityTransform) and column in ("topic", "partition")):
                raise ArgumentError(
                    f"{self.name} is partitioned by {field.transform}({column}): a file has one topic-partition, and one day. "
                    "Tables may be partitioned by topic, partition and day(timestamp)"
                )
            self.by_day = self.by_day or is_day
        self.schema = schema

    def open(self, path: str) -> Any:
        return self.files.open_output_stream(f"{self.root}/{path}")

    def _opened(self, schema: pa.Schema, by_day: bool) -> Table:
        catalog, name = self.catalog, self.name
        if catalog is None:
            first, _, name = name.partition(".")
            if "." not in name:
                raise ArgumentError(f"{self.name}: expected catalog.namespace.table")
            try:
                catalog = load_catalog(first)
            except ValueError as error:
                raise ArgumentError(f"{first}: pyiceberg knows no such catalog ({error}): configure it in ~/.pyiceberg.yaml") from error
        try:
            return catalog.load_table(name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        try:
            with catalog.create_table_transaction(name, schema) as made, made.update_spec() as spec:
                spec.add_identity("topic").add_identity("partition")
                if by_day:
                    spec.add_field("timestamp", DayTransform(), "day")
        except (TableAlreadyExistsError, CommitFailedException):
            # Another run was faster.
            pass
        except _REFUSALS as error:
            raise ArgumentError(f"{self.name} cannot have these columns: {error}") from error
        return catalog.load_table(name)

    def state(self, keys: Iterable[tuple[str, int]], ids: Mapping[str, str], settings: str) -> TableState | None:
        metadata = self._known().metadata
        snapshot, text = metadata.current_snapshot(), None
        while snapshot is not None:
            text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(STATE)
            if text is not None or snapshot.sequence_number == 1:
                break
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
            if snapshot is None:
                # It has expired; the first snapshot of all has no parent either.
                text = metadata.properties.get(STATE)
        if text is None:
            return None
        found = json.loads(text)
        if found.get("v") != 1:
            raise ArgumentError(f"{self.name}: its offsets have version {found.get('v')}, this Kolumn knows 1: update it")
        offsets = {(topic, int(partition)): offset for topic, own in found["next"].items() for partition, offset in own.items()}
        return TableState(offsets, found["ids"], found["settings"])

    def has_rows(self) -> bool:
        snapshot = self._known().current_snapshot()
        return snapshot is not None and snapshot.summary is not None and snapshot.summary["total-records"] != "0"

    def commit(self, added: list[DataFile], state: TableState, notes: Mapping[str, str]) -> None:
        table, offsets = self._known(), dict[str, dict[str, int]]()
        for (topic, partition), offset in state.next.items():
            offsets.setdefault(topic, {})[str(partition)] = offset
        text = json.dumps({"v": 1, "next": offsets, "ids": dict(state.ids), "settings": state.settings})
        root = table.location().rstrip("/")
        if table.metadata.properties[_RETRIES] != "0":
            raise AssertionError("pyiceberg would repeat this commit")
        change = table.transaction()
        try:
            with change.update_schema() as update:
                update.union_by_name(self.schema)
            change.add_files([f"{root}/{file.path}" for file in added], snapshot_properties={STATE: text, **notes})
            change.set_properties({STATE: text})
        except _REFUSALS as error:
            raise ArgumentError(f"{self.name} cannot have these columns: {error}") from error
        try:
            change.commit_transaction()
        except CommitFailedException as error:
            raise OvertakenError(f"{self.name}: {error}") from error

    def has_run(self, run: str) -> bool:
        table = self._known().catalog.load_table(self._known().name())
        if any(snapshot.summary is not None and snapshot.summary.additional_properties.get(RUN) == run for snapshot in table.snapshots()):
            return True
        paths = table.inspect.all_files()["file_path"].to_pylist() if table.snapshots() else []
        return any(f"/kolumn-{run}/" in path for path in paths)

    def _known(self) -> Table:
        assert self.table is not None
        return self.table
