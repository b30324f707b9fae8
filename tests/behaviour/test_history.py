"""Is every record of a key found, with what became of it, whatever the log looks like and wherever it is?"""

import json
import random
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import oracle
from kit.asked import invoked, put
from kit.corpus import HERE, cases
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.fuzz import FIRST
from kit.outcome import raises
from kit.random_logs import KINDS, Log, source_of
from kit.settled import in_folder, settled
from kit.tiers import tier_of
from kolumn.decode import predicate
from kolumn.tools.history import HISTORY_SCHEMA, UNDECIDED

COLUMNS = (
    "offset",
    "timestampMs",
    "timestampType",
    "producerId",
    "producerEpoch",
    "sequence",
    "leaderEpoch",
    "isTransactional",
    "position",
)
ABORT, COMMIT = 0, 1


def history(source: object, **options: Any) -> list[dict[str, Any]]:
    return kolumn.history(source, **options).to_pylist()


def plainly(folder: Path, wanted: Any) -> list[dict[str, Any]]:
    found = []
    for row, state in in_folder(folder):
        if not row.isControl and wanted(row):
            made: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS} | {"key": row.key, "value": row.value}
            found.append(made | {"transaction": state, "valueHash": None if row.value is None else sha256(row.value).hexdigest()})
    return found


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for row in found:
        moment = row.pop("timestamp")
        row["timestampMs"] = -1 if moment is None else round(moment.timestamp() * 1000)
    assert [{name: row[name] for name in one} for row, one in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize("turn", range(12))
def test_random_logs(turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(FIRST + turn)
    log = Log(FIRST + turn, KINDS, rng.choice([3, 40, 1000]))
    source = source_of(tmp_path, [log.segment(rng.randrange(1, 25)) for _ in range(3)])
    every = kolumn.read(source, columns=["key"])["key"].to_pylist()
    keys = {rng.choice(every) for _ in range(rng.choice([1, 1, 3]))} - {None} or {b"key-0"}
    # From which share of entries on all columns are decoded at once, and how many bytes of other entries are decoded together.
    monkeypatch.setattr(predicate, "_MANY", rng.choice([-1, 0, 1 / 4, 2]))
    monkeypatch.setattr(predicate, "_TOGETHER", rng.choice([1, 1000, 4 << 20]))
    options: dict[str, Any] = rng.choice([{}, {"threads": 1}, {"chunk_bytes": 1, "threads": 2}])
    same(history(source, keys=keys, include_values=True, **options), plainly(source, lambda row: row.key in keys))
    named = history(source, header={"name": b"x" * 200}, include_values=True, **options)
    same(named, plainly(source, lambda row: ("name", b"x" * 200) in row.headers))


@pytest.mark.parametrize("case", [case for case in cases() if HERE in case.directory.parents], ids=str)
def test_brokers_of_every_version(case: Any) -> None:
    """A key has the records that Kafka's own classes read, and where consumers were recorded, the committed ones are theirs."""
    expected = case.expected().filter(pc.invert(case.expected()["is_control"]))
    counts = pc.value_counts(expected["key"].combine_chunks()).to_pylist()
    for key in [one["values"] for one in counts if one["values"] is not None][:: max(1, len(counts) // 3)]:
        some = expected.filter(pc.equal(expected["key"], key))
        found = kolumn.history(case.directory, key=key, include_values=True, errors="skip")
        assert found["offset"].to_pylist() == sorted(some["offset"].to_pylist())
        assert sorted(map(repr, found["value"].to_pylist())) == sorted(map(repr, some["value"].to_pylist()))
        consumed = kolumn.read(case.directory, isolation_level="read_committed", columns=["key", "offset"], errors="skip")
        mine = set(consumed.filter(pc.equal(consumed["key"], key))["offset"].to_pylist())
        states = dict(zip(found["offset"].to_pylist(), found["transaction"].to_pylist(), strict=True))
        assert mine <= {offset for offset, state in states.items() if state in ("none", "committed")}


def deleted_log(folder: Path) -> Path:
    """One key: a value, a tombstone that is aborted, one that counts, another one, a value, and a tombstone in an open transaction."""
    folder /= "orders-0"
    header = ((b"app", b"cleanup-7"),)
    entries = [
        batch([Record(0, b"a", b"1", 1000), Record(1, b"b", b"x", 1000)]),
        batch([Record(2, b"a", None, 2000)], flags=TRANSACTIONAL, producer_id=7, producer_epoch=3, base_sequence=0),
        control_batch(3, ABORT),
        batch([Record(4, b"a", None, 3000, header)], flags=TRANSACTIONAL, producer_id=7, producer_epoch=3, base_sequence=1),
        control_batch(5, COMMIT),
        batch([Record(6, b"a", None, 4000)]),
        batch([Record(7, b"a", b"2", 5000), Record(8, None, None, 5000)]),
        batch([Record(9, b"a", None, 6000)], flags=TRANSACTIONAL, producer_id=7, producer_epoch=3, base_sequence=2),
    ]
    put(folder, *entries)
    return folder


def test_who_deleted_a_key(tmp_path: Path) -> None:
    rows = history(deleted_log(tmp_path), key="a", include_headers=True)
    assert [(row["offset"], row["transaction"], row["tombstone"], row["deletes"]) for row in rows] == [
        (0, "none", False, False), (2, "aborted", True, False), (4, "committed", True, True), (6, "none", True, False),
        (7, "none", False, False), (9, "open", True, False),
    ]  # fmt: skip
    assert (rows[2]["producerId"], rows[2]["producerEpoch"], rows[2]["headers"]) == (7, 3, [{"key": "app", "value": b"cleanup-7"}])
    assert (rows[0]["keySize"], rows[0]["valueSize"], rows[2]["valueSize"]) == (1, 1, None)


def test_a_tombstone_whose_value_was_compacted_deletes(tmp_path: Path) -> None:
    put(tmp_path / "t-0", batch([Record(9, b"k", None, 1)]))
    assert [row["deletes"] for row in history(tmp_path, key="k")] == [True]


def test_names_of_transactions(tmp_path: Path) -> None:
    """By the topic of the coordinator, if it is in the source."""
    shutil.copytree(HERE / "internal" / "__transaction_state-0", tmp_path / "__transaction_state-0")
    known = {row["producerId"]: row["transactionalId"] for row in kolumn.open_transactions([tmp_path]).to_pylist()}
    known |= {row["producerId"]: row["transactionalId"] for row in history_of_coordinators(tmp_path)}
    producer, name = next((producer, name) for producer, name in known.items() if name)
    put(tmp_path / "t-0", batch([Record(0, b"k", b"v", 1)], producer_id=producer, producer_epoch=0, base_sequence=0))
    put(tmp_path / "t-1", batch([Record(0, b"k", b"v", 1)], producer_id=producer + 10**9, producer_epoch=0, base_sequence=0))
    assert [row["transactionalId"] for row in history(tmp_path, key="k")] == [name, None]
    assert [row["transactionalId"] for row in history(tmp_path / "t-0", key="k")] == [None]


def history_of_coordinators(folder: Path) -> list[dict[str, Any]]:
    rows = kolumn.read(folder / "__transaction_state-0", decode="internal", columns=["key", "value"]).to_pylist()
    messages = [(row["key"], row["value"]) for row in rows if row["key"] and row["value"]]
    found = []
    for key, value in messages:
        own = {**_flat(key), **_flat(value)}
        found.append({"producerId": own.get("producerId"), "transactionalId": own.get("transactionalId")})
    return found


def _flat(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {name: one for part in (value, *map(_flat, value.values())) for name, one in part.items()}


def test_keys_in_every_form(tmp_path: Path) -> None:
    put(tmp_path / "t-0", batch([Record(0, b"\xff\x00", b"v", 1), Record(1, "ä".encode(), b"v", 1), Record(2, b"", b"v", 1)]))
    for key, offset in ((b"\xff\x00", 0), ("hex:ff00", 0), ("base64:/wA=", 0), ("ä", 1), ("", 2), (b"", 2)):
        assert [row["offset"] for row in history(tmp_path, key=key)] == [offset]
    assert [row["offset"] for row in history(tmp_path, keys=["ä", b""], key="hex:ff00")] == [0, 1, 2]
    raises(kolumn.ArgumentError, "keys is empty", kolumn.history, tmp_path, keys=[])
    raises(kolumn.ArgumentError, "name the records", kolumn.history, tmp_path)
    raises(kolumn.ArgumentError, "not hex", kolumn.history, tmp_path, key="hex:xy")
    raises(kolumn.ArgumentError, "without value_format", kolumn.history, tmp_path, where="value.a=1")
    raises(kolumn.ArgumentError, "A header of that name: header.tombstone", kolumn.history, tmp_path, where="tombstone=true")
    assert history(tmp_path, where="header.tombstone=true") == history(tmp_path, header="tombstone=true") == []


def test_typed_keys_and_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = [Record(i, bytes([2 * i]), json.dumps({"name": f"n{i % 3}", "deep": {"age": i}}).encode(), 1) for i in range(9)]
    put(tmp_path / "t-0", batch([*records, Record(9, bytes([18]), b"no json", 1)]))
    json_values: dict[str, Any] = {"value_format": "json", "value_schema": {"name": "string", "deep": {"age": "int64"}}}
    assert [row["offset"] for row in history(tmp_path, where="value.name=n1", **json_values)] == [1, 4, 7]
    found = kolumn.history(tmp_path, where=["value.name=n1", "value.deep.age=4"], include_values=True, **json_values)
    assert [(row["offset"], row["value"]["deep"]["age"]) for row in found.to_pylist()] == [(4, 4)]
    assert found["valueHash"].to_pylist() == [sha256(records[4].value or b"").hexdigest()]
    assert found.schema.metadata[UNDECIDED] == b"1"
    assert "of 1 records a key or a value cannot be decoded" in caplog.text
    numbers: dict[str, Any] = {"key_format": "avro", "key_schema": '"int"', "key_framing": "none"}
    assert [row["offset"] for row in history(tmp_path, where="key=7", **numbers)] == [7]
    assert [row["offset"] for row in history(tmp_path, key=b"\x0e", **numbers)] == [7]
    both = kolumn.history(tmp_path, where={"key": "7", "value.name": "n1"}, include_values=True, **numbers, **json_values)
    assert [(row["offset"], row["key"]) for row in both.to_pylist()] == [(7, 7)]


def test_damage(tmp_path: Path) -> None:
    entries = [bytearray(batch([Record(i, b"k", b"v" * 50, 1)])) for i in range(5)]
    entries[2][-1] ^= 1
    put(tmp_path / "t-0", *map(bytes, entries))
    raises(kolumn.CorruptBatchError, "", kolumn.history, tmp_path, key="k")
    skipped = kolumn.Skipped()
    assert [row["offset"] for row in history(tmp_path, key="k", errors="skip", on_damage=skipped)] == [0, 1, 3, 4]
    assert (skipped.stretches, skipped.records) == (1, 1)


def test_copies_and_memory(tmp_path: Path) -> None:
    data = [batch([Record(i, b"k%d" % (i % 2), b"v", 1)]) for i in range(6)]
    for place in ("a", "b"):
        put(tmp_path / place / "t-0", *data[: 6 if place == "a" else 4])
    both = [tmp_path / "a", tmp_path / "b"]
    raises(kolumn.ArgumentError, "replicas", kolumn.history, both, key="k0")
    assert [row["offset"] for row in history(both, key="k0", replicas="merge")] == [0, 2, 4]
    assert [row["offset"] for row in history(b"".join(data), key="k1")] == [1, 3, 5]
    assert kolumn.history(b"".join(data), key="none").schema.equals(HISTORY_SCHEMA)


def test_a_tier_and_what_is_left_of_the_folder(tmp_path: Path) -> None:
    log = Log(FIRST, ("plain", "dead", "transactions"), 10)
    source = source_of(tmp_path / "broker", [log.segment(12) for _ in range(3)])
    before, state = plainly(source, lambda row: row.key == b"key-1"), kolumn.latest(source, columns=["offset", "value"])
    tier_of(source, tmp_path / "tier")
    first, second, _ = sorted(source.glob("*.log"))
    first.unlink()
    both = [tmp_path / "broker", tmp_path / "tier"]
    same(history(both, key="key-1", include_values=True), before)
    second.unlink()
    same(history(both[::-1], key="key-1", include_values=True), before)
    assert kolumn.latest(both, columns=["offset", "value"]).equals(state)


@pytest.mark.parametrize("name", ["compact-txn-0", "compact-txn-gone-0"])
def test_files_that_brokers_delete(name: str, tmp_path: Path) -> None:
    """Each offset once, by the live log where it has it; and what became of transactions as it was before the compaction."""
    folder = HERE / "compacted" / name
    options: dict[str, Any] = {"columns": ["offset", "key", "value", "transaction", "segment"], "include_control": True}
    live, every = kolumn.read(folder, **options), kolumn.read(folder, include_deleted_segments=True, **options)
    rows = {row["offset"]: row for row in every.to_pylist()}
    assert len(rows) == every.num_rows
    expected = {row["offset"]: row for row in live.to_pylist()}
    assert {offset: row for offset, row in rows.items() if row["segment"].endswith(".log")} == expected
    dead: dict[int, Any] = {}
    for path in sorted(folder.glob("*.log.deleted")):
        for row in oracle.read(path.read_bytes()).rows():
            dead.setdefault(row.offset, row)
    was = {row.offset: row for path in folder.glob("*.log") for row in oracle.read(path.read_bytes()).rows()} | dead
    assert {offset: (row["key"], row["value"]) for offset, row in rows.items() if offset not in expected} == {
        offset: (own.key, own.value) for offset, own in dead.items() if offset not in expected
    }
    plan = kolumn.explain(folder, include_deleted_segments=True)
    assert (plan.left_out.num_rows, kolumn.explain(folder).left_out.num_rows > 0) == (0, True)
    states = {row.offset: state for row, state in settled(was.values())}
    gone = {offset for offset, row in dead.items() if offset not in expected and not row.isControl}
    assert {states[offset] for offset in gone} == {"none", "committed", "aborted"}
    assert {offset: rows[offset]["transaction"] for offset in gone} == {offset: states[offset] for offset in gone}
    key = next(rows[offset]["key"] for offset in sorted(gone))
    more = history(folder, key=key, include_deleted_segments=True)
    assert len(more) > len(history(folder, key=key))


def test_deleted_files_are_chosen_by_the_same_options(tmp_path: Path) -> None:
    live = put(tmp_path / "t-0", batch([Record(3, b"k", b"3", 30)], base_offset=0, last_offset=3), base=0)
    old = batch([Record(i, b"k", b"%d" % i, 10 * i) for i in range(4)])
    live.with_name(f"{live.name}.deleted").write_bytes(old)
    live.with_name(f"{live.name}.deleted").with_suffix("").with_suffix(".index.deleted").write_bytes(b"")
    for options, expected in (
        ({}, [0, 1, 2, 3]), ({"start_offset": 1, "end_offset": 3}, [1, 2]), ({"start_timestamp": 20}, [2, 3]),
        ({"replicas": "merge"}, [0, 1, 2, 3]), ({"replicas": "first", "threads": 1}, [0, 1, 2, 3]),
    ):  # fmt: skip
        rows = kolumn.read(tmp_path, columns=["value", "offset"], include_deleted_segments=True, **options).to_pylist()
        assert [row["offset"] for row in rows] == expected
        assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    assert kolumn.read(tmp_path, columns=["value"], include_deleted_segments=True).schema.names == ["value"]
    raises(kolumn.ArgumentError, "as they grow", kolumn.append, tmp_path, None, include_deleted_segments=True)
    assert kolumn.read(tmp_path).num_rows == 1


def test_text_for_people(tmp_path: Path) -> None:
    said = invoked("history", "--text", "--key", "a", deleted_log(tmp_path))
    assert said.exit_code == 0
    assert "Deleted at offset 4 of orders-0 by producer 7, epoch 3; headers: app=cleanup-7" in said.output
    assert said.output.rstrip().endswith("all there is.")
    assert "no such record" in invoked("history", "--text", "--key", "zz", tmp_path).output
    lines = invoked("history", "--json", "--header", "app=cleanup-7", "--values", tmp_path).stdout.splitlines()
    assert [(json.loads(line)["offset"], json.loads(line)["key"]) for line in lines] == [(4, "a")]
    assert invoked("history", tmp_path).exit_code == 2
    assert [json.loads(line)["offset"] for line in invoked("cat", "--json", "--key", "hex:62", tmp_path).stdout.splitlines()] == [1]


def test_timestamps_that_no_year_has_are_null(tmp_path: Path) -> None:
    times = [1, 10**17, 9 * 10**18, -1]
    kolumn.write(pa.table({"key": [b"a"] * 4, "value": [b"x"] * 4, "timestampMs": times}), tmp_path / "far-0")
    moments = [row["timestamp"] for row in kolumn.history(tmp_path / "far-0", key="a").to_pylist()]
    assert [moment is None for moment in moments] == [False, True, True, True]
    done = invoked("history", "--text", "--key", "a", tmp_path / "far-0")
    assert (done.exit_code, "1970-01-01T00:00:00.001Z" in done.stdout) == (0, True)


def test_no_error_says_a_condition(tmp_path: Path) -> None:
    with pytest.raises(kolumn.ArgumentError, match="expected NAME=VALUE") as caught:
        kolumn.history(tmp_path, where="joe@x.org")
    assert "joe" not in str(caught.value)
