"""SQL over logs: a catalog of topics, paths as tables, and what INSERT and CREATE TABLE … AS SELECT write."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kolumn
from kit.schemas_topic import RECORD, framed, version, write
from kolumn.spark_plugin.session.java import connector_settings

pytestmark = pytest.mark.spark


class Sql:
    """A catalog over a log directory of its own, and what is asked of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        kolumn.write(pa.table({"value": ["a", "b"]}), root / "orders-0")
        kolumn.write(pa.table({"value": ["c"]}), root / "notes-0")
        # A catalog is made once in a session.
        self.name = f"c{abs(hash(root))}"
        spark.conf.set(f"spark.sql.catalog.{self.name}", "kolumn.Catalog")
        spark.conf.set(f"spark.sql.catalog.{self.name}.root", str(root))

    def __call__(self, text: str) -> list[tuple[object, ...]]:
        return [
            tuple(row) for row in self.spark.sql(text.replace("logs.", f"{self.name}.").replace("IN logs", f"IN {self.name}")).collect()
        ]

    def refuses(self, text: str, message: str) -> None:
        with pytest.raises(PySparkException, match=message):
            self(text)

    def topics(self) -> list[str]:
        return [str(row[1]) for row in self("SHOW TABLES IN logs")]


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[Sql]:
    before = spark.conf.get("spark.kolumn.reader")
    spark.conf.set("spark.kolumn.reader", "columnar")
    yield Sql(spark, tmp_path / "root")
    spark.conf.set("spark.kolumn.reader", before)
    spark.sql("USE spark_catalog")


def test_paths_are_tables(sql: Sql) -> None:
    """`configure` has made the catalog of that name, which has no topics."""
    kolumn.write(pa.table({"value": ["d"]}), sql.root / "orders-1")
    paths = {"": 4, "/orders-*": 3, "/orders-1": 1}
    for path, count in paths.items():
        for scheme in ("", "file://", "local://"):
            assert sql(f"SELECT count(*) FROM kolumn.`{scheme}{sql.root}{path}`") == [(count,)], (scheme, path)
    assert sql("SHOW TABLES IN kolumn") == []
    sql.refuses("SELECT * FROM kolumn.orders", "spark.sql.catalog.kolumn.root names no log directory, so the catalog has no topics")


def test_a_catalog_of_that_name_is_kept() -> None:
    given: Any = SimpleNamespace(_options={"spark.sql.catalog.kolumn": "mine"})
    assert "spark.sql.catalog.kolumn" not in connector_settings(given)
    assert connector_settings(cast(Any, SimpleNamespace(_options={})))["spark.sql.catalog.kolumn"] == "kolumn.Catalog"


def test_each_table_of_a_catalog_has_types_of_its_own(sql: Sql) -> None:
    """One without a schema stays bytes, and a path of several types is one sentence."""
    other = RECORD.replace('"id"', '"n"')
    write(sql.root / "_schemas-0", [version("orders-value", 1, 1), version("clicks-value", 1, 2, other)])
    kolumn.write(pa.table({"value": [framed(1, json.loads(RECORD), {"id": 5})]}), sql.root / "orders-1")
    kolumn.write(pa.table({"value": [framed(2, json.loads(other), {"n": 6})]}), sql.root / "clicks-0")
    sql.spark.conf.set(f"spark.sql.catalog.{sql.name}.valueFormat", "registry")
    assert sql.topics() == ["_schemas", "clicks", "notes", "orders"]
    assert sql("SELECT value.id, valueValid FROM logs.orders ORDER BY partition DESC LIMIT 1") == [(5, True)]
    assert sql("SELECT o.value.id + c.value.n FROM logs.orders o CROSS JOIN logs.clicks c WHERE o.partition = 1") == [(11,)]
    assert sql("SELECT value FROM logs.notes") == [(bytearray(b"c"),)]
    for reader in ("python", "columnar"):
        frames = sql.spark.read.format("kolumn").option("valueFormat", "registry").option("reader", reader)
        said = r"topics clicks, orders have .* one topic, e\.g\. '.*/clicks-\*', or take a catalog of the class kolumn\.Catalog"
        with pytest.raises(PySparkException, match=said):
            frames.load(str(sql.root)).collect()


