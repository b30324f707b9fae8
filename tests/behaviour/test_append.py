"""What do rows of Iceberg and Delta tables say after `kolumn.append`, and when does it refuse?"""

import importlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import kolumn
from kit import s3
from kit.command_line import run
from kit.corpus import HERE as CORPUS
from kit.corpus import RECORD_NAMES
from kit.encoder import control_batch
from kit.lakes import ENGINES, Lake
from kit.outcome import raises
from kolumn.core.errors import ArgumentError, KolumnError

DAY_MS = 86_400_000
OLD, NEW = "CB7H1K6OSfK1-BrQJPzEKQ", "gMf8SHNYTfiX_aTsKKMsbQ"


@pytest.fixture(params=ENGINES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake")


def grow(log: Path, first: int, count: int, name: str = "orders-0", **columns: Any) -> Path:
    offsets = range(first, first + count)
    given = {
        "key": [b"%d" % (offset % 5) for offset in offsets],
        "value": [b'{"n": %d}' % offset if offset % 7 else None for offset in offsets],
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_700_000_000_000 + DAY_MS * (offset % 3) for offset in offsets], pa.timestamp("ms", "UTC")),
    }
    kolumn.write(pa.table(given | columns), log / name / f"{first:020}.log", batch_bytes=500)
    return log


def upto(stop: int, first: int = 0) -> list[tuple[str, int, int]]:
    return [("orders", 0, offset) for offset in range(first, stop)]


@pytest.mark.parametrize("folder", ["transactional", "compacted", "v2-java", "v1", "upgraded", "v2-many-segments"])
def test_rows_of_brokers(lake: Lake, folder: str) -> None:
    """Key, value and offset as Kafka's own classes read them, control records left out; all columns as `kolumn.read` has them."""
    log = CORPUS / folder
    found = kolumn.append(log, lake.target(), include_headers=True)
    expected = kolumn.read(log, include_headers=True).sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    table = lake.read(*expected.schema.names)
    if lake.engine == "iceberg":
        # pyiceberg reads a list that is null as an empty one.
        assert table["headers"].to_pylist() == [headers or [] for headers in expected["headers"].to_pylist()]
        table, expected = table.drop(["headers"]), expected.drop(["headers"])
    assert table.cast(expected.schema).equals(expected)
    assert found.rows == expected.num_rows
    theirs = 0
    for path in log.glob("*.expected.parquet"):
        rows = pq.read_table(path)
        rows = rows.filter(pc.invert(rows[RECORD_NAMES["isControl"]])) if RECORD_NAMES["isControl"] in rows.schema.names else rows
        theirs += rows.num_rows
        topic, _, partition = path.name.removesuffix(".expected.parquet").rpartition("-")
        mine = table.filter(pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], int(partition))))
        for name in ("offset", "key", "value"):
            assert mine[name].to_pylist() == rows.sort_by(RECORD_NAMES["offset"])[RECORD_NAMES[name]].to_pylist()
    assert theirs == expected.num_rows


def test_committed_records_up_to_what_is_stable(lake: Lake, tmp_path: Path) -> None:
    log = CORPUS / "transactional"
    kolumn.append(log, lake.target(), isolation_level="read_committed")
    columns = ["topic", "partition", "offset", "value"]
    expected = kolumn.read(log, columns=columns, isolation_level="read_committed")
    assert lake.read(*columns).cast(expected.schema).equals(expected.sort_by([(name, "ascending") for name in columns[:3]]))
    filled = "this table was filled with isolation_level=read_committed, and this run has isolation_level=read_uncommitted: use the same"
    raises(ArgumentError, filled, kolumn.append, log, lake.target())


