"""`groups` and `open_transactions`: what a coordinator would know after it had loaded its topic, against the logs beside it."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kolumn
from kit.corpus import HERE
from kit.encoder import TRANSACTIONAL, Record, batch, control_batch
from kit.tiers import uuid_of
from kolumn.cli import app
from kolumn.core.errors import ArgumentError, CorruptBatchError

OFFSETS, STATE = HERE / "internal" / "__consumer_offsets-0", HERE / "internal" / "__transaction_state-0"
T = 1_700_000_000_000


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def commit_key(group: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)


def commit(offset: int, metadata: str = "", time: int = T) -> bytes:
    return struct.pack(">hqi", 3, offset, 4) + text(metadata) + struct.pack(">q", time)


def classic(generation: int, members: int) -> bytes:
    assignment = struct.pack(">hi", 9, 1) + text("orders") + struct.pack(">iii", 1, 0, -1)
    member = text("m-1") + struct.pack(">h", -1) + text("client") + text("/10.0.0.1") + struct.pack(">iii", 1, 2, 0)
    member += struct.pack(">i", len(assignment)) + assignment
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", generation) + text("range") + text("m-1")
    return head + struct.pack(">qi", T, members) + member * members


def log(folder: Path, *entries: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(entries))
    return folder


def rows(*sources: Path, **options: Any) -> list[dict[str, Any]]:
    return kolumn.groups(sources, **options).to_pylist()


def one(offset: int, key: bytes, value: bytes | None) -> bytes:
    return batch([Record(offset, key, value, T)])


def test_the_newest_commit_counts_and_tombstones_remove(tmp_path: Path) -> None:
    a, b, c = (commit_key("g", "orders", number) for number in range(3))
    log(tmp_path / "__consumer_offsets-7", one(0, a, commit(5)), one(1, b, commit(6)), one(2, a, commit(9, "note")), one(3, b, None))
    log(tmp_path / "__consumer_offsets-8", one(0, commit_key("h", "gone", 0), commit(3)), one(1, c, commit(1)))
    log(tmp_path / "orders-0", batch([Record(i, None, b"x", T) for i in range(12)]))
    found = {(row["group"], row["topic"], row["partition"]): row for row in rows(tmp_path)}
    assert found.keys() == {("g", "orders", 0), ("g", "orders", 2), ("h", "gone", 0)}
    first = found["g", "orders", 0]
    assert (first["committedOffset"], first["logEndOffset"], first["lag"]) == (9, 12, 3)
    assert (first["metadata"], first["leaderEpoch"], first["kind"], first["commitTimestamp"].timestamp()) == ("note", 4, None, T / 1000)
    assert found["h", "gone", 0]["lag"] is None


def test_commits_of_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    def part(offset: int, number: int, producer: int) -> bytes:
        record = Record(offset, commit_key("g", "orders", number), commit(100 + number), T)
        return batch([record], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0)

    entries = [one(i, commit_key("g", "orders", i), commit(i)) for i in range(3)]
    entries += [part(3, 0, 7), part(4, 1, 8), part(5, 2, 9)]
    entries += [control_batch(6, 1, producer_id=7, producer_epoch=0), control_batch(7, 0, producer_id=8, producer_epoch=0)]
    log(tmp_path / "__consumer_offsets-0", *entries)
    assert [row["committedOffset"] for row in rows(tmp_path)] == [100, 1, 2]


def test_members_and_states_of_classic_groups(tmp_path: Path) -> None:
    key = struct.pack(">h", 2)
    entries = [
        one(0, key + text("live"), classic(5, 1)),
        one(1, key + text("idle"), classic(6, 0)),
        one(2, key + text("gone"), classic(1, 1)),
    ]
    log(tmp_path / "__consumer_offsets-0", *entries, one(3, key + text("gone"), None))
    idle, live = rows(tmp_path)
    assert (idle["group"], idle["state"], idle["members"], idle["topic"]) == ("idle", "Empty", [], None)
    assert (live["state"], live["kind"], live["protocol"], live["generation"]) == ("Stable", "classic", "range", 5)
    (member,) = live["members"]
    assert member == {
        "memberId": "m-1", "instanceId": None, "clientId": "client", "clientHost": "/10.0.0.1",
        "assigned": [{"topic": "orders", "partition": 0}],
    }  # fmt: skip


def test_groups_of_a_real_broker() -> None:
    found = rows(OFFSETS, HERE / "transactional" / "txn-open-0")
    new = [row for row in found if row["kind"] == "consumer"]
    assert {(row["group"], row["state"], row["committedOffset"]) for row in new} == {
        ("new-protocol-0", "Empty", 45), ("new-protocol-1", "Empty", 45), ("new-protocol-0", "Empty", 0), ("new-protocol-1", "Empty", 0)
    }  # fmt: skip
    assert [(row["group"], row["committedOffset"], row["lag"]) for row in found if row["kind"] == "classic"] == [
        ("readers-0", 73, 849), ("readers-1", 78, 844), ("readers-2", 78, 844), ("readers-3", 78, 844)
    ]  # fmt: skip


def test_a_topic_that_was_made_again_has_no_lag(tmp_path: Path) -> None:
    """Commits of format 4 name the topic's id, and so does the folder."""
    copy = log(tmp_path / "txn-open-0", (HERE / "transactional" / "txn-open-0" / f"{0:020}.log").read_bytes())
    assert {row["lag"] for row in rows(OFFSETS, copy) if row["topic"] == "txn-open"} == {119, 114}
    (copy / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert {row["lag"] for row in rows(OFFSETS, copy) if row["topic"] == "txn-open"} == {None}


def test_copies_are_one_log_and_damage_is_told(tmp_path: Path) -> None:
    entries = [one(i, commit_key("g", "orders", 0), commit(i)) for i in range(5)]
    log(tmp_path / "a" / "__consumer_offsets-0", *entries)
    bad = bytearray(entries[4])
    bad[-1] ^= 1
    log(tmp_path / "b" / "__consumer_offsets-0", *entries[:4], bytes(bad))
    assert [row["committedOffset"] for row in rows(tmp_path / "a", tmp_path / "b")] == [4]
    with pytest.raises(CorruptBatchError):
        rows(tmp_path / "b")
    skipped = kolumn.Skipped()
    assert [row["committedOffset"] for row in rows(tmp_path / "b", errors="skip", on_damage=skipped)] == [3]
    assert skipped.stretches == 1
    done = CliRunner().invoke(app, ["groups", "--json", str(tmp_path / "b")])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["committedOffset"] == 3


def test_a_source_without_the_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no __consumer_offsets in this source"):
        rows(HERE / "transactional" / "txn-open-0")


def test_open_transactions_of_a_real_broker() -> None:
    logs = [HERE / "transactional" / name for name in ("txn-open-0", "txn-lz4-0")]
    (row,) = (one for one in kolumn.open_transactions([STATE, *logs], now="2026-11-20T19:40").to_pylist() if one["firstOffset"] is not None)
    assert (row["transactionalId"], row["producerId"], row["producerEpoch"], row["firstOffset"]) == ("txn-open-0", 6, 7, 822)
    assert (row["topic"], row["isHanging"], row["coordinatorState"], row["timeoutMs"]) == ("txn-open", False, "Ongoing", 900000)
    assert row["ageMs"] == 380654
    # The logs of the others are not in the source.
    others = {one["topic"] for one in kolumn.open_transactions([STATE, *logs]).to_pylist() if one["firstOffset"] is None}
    assert others == {"txn-zstd", "txn-librdkafka"}


def test_hanging_transactions(tmp_path: Path) -> None:
    def state(offset: int, name: str, producer: int, status: int, partitions: list[int]) -> bytes:
        body = struct.pack(">hqhib", 0, producer, 3, 60_000, status)
        body += (
            struct.pack(">i", 1) + text("orders") + struct.pack(">i", len(partitions)) + b"".join(struct.pack(">i", p) for p in partitions)
        )
        return one(offset, struct.pack(">h", 0) + text(name), body + struct.pack(">qq", T, T - 10))

    def begun(offset: int, producer: int) -> bytes:
        return batch([Record(offset, None, b"x", T)], flags=TRANSACTIONAL, producer_id=producer, producer_epoch=3)

    log(tmp_path / "orders-0", begun(0, 1), begun(1, 2), begun(2, 3))
    unknown = kolumn.open_transactions(tmp_path, now=T + 5).to_pylist()
    assert [(row["producerId"], row["isHanging"], row["ageMs"]) for row in unknown] == [(1, None, 5), (2, None, 5), (3, None, 5)]
    log(
        tmp_path / "__transaction_state-0",
        state(0, "a", 1, 1, [0]),
        state(1, "b", 2, 1, [0]),
        state(2, "b", 2, 4, []),
        state(3, "c", 4, 1, [1]),
    )
    found = {row["producerId"]: row for row in kolumn.open_transactions(tmp_path, now=T + 5).to_pylist()}
    assert {producer: row["isHanging"] for producer, row in found.items()} == {1: False, 2: True, 3: True, 4: False}
    assert {producer: row["coordinatorState"] for producer, row in found.items()} == {
        1: "Ongoing", 2: "CompleteCommit", 3: None, 4: "Ongoing"
    }  # fmt: skip
    assert (found[4]["firstOffset"], found[4]["partition"], found[4]["ageMs"]) == (None, 1, 15)
    done = CliRunner().invoke(app, ["transactions", "--now", str(T + 5), str(tmp_path)])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["producerId", "1", "2", "3", "4"]


@pytest.mark.parametrize("place", ["orders-0", "__consumer_offsets-0", f"orders-{uuid_of('orders')}/0"])
def test_manifests_that_are_none_hide_nothing(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    entries = [one(i, commit_key("g", "orders", 0), commit(i)) for i in range(3)]
    log(tmp_path / "__consumer_offsets-0", *entries)
    log(tmp_path / "orders-0", *(batch([Record(i, None, b"x", T)]) for i in range(7)))
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / f"{99:020d}-{uuid_of('bad')}.rsm-manifest").write_text("{")
    for errors in ("raise", "skip"):
        (row,) = rows(tmp_path, errors=errors)
        assert (row["committedOffset"], row["logEndOffset"]) == (2, 7)
    assert ("a manifest of a tier" in caplog.text) == ("/" in place)
    assert kolumn.open_transactions(tmp_path, errors="skip").num_rows == 0
