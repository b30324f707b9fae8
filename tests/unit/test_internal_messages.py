"""Kafka's definitions of messages are read as the generated Java classes read them; bytes that lie about their sizes cost nothing."""

import random
import struct
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

import kolumn
from kit.corpus import HERE
from kit.encoder import CONTROL, TRANSACTIONAL, Record, batch, control_batch
from kit.outcome import raises
from kolumn.core.errors import ArgumentError
from kolumn.values.internal.messages import MalformedMessageError, MessageBytes, arrow_type, decode_key, decode_value, definitions, reader

MODULES = ("group-coordinator", "transaction-coordinator", "share-coordinator", "metadata", "storage", "clients")
UUID = bytes(range(16))
PARTITION_CHANGE = (
    bytes([1, 5, 2])  # frame, PartitionChangeRecord, version 2
    + bytes([0, 0, 0, 9])  # partitionId
    + UUID  # topicId
    + bytes([3])  # three tagged fields
    + bytes([0, 5, 2, 0, 0, 0, 7])  # isr = [7]
    + bytes([1, 4, 255, 255, 255, 255])  # leader = -1
    + bytes([99, 2, 1, 2])  # of a newer broker
)
FIXED = PARTITION_CHANGE[:23]
"""Without the tagged fields."""
REMOTE = {
    "RemoteLogSegmentMetadataRecord": (
        "010000076f7264657273000000000000000100000000000000020000000300000000000000000300000000000000040000000000000000"
        "0a0000000000000063000000010000018bcfe568000000018bcfe568010300000000000000000000000a00000000020000000000000032"
        "00000010000301020001000101"
    ),
    "RemoteLogSegmentMetadataUpdateRecord": (
        "010100076f72646572730000000000000001000000000000000200000003000000000000000003000000000000000400000000010000018bcfe56802000100"
    ),
    "RemotePartitionDeleteMetadataRecord": "010200076f7264657273000000000000000100000000000000020000000300000000020000018bcfe568030000",
}
"""Bytes that RemoteLogMetadataSerde of Kafka 4.3.0 made, as hexadecimal digits."""


def test_every_definition_has_a_type_and_a_reader() -> None:
    found = [one for module in MODULES for one in definitions(module).values()]
    assert len(found) > 80
    for one in found:
        assert pa.types.is_struct(arrow_type(one))
        for version in one.versions:
            needs = any(version in each.versions and version not in each.tagged for each in one.fields) or version in one.flexible
            with pytest.raises(MalformedMessageError) if needs else nullcontext():
                assert reader(one, version)(MessageBytes(b"")) == {}


def test_tagged_fields_have_values_or_defaults() -> None:
    found = decode_value("__cluster_metadata", False, None, PARTITION_CHANGE)
    assert (found.type, found.version) == ("PartitionChangeRecord", 2)
    assert found.fields == {
        "partitionId": 9, "topicId": "AAECAwQFBgcICQoLDA0ODw", "isr": [7], "leader": -1, "replicas": None, "removingReplicas": None,
        "addingReplicas": None, "leaderRecoveryState": -1, "directories": None, "eligibleLeaderReplicas": None, "lastKnownElr": None,
    }  # fmt: skip


def test_metadata_of_remote_segments() -> None:
    found = {name: decode_value("__remote_log_metadata", False, None, bytes.fromhex(text)) for name, text in REMOTE.items()}
    assert {name: (one.type, one.version) for name, one in found.items()} == {name: (name, 0) for name in REMOTE}
    begun, done, deleted = (dict(one.fields or {}) for one in found.values())
    topic = {"name": "orders", "id": "AAAAAAAAAAEAAAAAAAAAAg", "partition": 3}
    assert begun.pop("segmentLeaderEpochs") == [{"leaderEpoch": 0, "offset": 10}, {"leaderEpoch": 2, "offset": 50}]
    assert begun == {
        "remoteLogSegmentId": {"topicIdPartition": topic, "id": "AAAAAAAAAAMAAAAAAAAABA"}, "startOffset": 10, "endOffset": 99,
        "brokerId": 1, "maxTimestampMs": 1_700_000_000_000, "eventTimestampMs": 1_700_000_000_001, "segmentSizeInBytes": 4096,
        "customMetadata": b"\1\2", "remoteLogSegmentState": 0, "txnIndexEmpty": True,
    }  # fmt: skip
    assert (done["remoteLogSegmentState"], done["customMetadata"]) == (1, None)
    assert (deleted["topicIdPartition"], deleted["remotePartitionDeleteState"], deleted["brokerId"]) == (topic, 0, 2)