def test_an_open_transaction_is_waited_for(lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every notice says so, and none names an option that append does not take."""
    log, how = tmp_path / "log", dict[str, Any](isolation_level="read_committed")
    opened: dict[str, Any] = {"isTransactional": [True] * 2, "producerId": [7] * 2, "producerEpoch": [0] * 2, "sequence": [0, 1]}
    grow(log, 0, 2), grow(log, 2, 2, **opened), grow(log, 4, 1)
    skipped, later = kolumn.Skipped(), "open.*A later run appends the rest once the transaction has ended"
    found = kolumn.append(log, lake.target(), on_damage=skipped, **how)
    kolumn.append(log, lake.target(), **how)
    assert lake.rows() == upto(2)
    (logged,) = caplog.messages
    for said in (str(found), str(skipped), logged):
        assert re.search(later + "$", said), said
    for chosen in ("skip", "include"):
        refusal = "'open_transactions': .*a later run goes on.*write_deltalake"
        raises(ArgumentError, refusal, kolumn.append, log, lake.target(), open_transactions=chosen, **how)
    (log / "orders-0" / f"{5:020}.log").write_bytes(control_batch(5, 1, producer_id=7, producer_epoch=0))
    assert kolumn.append(log, lake.target(), **how).rows == 3
    assert lake.rows() == upto(5)


@pytest.mark.parametrize("target", ["log/clicks-3", "log", "log/clicks-3/table"])
def test_no_table_in_a_log_folder(target: str, tmp_path: Path) -> None:
    """A shell makes two arguments of ``orders-*``: the second partition is no target."""
    pytest.importorskip("deltalake")
    log = grow(grow(tmp_path / "log", 0, 5), 0, 5, "clicks-3")
    before = sorted(log.rglob("*"))
    for name in (tmp_path / target, f"file://{tmp_path}/{target}"):
        raises(ArgumentError, "contains Kafka segments, such as .*Name another folder or URI", kolumn.append, log / "orders-0", name)
    assert sorted(log.rglob("*")) == before


def test_errors_of_deltalake_have_no_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deltalake")
    for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(KolumnError, match="set AWS_ALLOW_HTTP=true") as error:
        kolumn.append(grow(tmp_path / "log", 0, 5), "s3://lake/records")
    assert "x1b" not in str(error.value)
    assert "\n" not in str(error.value)


def test_runs_go_on_where_the_table_ends(lake: Lake, tmp_path: Path) -> None:
    """Others have committed in between, and old versions are forgotten."""
    log = grow(tmp_path / "log", 0, 50)
    assert kolumn.append(log, lake.target()).next == {"orders": {0: 50}}
    assert kolumn.append(log, lake.target()).files == []
    grow(log, 50, 20)
    grow(log, 0, 5, "clicks-3")
    found = kolumn.append(log, lake.target())
    assert (found.rows, found.next, len(found.files)) == (25, {"orders": {0: 70}, "clicks": {3: 5}}, 2)
    row = {"topic": "others", "partition": 0, "offset": 10**6}
    schema = lake.read().schema
    lake.add_by_others(pa.Table.from_pylist([row], schema=schema))
    lake.forget_history()
    grow(log, 70, 5)
    assert kolumn.append(log, lake.target()).rows == 5
    assert lake.rows() == [*(("clicks", 3, offset) for offset in range(5)), *upto(75), ("others", 0, 10**6)]


def test_a_table_that_was_rolled_back(lake: Lake, tmp_path: Path) -> None:
    """Iceberg's state goes back with the rows, Delta's stays: it must not be believed."""
    log = grow(tmp_path / "log", 0, 20)
    kolumn.append(log, lake.target())
    grow(log, 20, 10)
    kolumn.append(log, lake.target())
    table = lake.handle()
    if lake.engine == "delta":
        table.restore(1)
        raises(ArgumentError, "was restored, and its offsets are still those of before", kolumn.append, log, lake.target())
        return
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert lake.rows() == upto(20)
    assert kolumn.append(log, lake.target()).rows == 10
    assert lake.rows() == upto(30)


def test_what_was_deleted_before_is_reported(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 50)
    kolumn.append(log, lake.target())
    for path in (log / "orders-0").iterdir():
        path.unlink()
    grow(log, 60, 10)
    found = kolumn.append(log, lake.target())
    assert (found.rows, found.lost) == (10, [("orders", 0, 50, 60)])
    assert lake.rows() == [*upto(50), *upto(70, 60)]


def test_damage_is_reported(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 200)
    path = log / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[kolumn.batches(path)["position"][2].as_py() + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(kolumn.CorruptBatchError):
        kolumn.append(log, lake.target())
    assert lake.data_files() == set()
    skipped = kolumn.Skipped()
    found = kolumn.append(log, lake.target(), errors="skip", on_damage=skipped)
    assert found.damage == skipped.damage
    assert len(found.damage) == 1
    assert lake.read("offset")["offset"].to_pylist() == kolumn.read(log, errors="skip")["offset"].to_pylist()
    notes = lake.handle().history()[0] if lake.engine == "delta" else lake.handle().current_snapshot().summary.additional_properties
    assert json.loads(notes["kolumn.damage"])[0][1] == found.damage[0].position


def test_another_log_is_refused(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 50)
    (log / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OLD}\n")
    kolumn.append(log, lake.target())
    grow(log, 50, 50)
    (log / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {NEW}\n")
    raises(KolumnError, f"and is {NEW}: it was deleted and created anew", kolumn.append, log, lake.target())
    shorter = grow(tmp_path / "shorter", 0, 40)
    raises(KolumnError, "has orders-0 up to offset 49, and the log ends at 40", kolumn.append, shorter, lake.target())
    assert lake.rows() == upto(50)


def test_what_a_delta_table_may_ask_of_writers(tmp_path: Path) -> None:
    """Names of topics that end as those of partitions do, too."""
    deltalake = pytest.importorskip("deltalake")
    log = grow(grow(tmp_path / "log", 0, 20), 0, 10, "orders-0-0")
    for name, number in (("orders-0", OLD), ("orders-0-0", NEW)):
        (log / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {number}\n")
    lake = Lake("delta", tmp_path / "lake")
    assert kolumn.append(log, lake.target()).rows == 30
    lake.handle().alter.add_feature(deltalake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    assert kolumn.append(log, lake.target()).rows == 0
    grow(log, 20, 5)
    assert kolumn.append(log, lake.target()).rows == 5
    assert lake.handle().get_add_actions().num_rows == 3
    lake.handle().alter.add_constraint({"low": "offset < 25"})
    raises(ArgumentError, "has checkConstraints, which asks something of writers", kolumn.append, log, lake.target())


def test_a_table_with_rows_of_others(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 50)
    kolumn.append(grow(tmp_path / "other", 0, 10), lake.target())
    # The rows stay, and nobody knows where they are from.
    rows = lake.read()
    fresh = Lake(lake.engine, tmp_path / "fresh")
    if lake.engine == "delta":
        from deltalake import write_deltalake

        write_deltalake(fresh.path, rows, partition_by=["topic"])
    else:
        fresh.catalog.create_table("db.records", schema=rows.schema).append(rows)
    raises(ArgumentError, "has rows, and no offsets of Kolumn's.*start_offsets", kolumn.append, log, fresh.target())
    raises(ArgumentError, "no clicks-0", kolumn.append, log, fresh.target(), start_offsets={"clicks": {0: 1}})
    assert kolumn.append(log, fresh.target(), start_offsets={"orders": {0: 10}}).rows == 40
    assert fresh.rows() == upto(50)
    raises(ArgumentError, "has offsets of earlier runs", kolumn.append, log, fresh.target(), start_offsets={})
    assert kolumn.append(log, fresh.target()).rows == 0


def test_typed_values_and_columns_that_come_later(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 20)
    how: dict[str, Any] = {"columns": ["offset", "value"], "value_format": "json", "value_as": "columns"}
    kolumn.append(log, lake.target(), value_schema={"n": "int64"}, **how)
    grow(log, 20, 10)
    wider = {"value_schema": {"n": "int64", "more": "string"}, **how}
    other = {"value_schema": {"n": "string"}, **how}
    if lake.engine == "delta":
        raises(ArgumentError, r"lacks .*more: DeltaTable\.alter\.add_columns", kolumn.append, log, lake.target(), **wider)
        raises(ArgumentError, "column n is .*long.*, and would be .*string", kolumn.append, log, lake.target(), **other)
        return
    raises(ArgumentError, "cannot have these columns", kolumn.append, log, lake.target(), **other)
    assert lake.data_files() == lake.committed_files()
    kolumn.append(log, lake.target(), **wider)
    table = lake.read("offset", "n", "more")
    assert table["n"].to_pylist() == [offset if offset % 7 else None for offset in range(30)]
    assert table["more"].null_count == 30


def test_files_by_day_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kolumn.tools import append as module

    lake, log = Lake("iceberg", tmp_path / "lake"), grow(tmp_path / "log", 0, 90)
    monkeypatch.setattr(module, "_OPEN_FILES", 2)
    found = kolumn.append(log, lake.target(), by_day=True, columns=["value"])
    assert len(found.files) >= 3
    partitions = lake.handle().inspect.files()["partition"].to_pylist()
    assert {(one["topic"], one["partition"]) for one in partitions} == {("orders", 0)}
    assert len({one["day"] for one in partitions}) == 3
    grow(log, 90, 300, timestamp=pa.array([None] * 300, pa.timestamp("ms", "UTC")))
    monkeypatch.setattr(module, "FILE_BYTES", 1)
    kolumn.append(log, lake.target(), columns=["value"], chunk_bytes=2000)
    assert None in {one["day"] for one in lake.handle().inspect.files()["partition"].to_pylist()}
    assert lake.rows() == upto(390)
    # Engines leave out files by the bounds of their columns.
    some = lake.handle().scan(row_filter="timestamp < '2023-11-15T12:00:00+00:00'").to_arrow()
    assert sorted(some["offset"].to_pylist()) == list(range(0, 90, 3))


def test_engines_leave_files_out_by_right_bounds(lake: Lake, tmp_path: Path) -> None:
    """Nine files of an hour each, the last one before 1970, and one without a timestamp: every range has its rows."""
    log, hour, first = tmp_path / "log", 3_600_000, 1_700_000_000_123
    starts = [*(first + hour * number for number in range(8)), -hour]
    for number, start in enumerate(starts):
        times = pa.array([start + 7 * i for i in range(20)], pa.timestamp("ms", "UTC"))
        kolumn.append(grow(log, 20 * number, 20, timestamp=times), lake.target(), columns=["offset", "timestamp"])
    grow(log, 180, 1, timestamp=pa.array([None], pa.timestamp("ms", "UTC")))
    kolumn.append(log, lake.target(), columns=["offset", "timestamp"])
    rows = kolumn.read(log, columns=["offset", "timestamp", "timestampMs"]).to_pylist()
    for edge in (first, first + hour + 7, first + 3 * hour + 1, -hour, -hour + 133, first + 7 * hour + 133):
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=edge)
        expected = [row["offset"] for row in rows if row["timestamp"] is not None and row["timestampMs"] <= edge]
        if lake.engine == "delta":
            found = lake.handle().to_pyarrow_table(filters=[("timestamp", "<=", moment)])
        else:
            expressions = importlib.import_module("pyiceberg.expressions")
            found = lake.handle().scan(row_filter=expressions.LessThanOrEqual("timestamp", moment.isoformat())).to_arrow()
        assert sorted(found["offset"].to_pylist()) == expected


def test_what_it_refuses(lake: Lake, tmp_path: Path) -> None:
    log = grow(tmp_path / "log", 0, 5)
    for given, message in (
        ({"compression": "rar"}, "compression='rar': expected one of zstd"), ({"row_group_rows": 0}, "expected at least 1"),
        ({"start_offset": 1}, "start_offsets says it"), ({"binary": "view"}, "has no effect here"),
    ):  # fmt: skip
        raises(ArgumentError, message, kolumn.append, log, lake.target(), **given)
    kolumn.write(pa.table({"value": [b"x"]}), tmp_path / "nameless" / "a.log")
    raises(ArgumentError, "table: expected a table of pyiceberg", kolumn.append, log, pa.table({}))
    raises(ArgumentError, "its folder is not named topic-partition", kolumn.append, tmp_path / "nameless", lake.target())
    grow(tmp_path / "copy", 0, 5)
    raises(ArgumentError, "replicas='merge'", kolumn.append, [log, tmp_path / "copy"], lake.target())
    assert kolumn.append([log, tmp_path / "copy"], lake.target(), replicas="merge").rows == 5
    if lake.engine == "delta":
        raises(ArgumentError, "no partitions of its own by day", kolumn.append, log, tmp_path / "other", by_day=True)
        return
    with lake.handle().update_spec() as spec:
        spec.add_field("offset", "bucket[4]", "bucket")
    raises(ArgumentError, r"partitioned by bucket\[4\]\(offset\)", kolumn.append, log, lake.target())


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg"), pytest.importorskip("deltalake")
    log, url = grow(tmp_path / "log", 0, 30), f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", url)
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    for name, target in (("to-delta", tmp_path / "delta"), ("to-iceberg", "mine.db.orders")):
        done = run(name, log, target, "--json")
        assert (done.returncode, json.loads(done.stdout)["rows"]) == (0, 30), done.stderr
        done = run(name, log, target)
        assert (done.returncode, "0 records" in done.stderr) == (0, True), done.stderr
    done = run("to-iceberg", log, "nowhere.db.orders")
    assert (done.returncode, "no such catalog" in done.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_tables_at_urls(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto.server")
    log = grow(tmp_path / "log", 0, 50)
    with s3.server() as address:
        for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{address}", "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        store = fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
        store.create_dir("lake")
        lake = Lake(engine, tmp_path / "lake", "s3://lake/delta" if engine == "delta" else "s3://lake/iceberg")
        lake.settings = {"s3.endpoint": f"http://{address}"}
        assert kolumn.append(log, lake.target()).rows == 50
        grow(log, 50, 20)
        assert [kolumn.append(log, lake.target()).rows for _ in range(2)] == [20, 0]
        assert lake.rows() == upto(70)
