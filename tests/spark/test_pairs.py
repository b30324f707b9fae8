"""Every two features of a source together in Spark, as in `tests/behaviour/test_pairs.py`; one query reads all that go together."""

import json
import re
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kolumn
from kit.outcome import raises
from kit.pairs import PAIRS, TYPES_DIFFER, Disks, rows_of
from kit.plain_spark import load
from kit.spark_session import scans

pytestmark = pytest.mark.spark
Pair = tuple[str, str]
SEVERAL_TYPES = ("typed", "topics")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[Pair, Disks]:
    return {pair: Disks(tmp_path_factory.mktemp("-".join(pair)), *pair) for pair in PAIRS}


def given(disks: Disks) -> dict[str, str]:
    """The options as Spark calls them."""
    options = {re.sub("_(.)", lambda match: match[1].upper(), name): value for name, value in disks.options.items()}
    return options | ({"privateKeys": ",".join(f"{name}={path}" for name, path in disks.keys.items())} if disks.keys else {})


def columnar(spark: SparkSession, disks: Disks, **more: str) -> DataFrame:
    # Every process knows this scheme.
    return spark.read.format("kolumn").options(reader="columnar", **given(disks), **more).load(disks.source("local://"))


def named(frame: DataFrame, pair: Pair) -> DataFrame:
    """The rows of a pair in columns that all have; typed values are JSON."""
    is_typed = frame.schema["value"].dataType.typeName() == "struct"
    value, valid = ("to_json(value)", "valueValid") if is_typed else ("string(value)", "boolean(null)")
    columns = {"pair": f"'{'-'.join(pair)}'", "key": "string(key)", "value": value, "valueValid": valid, "is_typed": str(is_typed)}
    return frame.selectExpr("topic", "partition", "offset", *(f"{told} AS {name}" for name, told in columns.items()))


def by_topic(spark: SparkSession, disks: Disks) -> DataFrame:
    """The topics of a disk as tables of a catalog, each of its own type."""
    settings = {"": "kolumn.Catalog", ".root": f"{disks.root}/b1", ".valueFormat": "registry"}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.pairs{name}", value)
    return reduce(DataFrame.unionAll, (named(spark.table(f"pairs.{topic}"), SEVERAL_TYPES) for topic in disks.topics))


def test_rows_and_metrics_of_the_connector(spark: SparkSession, disks: dict[Pair, Disks]) -> None:
    with pytest.raises(PySparkException, match=TYPES_DIFFER):
        print(columnar(spark, disks[SEVERAL_TYPES]).schema)
    frames = {pair: named(columnar(spark, own), pair) for pair, own in disks.items() if pair != SEVERAL_TYPES}
    every = reduce(DataFrame.unionAll, [*frames.values(), by_topic(spark, disks[SEVERAL_TYPES])])
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in every.collect():
        value = json.loads(row["value"]) if row["is_typed"] and row["value"] is not None else row["value"]
        rows.setdefault(row["pair"], []).append(row.asDict() | {"value": value})
    for pair, own in disks.items():
        assert rows_of(rows["-".join(pair)]) == own.rows, pair
    # Those of the catalog come after the others.
    for pair, scan in zip(frames, scans(every._jdf.queryExecution().executedPlan()), strict=False):
        logs = disks[pair].logs
        lost = {"damaged": sum(len(log.damaged) for log in logs), "lost": disks[pair].lost_records}
        lost |= {"valuesLost": disks[pair].lost_values("committed" in pair)}
        lost |= {"afterOpen": sum(log.after_open for log in logs if "committed" in pair)}
        assert {name: scan.metrics().apply(name).value() for name in lost} == lost, pair


def test_the_table_of_damage(spark: SparkSession, disks: dict[Pair, Disks]) -> None:
    own = {pair: own for pair, own in disks.items() if "damage" in pair}
    frames = [columnar(spark, one, table="damage").selectExpr(f"'{'-'.join(pair)}' AS pair", "recordsLost") for pair, one in own.items()]
    assert sorted(reduce(DataFrame.unionAll, frames).collect()) == sorted(("-".join(pair), one.lost_records) for pair, one in own.items())


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_rows_of_the_source_in_python(pair: Pair, disks: dict[Pair, Disks]) -> None:
    own = disks[pair]
    if pair == SEVERAL_TYPES:
        raises(kolumn.ArgumentError, TYPES_DIFFER, load, own.source("local://"), **given(own))
    else:
        assert rows_of(load(own.source("local://"), **given(own)).toArrow().to_pylist()) == own.rows