def test_fields_of_other_versions_are_absent() -> None:
    key = b"\0\1" + b"\0\1g\0\1t" + struct.pack(">i", 3)
    body = struct.pack(">q", 42) + b"\0\0" + struct.pack(">q", 17)
    assert decode_key("__consumer_offsets", False, key).fields == {"group": "g", "topic": "t", "partition": 3}
    assert decode_value("__consumer_offsets", False, key, b"\0\0" + body).fields == {"offset": 42, "metadata": "", "commitTimestamp": 17}
    third = decode_value("__consumer_offsets", False, key, b"\0\3" + body[:8] + struct.pack(">i", 5) + body[8:])
    assert third.fields == {"offset": 42, "leaderEpoch": 5, "metadata": "", "commitTimestamp": 17}


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("__consumer_offsets", b"\0\1\0\1g\0\1t\0\0\0\3", b"\0\x63" + bytes(30)), ("__consumer_offsets", b"\x01\0\0\0", b"\0\0\0\0"),
        ("__cluster_metadata", None, b"\1\x7f\0\0"), ("__cluster_metadata", None, b"\2\5\2" + PARTITION_CHANGE[3:]),
        ("__cluster_metadata", None, PARTITION_CHANGE + b"\0"), ("__cluster_metadata", None, b"\1\5\xff\xff\xff\xff\x0f"),
    ],
    ids=["version", "message", "number", "frame", "garbage", "huge version"],
)  # fmt: skip
def test_what_is_not_known_is_kept(topic: str, key: bytes | None, value: bytes, tmp_path: Path) -> None:
    (folder := tmp_path / f"{topic}-0").mkdir()
    (folder / f"{0:020}.log").write_bytes(batch([Record(0, key, value, 5), Record(1, key, None, 5)]))
    one, tombstone = kolumn.read(folder, decode="internal").to_pylist()
    assert (one["valueValid"], one["value"]["bytes"], tombstone["value"]) == (False, value, None)
    assert [name for name, found in one["value"].items() if found is not None and name not in ("type", "version")] == ["bytes"]


def test_counts_are_bounded() -> None:
    """Huge ones cost nothing; elements that each have as many bytes as they need may be too many."""
    huge = b"\xff\xff\xff\xff\x0f"
    assert decode_value("__cluster_metadata", False, None, FIXED + b"\0").is_known
    tracemalloc.start()
    for rest in (huge, b"\1\0" + huge, huge + bytes(100), b"\1\0\6" + huge + b"\0"):
        assert not decode_value("__cluster_metadata", False, None, FIXED + rest).is_known
    members = b"\0\3\0\0" + struct.pack(">i", 1) + b"\xff\xff\xff\xff" + struct.pack(">qi", 0, 2**31 - 1)
    assert not decode_value("__consumer_offsets", False, b"\0\2\0\1g", members).is_known
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()

    def assigned(partitions: int) -> bytes:
        head = struct.pack(">hi", 3, 1) + b"\0\1t" + struct.pack(">i", partitions)
        return head + bytes(4 * partitions) + struct.pack(">i", -1)

    message = definitions("clients")["ConsumerProtocolAssignment"]
    assert len(reader(message, 3)(MessageBytes(assigned(1000), 2))["assignedPartitions"][0]["partitions"]) == 1000
    raises(MalformedMessageError, "more than 1048576 elements", reader(message, 3), MessageBytes(assigned(1 << 20), 2))


