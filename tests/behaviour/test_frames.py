"""`kolumn.scan_polars` and `kolumn sql`: the rows of `kolumn.read`, with less read where a query needs less."""

import json
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kolumn
from kit.asked import invoked, put, skipping
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.replicas import copy, flip
from kolumn.readers.polars import Bounds, bounds_of

pl = pytest.importorskip("polars", reason="kolumn[polars] has it")
START = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions of two topics, in several segments each."""
    root = tmp_path_factory.mktemp("broker")
    for number, name in enumerate(("orders-0", "orders-1", "clicks-0")):
        times = [None if i % 977 == 5 else START + timedelta(milliseconds=i * 7 + number) for i in range(ROWS)]
        keys = [None if i % 50 == 3 else b"k%d" % (i % 100) for i in range(ROWS)]
        values = [b'{"n": %d, "pad": "%s"}' % (i, b"x" * (i % 40)) for i in range(ROWS)]
        table = {"key": keys, "value": values, "timestamp": pa.array(times, pa.timestamp("us", "UTC"))}
        kolumn.write(pa.table(table), root / name, codec="zstd" if number else "none", segment_bytes=1 << 20)
    return root


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def predicate(rng: random.Random, depth: int = 2) -> Any:
    if depth and rng.random() < 0.6:
        left, right = predicate(rng, depth - 1), predicate(rng, depth - 1)
        return rng.choice([lambda: left & right, lambda: left & right, lambda: left | right, lambda: ~left])()
    low, high = sorted(rng.randrange(ROWS) for _ in range(2))
    offset, time = pl.col("offset"), pl.col("timestamp")
    return rng.choice(
        [
            offset >= low, offset > low, offset < high, offset <= high, offset == low, offset != low, pl.lit(low) < offset,
            offset.is_between(low, high, closed=rng.choice(["both", "left", "right", "none"])), offset.is_in([low, high, None]),
            offset + 1 > low, time >= at(low * 7), time > at(low * 7) + timedelta(microseconds=1), time < at(high * 7),
            time <= at(high * 7), time == at(low * 7), time.is_null(), time.is_between(at(low * 7), at(high * 7)),
            pl.col("topic") == "orders", pl.col("topic").is_in(["clicks", "x"]), pl.col("topic") != "orders", pl.col("partition") == 1,
            pl.col("partition").is_in([0, 7]), pl.col("key") == b"k7", pl.col("key").is_null(), pl.lit(True), offset.cast(pl.Int32) > low,
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(broker: Path) -> Any:
    return pl.DataFrame(pl.from_arrow(kolumn.read(broker)))


def test_every_predicate_is_exact(broker: Path, whole: Any) -> None:
    lazy, rng = kolumn.scan_polars(broker), random.Random(4)
    assert lazy.collect_schema() == whole.schema
    for _ in range(25):
        chosen, columns = predicate(rng), rng.sample(whole.columns, rng.randint(1, 7))
        assert lazy.filter(chosen).select(columns).collect().equals(whole.filter(chosen).select(columns)), str(chosen)


def test_rows_and_predicates_in_any_order(broker: Path, whole: Any) -> None:
    lazy, after = kolumn.scan_polars(broker), pl.col("offset") > 59_990
    for query in (
        lambda one: one.head(3), lambda one: one.head(0), lambda one: one.head(5).filter(pl.col("offset") > 2), lambda one: one.slice(5, 3),
        lambda one: one.filter(after).head(2), lambda one: one.filter(after).tail(1), lambda one: one.head(70_000).filter(after),
        lambda one: one.select(pl.len()), lambda one: one.filter(after).group_by("topic").len().sort("topic"),
        lambda one: one.join(one.head(10).select("offset"), on="offset").select(pl.len()),
    ):  # fmt: skip
        assert query(lazy).collect().equals(query(whole.lazy()).collect())
    order = ["topic", "partition", "offset"]
    assert lazy.filter(after).collect(engine="streaming").sort(order).equals(whole.filter(after).sort(order))


@pytest.mark.parametrize(
    ("chosen", "bounds"),
    [
        (lambda c: (c("offset") >= 5) & (c("offset") < 9), Bounds(5, 9)),
        (lambda c: (c("offset") > 5) & (c("offset") <= 9), Bounds(6, 10)),
        (lambda c: c("offset").is_between(5, 9, closed="left"), Bounds(5, 9)),
        (lambda c: c("offset").is_in([9, 5]), Bounds(5, 10)),
        (lambda c: c("timestamp") >= datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC), Bounds(start_ms=1001)),
        (lambda c: c("timestamp") <= datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC), Bounds(end_ms=1001)),
        (lambda c: c("timestamp") < datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Bounds(end_ms=1000)),
        (lambda c: c("timestamp") > datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Bounds(start_ms=1001)),
        (lambda c: (c("topic") == "a") & (c("partition") == 3), Bounds(topics=frozenset(["a"]), partitions=frozenset([3]))),
        (lambda c: c("topic").is_in(["a", "b"]) & (c("topic") == "b"), Bounds(topics=frozenset(["b"]))),
        (lambda c: (c("offset") >= 5) | (c("topic") == "a"), Bounds()),
        (lambda c: (c("offset") >= 5) & (c("key") == b"a"), Bounds(5)),
        (lambda c: c("offset") > 5.5, Bounds()),
    ],
)
def test_what_is_pushed_down(chosen: Any, bounds: Bounds) -> None:
    """As Polars hands it over: after its optimiser."""
    found = []

    def read(columns: Any, predicate: Any, rows: Any, batch: Any) -> Any:
        found.append(bounds_of(predicate))
        yield pl.DataFrame(schema=schema)

    schema = {"offset": pl.Int64, "timestamp": pl.Datetime("us", "UTC"), "topic": pl.String, "partition": pl.Int32, "key": pl.Binary}
    pl.io.plugins.register_io_source(read, schema=schema).filter(chosen(pl.col)).collect()
    assert found == [bounds]


def test_what_cannot_be_understood() -> None:
    odd = SimpleNamespace(meta=SimpleNamespace(serialize=lambda format: '{"BinaryExpr": {"left": 1}}'))
    assert bounds_of(odd) == Bounds()
    raises(kolumn.ArgumentError, "no such file", kolumn.scan_polars, "/no/such/place")
    raises(kolumn.ArgumentError, "did you mean 'columns'", kolumn.scan_polars, CORPUS / "v2-java", colums="key")


def test_less_is_read(broker: Path) -> None:
    def bytes_of(query: Any) -> int:
        sizes: list[int] = []
        query(kolumn.scan_polars(broker, on_progress=sizes.append)).collect()
        return sum(sizes)

    whole = bytes_of(lambda one: one.select("offset"))
    assert whole == sum(path.stat().st_size for path in broker.glob("*/*.log"))
    assert bytes_of(lambda one: one.head(1)) <= 1 << 16
    assert bytes_of(lambda one: one.filter(pl.col("offset") >= ROWS - 100)) < whole / 3
    assert bytes_of(lambda one: one.filter(pl.col("topic") == "clicks")) < whole / 2
    assert bytes_of(lambda one: one.filter(pl.col("topic") == "nothing")) == 0
    # One chunk, and no thread reads ahead of it.
    assert kolumn.scan_polars(broker).head(1).collect()["offset"].to_list() == [0]


def test_limits(broker: Path) -> None:
    whole, sizes = kolumn.read(broker), list[int]()
    for limit in (0, 1, 7, 70_000, whole.num_rows + 1):
        assert kolumn.read(broker, limit=limit).equals(whole.slice(0, limit)), limit
    assert kolumn.scan(broker, limit=2, payload="string").read_all()["offset"].to_pylist() == [0, 1]
    assert kolumn.read(broker, limit=1, on_progress=sizes.append).num_rows == 1
    assert 0 < sum(sizes) <= 1 << 16
    for wrong in (-1, 1.5, True):
        raises(kolumn.ArgumentError, f"limit={wrong}: expected a number of records, 0 or more", kolumn.read, broker, limit=wrong)
    raises(kolumn.ArgumentError, r"option 'limit': .*head\(n\)", kolumn.scan_polars, broker, limit=1)


def test_options_and_typed_values(broker: Path) -> None:
    schema = {"n": "int64"}
    lazy = kolumn.scan_polars(broker / "orders-0", start_offset=10, end_offset=30, value_format="json", value_schema=schema)
    found = lazy.filter(pl.col("offset") < 20).select(pl.col("value").struct.field("n")).collect()
    assert found["n"].to_list() == list(range(10, 20))
    flat = kolumn.scan_polars(broker / "orders-0", end_offset=5, value_format="json", value_schema=schema, value_as="columns")
    assert flat.select("n", "valueValid").collect().rows() == [(i, True) for i in range(5)]
    text = kolumn.scan_polars(broker / "orders-0", end_offset=3, payload="string", columns=["key", "offset"])
    assert text.collect()["key"].to_list() == ["k0", "k1", "k2"]
    assert text.select("key").collect().schema == {"key": pl.String}


def test_damage_is_an_error_with_its_position(tmp_path: Path, broker: Path) -> None:
    path = copy(broker / "orders-1", tmp_path) / f"{0:020}.log"
    flip(path, path.stat().st_size // 2 + 40)
    raises(Exception, r"orders-1/0+\.log: position \d+", kolumn.scan_polars(tmp_path).collect)
    skipped = kolumn.Skipped()
    assert 0 < kolumn.scan_polars(tmp_path, errors="skip", on_damage=skipped).collect().height < ROWS
    assert skipped.stretches == 1
    pytest.importorskip("duckdb")
    out = invoked("sql", tmp_path, "select count(*) from orders")
    assert (out.exit_code, "--errors skip" in out.stderr) == (1, True)
    out = invoked("sql", "--json", tmp_path, "select count(*) n from orders", "--errors", "skip")
    assert (out.exit_code, "1 damaged stretch left out" in out.stderr) == (1, True)
    assert 0 < json.loads(out.stdout)["n"] < ROWS


def sql(*args: object) -> list[dict[str, Any]]:
    out = invoked("sql", "--json", *args)
    assert out.exit_code == 0, out.stderr
    return [json.loads(line) for line in out.stdout.splitlines()]


def test_sql(broker: Path) -> None:
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    assert sql(broker, 'select count(*) n, max("offset") o from orders') == [{"n": 2 * ROWS, "o": ROWS - 1}]
    found = sql(broker, "select key, count(*) n from clicks where key is not null group by key order by n desc, key limit 2")
    assert found == [{"key": "k0", "keyEncoding": "utf-8", "n": 600}, {"key": "k1", "keyEncoding": "utf-8", "n": 600}]
    # A view is read as often as a query names it.
    both = 'select count(*) n from orders a join clicks b using ("offset") where a.partition = 1 and a."offset" < 100'
    assert sql(broker, both) == [{"n": 100}]
    assert sql(broker, 'select timestamp from clicks where "offset" = 6') == [{"timestamp": "2026-01-31T12:00:00.044Z"}]
    typed = ("--value-format", "json", "--value-schema", '{"n": "int64"}')
    assert sql(broker, "select sum(value.n)::bigint s from clicks", *typed) == [{"s": ROWS * (ROWS - 1) // 2}]
    assert sql(broker, "select 1 a where false") == []
    for query, said in (
        ("select * from order_", "tables: clicks, orders"), ("selec 1", "syntax error"),
        ("select * from clicks where offset < 2", 'offset is a keyword of SQL: write "offset"'),
        ("select * from clicks where tombstone", "name all that the query needs, such as --columns offset,tombstone"),
        ("select value.* from orders", "value is bytes: --value-format makes it a struct, such as --value-format json"),
        ("select key.id from orders", "key is bytes: --key-format makes"),
        ("select 1 from orders where key like 'a%'", "decode(key) is text"),
        ("select cast(decode(key) as int) from orders", "Could not convert"),
    ):  # fmt: skip
        out = invoked("sql", broker, query)
        assert (out.exit_code, out.stdout, said in out.stderr) == (2, "", True)
    lines = invoked("sql", "--text", broker, "select null::int as n, '' as t union all select 14, 'a'").stdout.splitlines()
    assert lines == ["   n  t", "null", "  14  a"], "a null is no empty text"
    assert invoked("sql", "--text", broker, "select null::blob as n").stdout.splitlines() == ["   n", "null"]


def test_topics_that_a_query_does_not_name_need_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    for name, value in (
        ("__consumer_offsets", b"\0\1"),
        ("clicks", b'{"a": 1}'),
        ('a"b', b'{"a": 2}'),
        ("Orders", b"{}"),
        ("orders", b"{}"),
    ):
        kolumn.write(pa.table({"value": pa.array([value], pa.binary())}), tmp_path / f"{name}-0")
    kolumn.write(pa.table({"value": pa.array([b'{"op": "c", "after": {"id": 1}}', None], pa.binary())}), tmp_path / "rows-0")
    kolumn.write(pa.table({"value": pa.nulls(2, pa.binary())}), tmp_path / "gone-0")
    typed = (tmp_path, "--value-format", "json")
    assert sql(*typed, "select value.a from clicks") == sql(*typed, "select value.a from CLICKS") == [{"a": 1}]
    assert sql(*typed, 'select value.a from "a""b"') == [{"a": 2}]
    assert sql(*typed, "create macro m() as table select value.a from clicks; from m()") == [{"a": 1}]
    assert sql(*typed, "--value-envelope", "debezium", "select value.id from rows where value.__op = 'c'") == [{"id": 1}]
    assert sql(*typed, "select value from gone") == [{"value": None}] * 2
    assert sql(*typed, "--value-envelope", "debezium", "select value.__op from gone limit 1") == [{"__op": None}]
    # A name may be that of something else.
    assert sql(*typed, "with __consumer_offsets as (select 1 a) from __consumer_offsets") == [{"a": 1}]
    assert {row["name"] for row in sql(*typed, "show tables")} >= {"__consumer_offsets", "clicks", 'a"b', "rows", "gone"}
    # A topic without a type stays bytes.
    assert sql(*typed, "select value from __consumer_offsets") == [{"value": "\0\1", "valueEncoding": "utf-8"}]
    assert sql(*typed, "select clicks.value.a from clicks join main.__CONSUMER_OFFSETS o on true")[0]["a"] == 1
    fields = (*typed, "--value-columns", "a")
    for query, *said in (
        ("select * from rows", "topic rows: --value-columns: unknown field 'a'", "query this topic separately"),
        ("describe ROWS", "topic rows: --value-columns: unknown field 'a'"),
        ("select * from clicks join main.rows on true", "topic rows: --value-columns"),
        ("from query('from cli' || 'cks')", "a topic is a table where the query has its name"), ("from nothing", "tables: "),
        ("from orders", "Orders", "have one name in SQL"),
    ):  # fmt: skip
        out = invoked("sql", *fields, query)
        assert (out.exit_code, out.stdout) == (2, "")
        for part in said:
            assert part in out.stderr, out.stderr


def test_queries_see_topics_alone(broker: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="kolumn[sql] has it")
    (tmp_path / "a.txt").write_text("secret")
    duckdb.connect(str(tmp_path / "a.db")).execute("create table t as select 1 a").close()
    file, database, new = tmp_path / "a.txt", tmp_path / "a.db", tmp_path / "new"
    refused = {
        f"select content from read_text('{file}')": [{"content": "secret"}],
        f"select count(*) n from glob('{tmp_path}/a.*')": [{"n": 2}],
        f"select column0 from '{file}.csv'": None,
        f"copy clicks to '{new}.csv'": None,
        f"attach '{database}'; select 1 a": [{"a": 1}],
        f"export database '{new}'": None,
        "install httpfs": None,
        "load httpfs": None,
        "select * from 'https://localhost:1/a.parquet'": None,
        "set enable_external_access = true; select 1 a": None,
        "reset lock_configuration; select 1 a": None,
        "create secret (type s3)": None,
    }
    for query, allowed in refused.items():
        out = invoked("sql", "--json", broker, query)
        assert (out.exit_code, out.stdout) == (2, ""), query
        assert "--allow-files" in out.stderr, query
        if allowed is not None:
            assert sql("--allow-files", broker, query) == allowed
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "a.db"}
    # Nor do they see variables of this program.
    assert "does not exist" in invoked("sql", broker, "select * from found").stderr


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html) if "<td" in row]


def test_reports_in_a_notebook(tmp_path: Path) -> None:
    """Of sixty damaged batches, in a topic whose name is HTML."""
    entries = [bytearray(batch([Record(i, b"key", b"value", 1000)])) for i in range(121)]
    for entry in entries[1::2]:
        entry[-3] ^= 1
    damaged = put(tmp_path / "<b>&topic-0", *entries).parent
    report, (_, skipped) = kolumn.verify(damaged), skipping(damaged)
    html = report._repr_html_()
    assert "<b>60 damaged stretches</b>: 1 segment, 61 intact batches, 61 records, " in html
    assert [row[1] for row in cells(html)] == [str(one) for one in report.damage["position"].to_pylist()[:50]]
    assert "<p>and 10 more</p>" in html
    assert "<b>&topic" not in html
    assert "&lt;b&gt;&amp;topic-0" in html
    html = skipped._repr_html_()
    assert html.startswith("<p>60 damaged stretches left out: ")
    assert len(cells(html)) == 50
    assert "<p>and 10 more</p>" in html
    (row,) = cells(skipped.damage[0]._repr_html_())
    assert row[1:6] == [str(skipped.damage[0].position), str(skipped.damage[0].size), "1", "1", "1"]
    # And of what is sound.
    assert kolumn.Skipped()._repr_html_() == "<p>nothing left out</p>"
    html = kolumn.verify(batch([Record(0)]))._repr_html_()
    assert html.startswith("<p><b>OK</b>: ")
    assert "<table>" not in html


def test_results_are_sentences(tmp_path: Path) -> None:
    """In a plain session of Python, where a table of them would fill the screen."""
    sound, damaged = batch([Record(0, b"a", b"1")]), bytearray(batch([Record(1, b"a", b"2")]))
    damaged[-3] ^= 1
    log, size = put(tmp_path / "t-0", sound, damaged).parent, len(sound) + len(damaged)
    skipped = f"1 damaged stretch left out: {len(damaged)} bytes, 1 record"
    skips: dict[str, Any] = {"errors": "skip"}
    results: dict[str, Any] = {
        "nothing left out": kolumn.Skipped(),
        f"1 damaged stretch: 1 segment, 1 intact batch, 1 record, {size} bytes": kolumn.verify(log),
        f"OK: 1 segment, 1 intact batch, 1 record, {len(sound)} bytes": kolumn.verify(sound),
        "different: 1 partition; damaged in A in 1 stretch; damaged in B in 1 stretch": kolumn.diff(log, log),
        "1 note in 1 partition": kolumn.audit(log),
        "1 stretch lost: 1 record recovered in 1 partition": kolumn.recover(log, tmp_path / "recovered"),
        f"1 record in 1 batch, 1 segment; {skipped}": kolumn.convert(log, tmp_path / "converted", **skips),
        f"1 of 1 record and {len(sound)} of {size} bytes stay; 0 segments copied unchanged; {skipped}": kolumn.compact(
            log, tmp_path / "compacted", include_active=True, **skips
        ),
        "1 segment written, 0 segments dropped as a whole": kolumn.apply_retention(log, tmp_path / "kept", retention_ms=1, now=0),
        f"1 record erased in 1 partition; {skipped}": kolumn.erase(log, tmp_path / "erased", keys=["a"], **skips),
        "5 rows in 1 file; t-0: offsets 3 to 6 were deleted before": kolumn.Appended(5, ["a"], {}, [("t", 0, 3, 7)], []),
        f"as it is: {len(sound)} bytes for 1 record": kolumn.space(sound)[0],
        f"2 index files with 0 entries; {skipped}": kolumn.rebuild_index(log, **skips),
    }
    assert {text: str(found) for text, found in results.items()} == {text: text for text in results}
    assert [repr(found) for found in results.values()] == [f"{type(found).__name__}: {text}" for text, found in results.items()]
