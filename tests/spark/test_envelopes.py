"""A change-data-capture topic in Spark: change events as rows, with the columns of their operations."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kit.change_events import LEFT, TOPIC, write_topic
from kit.plain_spark import load

pytestmark = pytest.mark.spark
FIELDS = "id int, first_name string, last_name string, email string, __op string, __deleted boolean, __ts_ms bigint"


@pytest.mark.parametrize(("form", "format"), [("json", "json"), ("avro", "registry")])
def test_change_events_are_rows(spark: SparkSession, form: str, format: str, tmp_path: Path) -> None:
    topic = write_topic(tmp_path, in_what=form)
    events = spark.read.format("kolumn").option("valueFormat", format).option("valueEnvelope", "debezium").load(str(topic))
    rows = events.select("offset", "value.*")
    assert rows.filter("__op = 'u'").select("id", "first_name").collect() == [(1004, "Anne Marie")]
    assert rows.drop("offset").schema.simpleString() == spark.createDataFrame([], FIELDS).schema.simpleString()
    assert rows.count() == 7
    newest = "select max_by(struct(*), offset) row from events where id is not null group by id"
    rows.createOrReplaceTempView("events")
    left = spark.sql(f"select row.* from ({newest}) where not row.__deleted order by row.id").collect()
    assert [{name: row[name] for name in LEFT[0]} for row in left] == LEFT


def test_the_source_in_python_has_the_same(tmp_path: Path) -> None:
    topic = write_topic(tmp_path)
    options: dict[str, Any] = {"valueFormat": "json", "valueEnvelope": "auto", "valueAs": "columns", "columns": "topic,value"}
    frame = load(topic, **options, valueColumns="id,__op")
    assert frame.columns == ["topic", "id", "__op"]
    assert frame.collect()[4] == (TOPIC, 1004, "u")
