"""Random queries in Spark's SQL, and logs of all formats to ask them of."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kolumn
from kit.avro_values import encoded
from kolumn.core.schema import HEADERS, RECORD_COLUMNS

COLUMNS = [name for name in RECORD_COLUMNS if name not in ("transaction", "timestampSeconds", "brokerTimestampMs", "segment")]
SCHEMA = json.dumps({"customer": "string", "id": "int64", "at.x": "float64", "items": [{"sku": "string", "n": "int32"}]})
AVRO = {"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": ["null", "string"]},
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "y", "type": "string"}, {"name": "x", "type": "double"}]}},
    {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
        {"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}}},
]}  # fmt: skip
TYPED: dict[str, dict[str, Any]] = {
    "json": {"value_format": "json", "value_schema": SCHEMA},
    "avro": {"value_format": "avro", "value_schema": json.dumps(AVRO)},
}
X = {"json": "value.`at.x`", "avro": "value.at.x"}
"""A field of a struct in Avro, a field with a dot in its name in JSON."""


def json_value(i: int) -> bytes:
    return json.dumps({"customer": f"c{i % 7}", "id": i, "at.x": i / 4, "items": [{"sku": "s", "n": i % 5}] * (i % 3)}).encode()


def avro_value(i: int) -> bytes:
    items = [{"sku": "s", "n": i % 5}] * (i % 3)
    return encoded(AVRO, {"customer": f"c{i % 7}", "id": i, "at": {"x": i / 4, "y": "y"}, "items": items})


def own_logs(root: Path, chance: random.Random, value: Callable[[int], bytes] = json_value) -> Path:
    """Topics of all formats with nulls, headers, empty payloads, and values of JSON or Avro of which some are malformed."""
    topics: dict[str, Any] = {"plain": {}, "packed": {"codec": "zstd"}, "old": {"magic": 1, "codec": "gzip"}, "older": {"magic": 0}}
    for topic, settings in topics.items():
        for partition in range(chance.randint(1, 9)):
            rows = chance.choice([1, 50, 3000])
            ids = range(rows)
            values: list[bytes | None] = [value(i) for i in ids]
            for i in ids:
                if chance.random() < 0.2:
                    values[i] = chance.choice([None, b"", b"{", b'{"id": "no number"}', chance.randbytes(chance.randrange(300))])
            times = [1_700_000_000_000_000 + chance.randrange(10**6) * 1000 for _ in ids]
            keys = pa.array([chance.choice([None, b"", b"a", b"b" * 40]) for _ in ids], pa.binary())
            table = {"key": keys, "value": pa.array(values, pa.binary()), "timestamp": pa.array(times, pa.timestamp("us", "UTC"))}
            if "magic" not in settings:
                table["headers"] = pa.array([[{"key": f"h{k}", "value": b"x" * k} for k in range(i % 4)] for i in ids], HEADERS)
            sizes: Any = {"batch_bytes": chance.choice([500, 8000]), "segment_bytes": chance.choice([20_000, 1 << 30])}
            kolumn.write(pa.table(table), root / f"{topic}-{partition}", **sizes, **settings)
    return root


class Asks:
    """Random queries over the table ``log``, in Spark's SQL, whose rows do not depend on their order."""

    def __init__(self, chance: random.Random, rows: pa.Table, typed: str | None) -> None:
        self.chance, self.typed = chance, typed
        self.known = {name: rows[name].unique().to_pylist()[:500] or [None] for name in ("topic", "partition", "offset", "timestamp")}

    def literal(self, column: str) -> str:
        found = self.chance.choice(self.known[column])
        if column == "timestamp" and found is not None:
            return f"timestamp'{found:%Y-%m-%d %H:%M:%S.%f}'"
        return "NULL" if found is None or self.chance.random() < 0.03 else f"'{found}'" if column == "topic" else str(found)

    def atom(self) -> str:
        pick, column = self.chance.choice, self.chance.choice(["topic", "partition", "offset", "offset", "timestamp"])
        ways = [
            f"{column} {pick(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {self.literal(column)}",
            f"{self.literal(column)} {pick(['=', '<', '>='])} {column}",
            f"{column} IN ({self.literal(column)}, {self.literal(column)}, {self.literal(column)})",
            f"{column} BETWEEN {self.literal(column)} AND {self.literal(column)}",
            f"{column} IS {pick(['', 'NOT '])}NULL",
            f"topic LIKE '{pick(['o%', '%d', '%a%', 'plain', '_l%', '%'])}'",
            f"offset % 3 = {self.chance.randrange(3)}", "offset = partition", f"octet_length(value) > {self.chance.randrange(200)}",
            f"{pick(['key', 'value'])} IS {pick(['', 'NOT '])}NULL", f"offset + 1 > {self.literal('offset')}",
            f"cast(offset AS double) < {self.chance.randrange(3000)}.5", "size(headers) > 1", "isControl", "NOT tombstone",
        ]  # fmt: skip
        ways += self.by_session()
        if self.typed:
            ways = [way for way in ways if "octet_length(value)" not in way]
            ways += [f"value.{one}" for one in ("id > 100", "customer = 'c3'", "customer IS NULL")]
            ways += ["size(value.items) = 2", f"{X[self.typed]} < 50.5"]
        return pick(ways)

    def by_session(self) -> list[str]:
        """Conditions that mean something else in another time zone, with other casts, or by a collation."""
        pick, day = self.chance.choice, f"2023-11-{self.chance.choice([14, 15])}"
        return [
            f"topic COLLATE {pick(['UTF8_LCASE', 'UNICODE_CI'])} {pick(['=', '<>', '>'])} '{pick(['PLAIN', 'Old', 'x'])}'",
            "topic COLLATE UTF8_LCASE IN ('OLDER', 'Packed')", f"timestamp {pick(['<', '>='])} '{day} {self.chance.randrange(24):02}:13'",
            f"date(timestamp) = date'{day}'", f"hour(timestamp) < {self.chance.randrange(24)}",
            f"timestamp > timestamp_ntz'{day} 22:20:00'",
            f"offset >= '{self.chance.randrange(3000)}'", f"partition = {self.chance.randrange(5)}.0", "cast(key AS string) = 'a'",
        ]  # fmt: skip

    def condition(self, depth: int = 2) -> str:
        if depth == 0 or self.chance.random() < 0.3:
            return self.atom()
        one, other = self.condition(depth - 1), self.condition(depth - 1)
        return self.chance.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT {one}", f"({one} AND {other})"])

    def total(self) -> str:
        found = ["count(*)", "count(offset)", "min(offset)", "max(offset)", "max(timestamp)", "min(timestamp)", "count(DISTINCT partition)",
                 "sum(offset)", "count(value)", "bit_xor(xxhash64(key, value))", "max(topic)"]  # fmt: skip
        if self.typed:
            found += ["sum(value.id)", "max(value.customer)", "sum(size(value.items))", "max(get(value.items, 0).sku)", "count(valueValid)"]
        return ", ".join(self.chance.sample(found[: self.chance.choice([5, len(found)])], self.chance.randint(1, 4)))

    def columns(self) -> str:
        found = [*COLUMNS, "headers.key", "get(headers, 0).value", "octet_length(key)", "1"]
        found += ["value", "value.id", "value.items.n", X[self.typed], "valueValid"] if self.typed else []
        return ", ".join(self.chance.sample(found, self.chance.randint(1, 5)))

    def query(self) -> str:
        """One whose rows do not depend on their order."""
        where = self.chance.choice(["", f" WHERE {self.condition()}", f" WHERE {self.condition()}"])
        by = self.chance.choice(["topic", "partition", "topic, partition", "key", "codec"])
        return self.chance.choice([
            f"SELECT {self.columns()} FROM log{where}",
            f"SELECT {self.columns()} FROM log{where}",
            f"SELECT {self.total()} FROM log{where}",
            f"SELECT {by}, {self.total()} FROM log{where} GROUP BY {by}",
            f"SELECT DISTINCT {by} FROM log{where}",
            f"SELECT topic, partition, offset FROM log{where} ORDER BY topic, partition, offset LIMIT {self.chance.randrange(50)}",
            self.first(where),
            self.first(self.chance.choice(["", " WHERE topic LIKE '_l%'", " WHERE partition <> 1"])),
            f"SELECT count(*) FROM (SELECT {self.columns()} FROM log{where} LIMIT {self.chance.randrange(5000)})",
            f"SELECT count(*), sum(offset) FROM log{where or ' WHERE true'} AND partition IN (SELECT max(partition) FROM log)",
            f"SELECT topic, count(*) FROM log JOIN log b USING (topic, partition, offset) WHERE b.{self.of_offset()} GROUP BY topic",
            f"SELECT sum(x) FROM (SELECT lag(offset) OVER (PARTITION BY topic, partition ORDER BY offset) AS x FROM log{where})",
            *[self.nested() for _ in range(5)],
        ])  # fmt: skip

    def nested(self) -> str:
        """One with subqueries, windows, joins and sets."""
        where, pick = self.chance.choice(["", f" WHERE {self.condition()}"]), self.chance.choice
        key, other = "topic, partition, offset", self.condition(1)
        frame = f"PARTITION BY {pick(['topic', 'topic, partition', 'partition'])} ORDER BY offset {pick(['', 'DESC'])}, topic, partition"
        number = pick(["row_number()", "rank()", "ntile(9)"])
        return pick([
            f"SELECT {key} FROM (SELECT *, {number} OVER ({frame}) AS r FROM log{where}) WHERE r <= 3",
            f"SELECT topic, sum(x) FROM (SELECT topic, sum(offset) OVER ({frame} ROWS 2 PRECEDING) AS x FROM log{where}) GROUP BY topic",
            f"SELECT {key} FROM log a WHERE {pick(['', 'NOT '])}EXISTS (SELECT 1 FROM log b "
            f"WHERE b.topic = a.topic AND b.partition = a.partition AND b.offset = a.offset + 1 AND {self.of_offset()})",
            f"SELECT {key} FROM log WHERE offset {pick(['', 'NOT '])}IN (SELECT offset FROM log WHERE {other})",
            f"SELECT {key} FROM log WHERE offset = (SELECT {pick(['max', 'min'])}(offset) FROM log{where})",
            f"SELECT topic FROM log{where} {pick(['UNION', 'EXCEPT', 'INTERSECT', 'EXCEPT ALL'])} SELECT topic FROM log WHERE {other}",
            f"SELECT {key} FROM log{where} {pick(['UNION ALL', 'EXCEPT', 'INTERSECT'])} SELECT {key} FROM log WHERE {other}",
            f"SELECT topic, partition, {self.total()} FROM log{where} GROUP BY {pick(['CUBE', 'ROLLUP'])}(topic, partition) "
            f"HAVING count(*) > {self.chance.randrange(60)}",
            f"SELECT a.topic, count(*), count(b.offset), sum(b.offset) FROM log a {pick(['LEFT', 'FULL', 'RIGHT'])} JOIN log b "
            f"ON a.topic = b.topic AND a.partition = b.partition AND a.offset = b.offset + {self.chance.randrange(3)} GROUP BY a.topic",
            f"SELECT date_format(timestamp, 'yyyy-MM-dd HH'), {self.total()} FROM log{where} GROUP BY 1",
            f"SELECT {key} FROM log{where} ORDER BY {pick(['offset DESC', 'timestamp DESC, offset', 'offset'])}, topic, partition "
            f"LIMIT {self.chance.randrange(50)}",
        ])  # fmt: skip

    def first(self, where: str) -> str:
        """The sort keys of the first rows: which of equal rows they are is open."""
        pick = self.chance.choice
        keys = pick([["offset"], ["timestamp"], ["offset", "partition"], ["topic", "partition", "offset"], ["topic", "timestamp"]])
        if self.chance.random() < 0.3:
            keys = self.chance.sample(["offset", "timestamp", "topic", "partition", "key", "topic COLLATE UTF8_LCASE", "offset % 7"], 3)
        by = ", ".join(f"{key} {pick(['', 'ASC', 'DESC', 'DESC', 'DESC'])} {pick(['', '', 'NULLS FIRST', 'NULLS LAST'])}" for key in keys)
        shown = ", ".join(key.replace("topic COLLATE UTF8_LCASE", "lower(topic)") for key in keys)
        skipped = pick(["", "", f" OFFSET {self.chance.randrange(20)}"])
        return f"SELECT {shown} FROM log{where} ORDER BY {by} LIMIT {pick([1, 10, 200, 5000])}{skipped}"

    def of_offset(self) -> str:
        return f"offset {self.chance.choice(['<', '>=', '='])} {self.literal('offset')}"
