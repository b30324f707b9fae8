"""Brokers' disks with some features of a source, and the records that any reader of them has to return, known from what was written."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from kit import tiers
from kit.asked import put
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.schemas_topic import framed, version, write

OPTIONS: dict[str, dict[str, Any]] = {
    "typed": {"value_format": "registry"},
    "committed": {"isolation_level": "read_committed"},
    "topics": {},
    "damage": {"errors": "skip"},
    "copies": {"replicas": "merge"},
    "tier": {},
    "url": {},
}
"""The features, with the options that they need."""
PAIRS = list(combinations(OPTIONS, 2))
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]}
CLICK = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
SCHEMAS = {"orders": (1, ORDER), "clicks": (2, CLICK)}
"""By topic; `notes` has none."""
RECORDS, BATCHES, ROLLED = 5, 12, 4
"""Records of a batch, batches of a partition, and batches of a segment."""
COMMITTED, ABORTED, OPEN = 7, 8, 9
"""Producers, by what becomes of their transactions."""
STATES = {-1: "none", COMMITTED: "committed", ABORTED: "aborted", OPEN: "open"}
PRODUCERS = {1: COMMITTED, 2: ABORTED, 4: COMMITTED, 7: ABORTED, 9: OPEN, 10: COMMITTED}
MARKERS = {3: ABORTED, 4: COMMITTED, 8: ABORTED, 10: COMMITTED}
"""Whose transaction ends behind a batch, maybe in a later segment than that in which it begins."""
DAMAGED, IN_TURNS = 1, {"b1": 8, "b2": 4}
"""Batches of orders-0 that are damaged: wherever they are, and in each of two copies, where markers behind them are too."""
CUT = (7, 12)
"""Offsets of orders-1 whose typed values lack a byte; a transaction that is aborted has the second one."""
TYPES_DIFFER = "values of the topics clicks, orders have different types, and a table has one: name one topic"
"""Why topics of several types are not one table."""
TIME = 1_790_000_000_000
Rows = dict[str, dict[int, list[tuple[Any, ...]]]]
"""By topic and partition: offset, key, value, and whether a typed value is valid."""


def rows_of(found: Iterable[Mapping[str, Any]]) -> Rows:
    """What a reader returned, whose columns may be bytes or text."""
    rows: Rows = {}
    for row in found:
        key, value = (own.decode() if isinstance(own, bytes) else own for own in (row["key"], row["value"]))
        rows.setdefault(row["topic"], {}).setdefault(row["partition"], []).append((row["offset"], key, value, row.get("valueValid")))
    return rows


@dataclass
class Entry:
    """A batch, or a marker, which has no rows."""

    number: int
    base: int
    data: bytes
    rows: list[tuple[Any, ...]]
    producer: int


@dataclass
class Log:
    """A partition; ``damaged`` are batches that are so wherever it is."""

    topic: str
    partition: int
    damaged: frozenset[int]
    entries: list[Entry] = field(default_factory=list)

    @property
    def segments(self) -> list[list[Entry]]:
        return [[entry for entry in self.entries if entry.number // ROLLED == i] for i in range(BATCHES // ROLLED)]

    @property
    def intact(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.number not in self.damaged]

    @property
    def settled(self) -> list[tuple[Any, ...]]:
        """The intact records that are committed, or of no transaction."""
        return [row for entry in self.intact if entry.producer in (-1, COMMITTED) for row in entry.rows]

    @property
    def open_at(self) -> int | None:
        return next((entry.base for entry in self.entries if entry.producer == OPEN), None)

    @property
    def after_open(self) -> int:
        """Records that a consumer of committed records does not get because a transaction before them is open."""
        return len(self.settled) - len(self.rows(committed=True))

    def rows(self, committed: bool) -> list[tuple[Any, ...]]:
        """All that is intact, or what a consumer of committed records gets."""
        if not committed:
            return [row for entry in self.intact for row in entry.rows]
        return [row for row in self.settled if self.open_at is None or row[0] < self.open_at]

    @property
    def states(self) -> Counter[str]:
        """How many intact records there are by the state of their transaction."""
        return sum((Counter({STATES[entry.producer]: len(entry.rows)}) for entry in self.intact), Counter())

    def lost(self) -> list[tuple[Any, ...]]:
        return [row for entry in self.entries if entry.number in self.damaged for row in entry.rows]

    def stored(self, entries: Iterable[Entry], damaged: Iterable[int] = ()) -> bytes:
        """Bytes of some entries; of damaged batches the last one is another."""
        wrong = {*self.damaged, *damaged}
        return b"".join(entry.data[:-1] + bytes([entry.data[-1] ^ 0x10]) if entry.number in wrong else entry.data for entry in entries)


class Disks:
    """Disks of brokers, and maybe a tier, below a folder. A tier is in Aiven's layout, compressed and encrypted, where that is another
    feature's business too (types, topics, URLs), and else in that of Kafka.
    """

    def __init__(self, root: Path, *features: str) -> None:
        self.root, self.features = root, frozenset(features)
        self.keys: dict[str, Path] = {}
        for name in self._brokers:
            for log in self.logs:
                own = {IN_TURNS[name]} if "copies" in self.features and (log.topic, log.partition) == ("orders", 0) else set()
                # The first segment is in the tier alone, the next one in both.
                for entries in log.segments[1 if self._is_tiered(log) else 0 :]:
                    put(root / name / f"{log.topic}-{log.partition}", log.stored(entries, own), base=entries[0].base)
            if "typed" in self.features:
                versions = [version(f"{topic}-value", 1, id, json.dumps(schema)) for topic, (id, schema) in SCHEMAS.items()]
                write(root / name / "_schemas-0", versions, [TIME] * len(versions))
        for log in filter(self._is_tiered, self.logs):
            self._upload(log)

    @cached_property
    def logs(self) -> list[Log]:
        others = [("clicks", 0), ("notes", 0)] if "topics" in self.features else []
        return [self._log(topic, partition) for topic, partition in [("orders", 0), ("orders", 1), *others]]

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(log.topic for log in self.logs))

    @property
    def options(self) -> dict[str, Any]:
        found = {name: value for feature in OPTIONS if feature in self.features for name, value in OPTIONS[feature].items()}
        return found | ({"private_keys": self.keys} if self.keys else {})

    def source(self, scheme: str) -> list[str]:
        """Names of its folders, as URLs of this scheme if that is a feature: of disks, or of the partitions of the only topic on them."""
        names = [f"{self.root}/{name}{'' if 'topics' in self.features else '/orders-*'}" for name in self._brokers]
        names += [f"{self.root}/tier"] if "tier" in self.features else []
        return [f"{scheme}{name}" if "url" in self.features else name for name in names]

    def is_typed(self, topic: str) -> bool:
        return "typed" in self.features and topic in SCHEMAS

    @property
    def rows(self) -> Rows:
        """What a read with the options returns."""
        return self._by_topic(lambda log: log.rows("committed" in self.features))

    @property
    def settled(self) -> Rows:
        """What it returns if it goes on after open transactions."""
        return self._by_topic(lambda log: log.settled)

    def _by_topic(self, chosen: Callable[[Log], list[tuple[Any, ...]]]) -> Rows:
        rows: Rows = {}
        for log in self.logs:
            rows.setdefault(log.topic, {})[log.partition] = chosen(log)
        return rows

    def lost_values(self, committed: bool) -> int:
        """How many values cannot be decoded, of all that are read or of those that a consumer of committed records gets."""
        (log,) = (log for log in self.logs if (log.topic, log.partition) == ("orders", 1))
        return sum(row[0] in CUT for row in log.rows(committed)) if "typed" in self.features else 0

    @property
    def lost_records(self) -> int:
        return sum(len(log.lost()) for log in self.logs)

    def said_of(self, committed: bool) -> list[str]:
        """What is to be said of records that are left out, and of values that are lost, as regular expressions."""
        values = self.lost_values(committed)
        said = [rf"\b1 damaged stretch left out: \d+ bytes, {self.lost_records} records"] if self.lost_records else []
        said += [rf"\b{values} values? could not be decoded"] if values else []
        for log in self.logs if committed else ():
            if log.after_open:
                where = rf"\b{log.topic}-{log.partition} stops at offset {log.open_at}: a transaction of producer {OPEN}"
                said.append(rf"{where} .*\bopen .*; {log.after_open} committed records after it are not read")
        return said

    @property
    def _brokers(self) -> list[str]:
        return list(IN_TURNS) if "copies" in self.features else ["b1"]

    def _is_tiered(self, log: Log) -> bool:
        return "tier" in self.features and (log.topic, log.partition) in (("orders", 0), ("clicks", 0))

    def _upload(self, log: Log) -> None:
        """Put the closed segments of a log into the tier."""
        if self.features & {"typed", "topics", "url"}:
            made = self._aiven
            for entries, following in zip(log.segments, log.segments[1:], strict=False):
                made.put(log.stored(entries), log.topic, log.partition, entries[0].base, following[0].base - 1)
        else:
            for entries in log.segments[:-1]:
                folder = self.root / "tier" / f"{log.topic}-{log.partition}-{tiers.uuid_of(log.topic)}"
                tiers.put(folder, entries[0].base, [log.stored(entries)], [(0, 0)])

    @cached_property
    def _aiven(self) -> tiers.Aiven:
        (self.root / "tier").mkdir()
        made = tiers.Aiven(self.root / "tier", 300, zstd=True, key="key1")
        self.keys = {"key1": made.key_file()}
        return made

    def _log(self, topic: str, partition: int) -> Log:
        is_first = (topic, partition) == ("orders", 0)
        made, offset = Log(topic, partition, frozenset({DAMAGED} if is_first and "damage" in self.features else ())), 0
        has_transactions = "committed" in self.features and topic != "notes"
        for number in range(BATCHES):
            producer = PRODUCERS.get(number, -1) if has_transactions else -1
            producer = -1 if producer == OPEN and not is_first else producer
            records, rows = zip(*(self._record(topic, partition, offset + i) for i in range(RECORDS)), strict=True)
            how: dict[str, int] = {"producer_id": producer, "producer_epoch": 3, "base_sequence": offset, "flags": TRANSACTIONAL}
            made.entries.append(Entry(number, offset, batch(records, **(how if producer >= 0 else {})), list(rows), producer))
            offset += RECORDS
            if has_transactions and number in MARKERS:
                ended = MARKERS[number]
                marker = control_batch(offset, int(ended == COMMITTED), producer_id=ended, timestamp=TIME + offset)
                made.entries.append(Entry(number, offset, marker, [], -1))
                offset += 1
        return made

    def _record(self, topic: str, partition: int, offset: int) -> tuple[Record, tuple[Any, ...]]:
        key, text, stored = f"{topic}-{partition}-{offset}", f"value {offset}", None
        row: tuple[Any, ...] = (offset, key, text, None)
        if self.is_typed(topic):
            id, schema = SCHEMAS[topic]
            value = {"id": offset, "customer": text} if topic == "orders" else {"page": text}
            data, is_cut = framed(id, schema, value), (topic, partition) == ("orders", 1) and offset in CUT
            stored, row = (data[:-1], (*row[:2], None, False)) if is_cut else (data, (*row[:2], value, True))
            if offset % 20 == 3:
                stored, row = None, (*row[:2], None, False)
        else:
            stored = text.encode()
        return Record(offset, key.encode(), stored, TIME + offset), row