def test_a_catalog_has_no_namespaces(sql: Sql) -> None:
    assert sql("SHOW NAMESPACES IN logs") == []
    assert ("Location", str(sql.root)) in sql(f"DESCRIBE NAMESPACE {sql.name}")
    sql(f"USE {sql.name}")
    assert sql("SHOW NAMESPACES") == []
    assert [row[1] for row in sql("SHOW TABLES")] == ["notes", "orders"]
    assert sql("SELECT count(*) FROM notes") == [(1,)]
    sql.refuses("SELECT * FROM logs.space.orders", "TABLE_OR_VIEW_NOT_FOUND")
    sql.refuses("CREATE NAMESPACE logs.space", "has no namespaces: a topic is")


def test_topics_are_listed_for_some_seconds(sql: Sql) -> None:
    assert sql.topics() == ["notes", "orders"]
    kolumn.write(pa.table({"value": ["d"]}), sql.root / "more-0")
    assert sql.topics() == ["notes", "orders"]
    # A topic that is not known is looked for.
    assert sql("SELECT string(value) FROM logs.more") == [("d",)]
    assert sql.topics() == ["more", "notes", "orders"]
    kolumn.write(pa.table({"value": ["e"]}), sql.root / "other-0")
    sql("REFRESH TABLE logs.orders")
    assert sql.topics() == ["more", "notes", "orders", "other"]


def test_records_are_inserted_into_topics(sql: Sql) -> None:
    sql("INSERT INTO logs.orders (value) SELECT X'63'")
    sql("INSERT INTO logs.orders (partition, offset, key, value) VALUES (7, 70, X'6b', X'64'), (7, 71, NULL, NULL)")
    rows = sql("SELECT partition, offset, string(key), string(value), timestamp FROM logs.orders ORDER BY 1, 2")
    given = [(0, 0, None, "a"), (0, 1, None, "b"), (0, 2, None, "c"), (7, 70, "k", "d"), (7, 71, None, None)]
    assert rows == [(*row, None) for row in given]
    sql("INSERT INTO logs.orders SELECT key, value, 'orders', 9, NULL, timestamp '2026-01-02 03:04:05', NULL FROM logs.notes")
    found = sql("SELECT offset, string(value), string(timestamp) FROM logs.orders WHERE partition = 9")
    assert found == [(0, "c", "2026-01-02 03:04:05")]
    before = sql("SELECT count(*) FROM logs.orders")
    sql.refuses("INSERT INTO logs.orders BY NAME SELECT 'zz' AS topic, X'61' AS value", "topic 'zz': the table has orders")
    mixed = "SELECT 3 AS partition, explode(array(NULL, 4L)) AS offset"
    sql.refuses(f"INSERT INTO logs.orders BY NAME {mixed}", "column 'offset': some rows are null, some are not")
    sql.refuses("INSERT INTO logs.orders (value) VALUES ('text')", "CANNOT_SAFELY_CAST")
    sql.refuses("INSERT OVERWRITE logs.orders (value) SELECT X'61'", "overwrite replaces all topics below .* option subscribe")
    assert sql("SELECT count(*) FROM logs.orders") == before


