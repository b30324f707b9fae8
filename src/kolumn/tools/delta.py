"""Delta tables for `kolumn.append`, by deltalake.

The state is in transactions of applications: the version of ``kolumn:orders-0`` is the next offset of that topic-partition, that of
``kolumn-topic:orders`` stands for the topic's id, that of ``kolumn`` for the settings. Delta keeps them unless
`delta.setTransactionRetentionDuration` is set; without them an append is refused. Of two commits of the same moment the second fails, since
both have the last one. deltalake compares no earlier commits, so the versions are read before.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any, cast

import pyarrow as pa
from pyarrow import fs

from kolumn.core.errors import ArgumentError, KolumnError
from kolumn.core.packages import missing_package
from kolumn.source import storage
from kolumn.tools.tables import EVERY_SETTING, RUN, STATE, DataFile, OvertakenError, TableState
from kolumn.writers.outgoing import refuse_data_folder

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.fs import DeltaStorageHandler
    from deltalake.schema import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError as error:
    raise missing_package("Delta tables need deltalake", "deltalake") from error

_BY = ["topic", "partition"]
_EPOCH, _YEAR_9999 = datetime(1970, 1, 1), 253_370_764_800_000_000
_FEATURES = {"appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "invariants", "timestampNtz", "v2Checkpoint"}
"""Features of writers that ask nothing of an append of whole files; invariants are looked for in the columns."""


class DeltaTarget:
    """A table, or its path or URI; the table is made if it does not exist."""

    by_day = False

    def __init__(self, table: object) -> None:
        self.storage: dict[str, str] | None = None
        if isinstance(table, DeltaTable):
            self.name, self.storage = table.table_uri, table._storage_options
        else:
            self.name = os.fspath(cast(str, table))
        self.table: Any = None
        self.in_names: tuple[str, ...] = ()
        self.files: fs.FileSystem
        self.root = ""

    def prepare(self, schema: pa.Schema, make_by_day: bool) -> None:
        if make_by_day:
            raise ArgumentError("by_day: a Delta table has no partitions of its own by day; OPTIMIZE … ZORDER BY (timestamp) sorts it")
        try:
            if not DeltaTable.is_deltatable(self.name, self.storage):
                self._refuse_log()
                # If somebody else has made it meanwhile, it can be opened; otherwise the error comes again.
                with suppress(DeltaError):
                    made = Schema.from_arrow(schema)
                    create_table_with_add_actions(self.name, made, [], "error", _BY, storage_options=self.storage)
            self.table = DeltaTable(self.name, storage_options=self.storage)
        except (DeltaError, OSError) as error:
            raise KolumnError(f"{self.name}: deltalake can neither open nor make this table: {_said(error)}") from error
        self._check(schema)
        uri = self.table.table_uri
        if uri.startswith("file://") or "://" not in uri:
            self.files, self.root = fs.FileSystem.from_uri(uri) if "://" in uri else (fs.LocalFileSystem(), str(Path(uri).absolute()))
            self.root = self.root.rstrip("/")
        else:
            self.files, self.root = fs.PyFileSystem(DeltaStorageHandler(uri, self.storage)), ""
        self.in_names = tuple(self.table.metadata().partition_columns)

    def _refuse_log(self) -> None:
        folder, advice = self.name.removeprefix("file://"), "Name another folder or URI for the table"
        if not storage.is_url(folder):
            refuse_data_folder(folder, advice=advice)
            refuse_data_folder(os.path.dirname(os.path.abspath(folder)), directly=True, advice=advice)

    def open(self, path: str) -> Any:
        return self.files.handler._handler.open_output_stream(path)

    def _check(self, schema: pa.Schema) -> None:
        protocol, partitions = self.table.protocol(), self.table.metadata().partition_columns
        features = set(protocol.writer_features or ())
        # Versions 3 to 6 are a list of features without their names.
        if protocol.min_writer_version not in (1, 2, 7) or features - _FEATURES:
            what = ", ".join(sorted(features - _FEATURES)) or f"writer version {protocol.min_writer_version}"
            raise ArgumentError(f"{self.name} has {what}, which asks something of writers that this one does not do: name another table")
        if set(partitions) - set(_BY):
            raise ArgumentError(f"{self.name} is partitioned by {', '.join(partitions)}: expected topic and partition, or one, or none")
        have = {field.name: field for field in self.table.schema().fields}
        ours = {field.name: field for field in Schema.from_arrow(schema).fields}
        missing = [field for name, field in ours.items() if name not in have]
        if missing:
            raise ArgumentError(f"{self.name} lacks {', '.join(field.name for field in missing)}: DeltaTable.alter.add_columns adds them")
        for name, field in have.items():
            if name in ours and ours[name].type != field.type:
                raise ArgumentError(f"{self.name}: column {name} is {field.type}, and would be {ours[name].type}")
            if (name not in ours and not field.nullable) or "delta.invariants" in field.metadata:
                raise ArgumentError(f"{self.name}: column {name} has a condition that nobody compares with records")

    def state(self, keys: Iterable[tuple[str, int]], ids: Mapping[str, str], settings: str) -> TableState | None:
        versions = {key: self.table.transaction_version(_app(*key)) for key in keys}
        chosen = self.table.transaction_version("kolumn")
        if chosen is None:
            return None
        for one in self.table.history(1000):
            if RUN in one:
                break
            if one.get("operation") == "RESTORE":
                raise ArgumentError(f"{self.name} was restored, and its offsets are still those of before: append to another table")
        numbers = {topic: (self.table.transaction_version(_app(topic)), number) for topic, number in ids.items()}
        known = {topic: own if seen == _number(own) else "another" for topic, (seen, own) in numbers.items() if seen is not None}
        offsets = {key: version for key, version in versions.items() if version is not None}
        return TableState(offsets, known, next((own for own in EVERY_SETTING if chosen == _number(own)), "other options"))

    def has_rows(self) -> bool:
        return bool(self.table.get_add_actions().num_rows)

    def commit(self, added: list[DataFile], state: TableState, notes: Mapping[str, str]) -> None:
        keys = sorted({(file.topic, file.partition) for file in added})
        marks = {_app(*key): state.next[key] for key in keys} | {"kolumn": _number(state.settings)}
        marks |= {_app(topic): _number(state.ids[topic]) for topic in {topic for topic, _ in keys} & set(state.ids)}
        text = json.dumps([[*key, state.next[key]] for key in keys])
        properties = CommitProperties(
            custom_metadata={STATE: text, **notes},
            app_transactions=[Transaction(app, version) for app, version in marks.items()],
        )
        try:
            self.table.create_write_transaction(
                [self._action(file) for file in added], "append", self.table.schema(), list(self.in_names), commit_properties=properties
            )
        except CommitFailedError as error:
            raise OvertakenError(f"{self.name}: {_said(error)}") from error

    def _action(self, file: DataFile) -> AddAction:
        own = {"topic": file.topic, "partition": str(file.partition)}
        least: dict[str, int | str] = {"offset": file.first}
        most: dict[str, int | str] = {"offset": file.last}
        if file.times is not None and max(map(abs, file.times)) < _YEAR_9999:
            # In milliseconds, as Delta has them there: the latest is rounded up.
            least["timestamp"], most["timestamp"] = _iso(file.times[0] // 1000), _iso(-(-file.times[1] // 1000))
        stats = {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": {"offset": 0}}
        return AddAction(file.path, file.size, {name: own[name] for name in self.in_names}, int(time() * 1000), True, json.dumps(stats))

    def has_run(self, run: str) -> bool:
        table = DeltaTable(self.name, storage_options=self.storage)
        return any(f"/kolumn-{run}/" in uri for uri in table.file_uris()) or any(one.get(RUN) == run for one in table.history())


def _said(error: Exception) -> str:
    """The text of an error of deltalake on one line, without the colours that it has for terminals."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    return f"{text}. For an endpoint with http://, set AWS_ALLOW_HTTP=true" if "URL scheme is not allowed" in text else text


def _app(topic: str, partition: int | None = None) -> str:
    return f"kolumn-topic:{topic}" if partition is None else f"kolumn:{topic}-{partition}"


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8]) >> 1


def _iso(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds") + "Z"
