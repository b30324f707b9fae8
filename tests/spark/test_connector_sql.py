"""The connector in SQL: tables of Spark's own catalog, and a catalog of topics."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

import kolumn

pytestmark = pytest.mark.spark
PARTITIONS, ROWS = 3, 1000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    for topic in ("orders", "notes"):
        for partition in range(PARTITIONS):
            kolumn.write(pa.table({"value": [b"%d" % i for i in range(ROWS)]}), root / f"{topic}-{partition}")
    return root


@pytest.fixture
def columnar(spark: SparkSession) -> Iterator[None]:
    """The connector is what a session reads by, as it is unless tests say otherwise."""
    before = spark.conf.get("spark.kolumn.reader")
    spark.conf.set("spark.kolumn.reader", "columnar")
    yield
    spark.conf.set("spark.kolumn.reader", before)


@pytest.mark.usefixtures("columnar")
def test_tables(spark: SparkSession, logs: Path) -> None:
    for how in (f"OPTIONS (path '{logs}/orders-*', includeHeaders 'true', subscribe 'orders')", f"LOCATION '{logs}/orders-*'"):
        spark.sql(f"CREATE TABLE connector_table USING kolumn {how}")
        try:
            assert spark.sql("SELECT count(*), max(offset) FROM connector_table WHERE offset >= 10").collect()[0][0] == 3 * (ROWS - 10)
            assert ("headers" in spark.table("connector_table").columns) == ("OPTIONS" in how)
            # Properties of the table are no options.
            spark.sql("ALTER TABLE connector_table SET TBLPROPERTIES ('team' = 'data')")
            assert spark.table("connector_table").where("offset < 2").count() == 6
            told = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED connector_table").collect()}
            assert (told["Type"], told["Provider"], told["Location"]) == ("EXTERNAL", "kolumn", f"file:{logs}/orders-*")
            made = spark.sql("SHOW CREATE TABLE connector_table").collect()[0][0]
            assert "USING kolumn" in made
            assert ("'includeHeaders' = 'true'" in made) == ("OPTIONS" in how)
            with pytest.raises(PySparkException, match="tables over a log are read"):
                spark.sql("INSERT INTO connector_table SELECT * FROM connector_table LIMIT 1")
        finally:
            spark.sql("DROP TABLE connector_table")


def test_a_catalog_of_topics(spark: SparkSession, logs: Path) -> None:
    spark.conf.set("spark.sql.catalog.disk", "kolumn.Catalog")
    spark.conf.set("spark.sql.catalog.disk.root", str(logs))
    assert sorted(row.tableName for row in spark.sql("SHOW TABLES IN disk").collect()) == ["notes", "orders"]
    assert spark.sql("SELECT count(*), count(DISTINCT partition) FROM disk.orders").collect()[0] == (3 * ROWS, 3)
    joined = spark.sql("SELECT count(*) FROM disk.orders o JOIN disk.notes n USING (partition, offset) WHERE o.offset >= 990")
    assert joined.collect()[0][0] == 30
    assert spark.sql(f"SELECT max(offset) FROM disk.`{logs}/notes-1`").collect()[0][0] == ROWS - 1
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM disk.none")
    with pytest.raises(PySparkException, match="reads topics, and changes nothing"):
        spark.sql("DROP TABLE disk.orders")
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO disk.orders SELECT * FROM disk.notes")