def test_a_query_makes_a_topic(sql: Sql) -> None:
    assert sql.topics() == ["notes", "orders"]
    sql("CREATE TABLE logs.made OPTIONS (codec 'zstd') AS SELECT key, value FROM logs.orders")
    assert sql.topics() == ["made", "notes", "orders"]
    assert sql("SELECT topic, offset, string(value) FROM logs.made ORDER BY offset") == [("made", 0, "a"), ("made", 1, "b")]
    assert set(kolumn.batches(sql.root / "made-0")["codec"].to_pylist()) == {"zstd"}
    sql("CREATE TABLE IF NOT EXISTS logs.made AS SELECT value FROM logs.orders")
    sql.spark.table(f"{sql.name}.orders").select("value").writeTo(f"{sql.name}.by_name").using("kolumn").option("codec", "gzip").create()
    assert sql("SELECT count(*) FROM logs.by_name") == [(2,)]
    made = sorted(path.name for path in sql.root.iterdir())
    for text, message in {
        "CREATE TABLE logs.made AS SELECT value FROM logs.orders": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "CREATE OR REPLACE TABLE logs.made AS SELECT value FROM logs.orders": "replaces no topic: CREATE TABLE",
        "CREATE TABLE logs.x USING parquet AS SELECT value FROM logs.orders": "expected USING kolumn",
        "CREATE TABLE logs.x PARTITIONED BY (value) AS SELECT value FROM logs.orders": "leave PARTITIONED BY out",
        "CREATE TABLE logs.x LOCATION '/x' AS SELECT value FROM logs.orders": "expected the name of a topic, and neither a path",
        "CREATE TABLE logs.`a b` AS SELECT value FROM logs.orders": "topic 'a b': expected 1 to 249",
        "CREATE TABLE logs.x AS SELECT value, 1 AS nope FROM logs.orders": "column 'nope': records have no column of that name",
        "CREATE TABLE logs.x (value BINARY)": "CREATE TABLE ... AS SELECT writes the first ones",
        "DROP TABLE logs.made": "removes no topic",
        "ALTER TABLE logs.made SET TBLPROPERTIES ('a' = 'b')": "alters no topic",
    }.items():
        sql.refuses(text, message)
    assert sorted(path.name for path in sql.root.iterdir()) == made


def test_tables_that_are_written(sql: Sql, tmp_path: Path) -> None:
    """Those of Spark's own catalog have a path, and a part of the log directory is never replaced."""
    log = tmp_path / "written"
    try:
        sql(f"CREATE TABLE written USING kolumn OPTIONS (path '{log}') AS SELECT 'c' AS topic, X'31' AS value")
        sql("INSERT INTO written VALUES ('d', X'32')")
        assert sql("SELECT topic, string(value) FROM written ORDER BY topic") == [("c", "1"), ("d", "2")]
        sql("INSERT OVERWRITE written VALUES ('e', X'33')")
        assert sql("SELECT topic, string(value) FROM written") == [("e", "3")]
        sql("DROP TABLE written")
        assert kolumn.read(log).num_rows == 1
        sql(f"CREATE TABLE written USING kolumn OPTIONS (path '{log}', subscribe 'e', includeHeaders 'true')")
        sql("INSERT INTO written (value) VALUES (X'34')")
        assert sql("SELECT count(*), min(topic) FROM written") == [(2, "e")]
        sql.refuses("INSERT OVERWRITE written (value) VALUES (X'35')", "overwrite replaces all topics below .* option subscribe")
        sql("DROP TABLE written")
        # A table that could not be read is not made.
        made = f"CREATE TABLE written USING kolumn OPTIONS (path '{tmp_path}/other', topic 'x'"
        sql.refuses(f"{made}) AS SELECT 'text' AS value", "column value is binary, not string")
        sql.refuses(f"{made}, codec 'zstd') AS SELECT X'31' AS value", "unknown option 'codec'")
        assert not (tmp_path / "other").exists()
        sql(f"{made}, payload 'string') AS SELECT 'text' AS value")
        assert sql("SELECT value FROM written") == [("text",)]
    finally:
        sql("DROP TABLE IF EXISTS written")
    for path in (f"{log}/e-0", f"{log}/*"):
        sql.refuses(f"INSERT INTO kolumn.`{path}` (topic, value) VALUES ('e', X'36')", "does not say where new records go")
    sql(f"INSERT INTO kolumn.`{log}` (topic, value) VALUES ('f', X'36')")
    assert kolumn.read(log / "f-0")["value"].to_pylist() == [b"6"]