def mutant(value: bytes, seed: int) -> bytes:
    """A value with some bytes changed."""
    rng, changed = random.Random(seed), bytearray(value)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 127, 128, 254, 255, rng.randrange(256)))
    return bytes(changed)


@pytest.mark.parametrize("case", ["__consumer_offsets-0", "__transaction_state-0", "__cluster_metadata-0"])
def test_damaged_messages_are_values_or_bytes(case: str) -> None:
    """Messages that are cut anywhere, or changed: none is decoded from fewer bytes, and nothing but values comes out."""
    topic = case.removesuffix("-0")
    rows = kolumn.read(HERE / "internal" / case, columns=["key", "value"]).to_pylist()
    seen: dict[str, tuple[bytes | None, bytes]] = {}
    for row in rows:
        if row["value"] is not None:
            seen.setdefault(str(decode_value(topic, False, row["key"], row["value"]).type), (row["key"], row["value"]))
    assert seen
    for key, value in seen.values():
        assert not any(decode_value(topic, False, key, value[:size]).is_known for size in range(len(value)))
        for seed in range(300):
            found = decode_value(topic, False, key, mutant(value, seed))
            if found.is_known and found.message is not None and found.message.fields:
                pa.array([found.fields], arrow_type(found.message))


def test_control_records_of_any_topic_and_what_makes_no_sense(tmp_path: Path) -> None:
    (folder := tmp_path / "orders-0").mkdir()
    odd = batch([Record(3, b"\0\0\0\x40", b"\0\0", 5)], flags=CONTROL | TRANSACTIONAL, producer_id=7, producer_epoch=3)
    log = batch([Record(0, b"k", b"v", 5)]) + control_batch(1, 1) + control_batch(2, 0) + odd
    (folder / f"{0:020}.log").write_bytes(log)
    table = kolumn.read(folder, decode="internal", include_control=True)
    plain, commit, abort, unknown = table.to_pylist()
    assert (plain["key"]["bytes"], plain["value"]["bytes"], plain["valueValid"]) == (b"k", b"v", True)
    assert (commit["key"], commit["value"]["EndTxnMarker"]) == ({"type": "COMMIT", "version": 0, "bytes": None}, {"coordinatorEpoch": 11})
    assert (abort["key"]["type"], unknown["keyValid"], unknown["value"]["bytes"]) == ("ABORT", False, b"\0\0")
    raises(ArgumentError, "expected one of __consumer_offsets", kolumn.read, folder, decode="internal")
    raises(ArgumentError, "did you mean 'internal'", kolumn.read, "x", decode="intern")
    raises(ArgumentError, "leave out value_format", kolumn.read, "x", decode="internal", value_format="json")


def test_bytes_after_a_message_are_those_of_another_one() -> None:
    """Previews wrote other fields in the same versions: target assignments of members in Kafka 3.7, changes of leaders in 2.8."""
    key = bytes.fromhex("0007") + b"\0\1g\0\1m"
    value = bytes.fromhex("0000") + b"\2" + UUID + b"\2\0\0\0\5\0" + b"\0"
    assert decode_value("__consumer_offsets", False, key, value).is_known
    found = decode_value("__consumer_offsets", False, key, value + b"\0\0\1\0")
    assert (found.type, found.version, found.is_known) == ("ConsumerGroupTargetAssignmentMember", 0, False)
    assert decode_key("__consumer_offsets", False, key).is_known
    assert not decode_key("__consumer_offsets", False, key + b"\0").is_known
    leader = bytes.fromhex("00000001" + "02" + "00000001" + "00" + "02" + "00000001" + "00" + "00")
    assert not decode_value("__cluster_metadata", True, bytes.fromhex("00000002"), leader).is_known
