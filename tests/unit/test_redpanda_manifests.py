"""Manifests of Redpanda's buckets, and names of its files: both kinds are read, and a changed byte is an error or another value."""

import json
import random
import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit import streams
from kit.fuzz import examples
from kit.outcome import raises
from kit.redpanda_manifests import NOT_SET, Bucket, Head, Meta, as_binary, as_json, tx_file
from kolumn.core.errors import KolumnError
from kolumn.formats.codecs.lz4 import xxh32
from kolumn.source import redpanda
from kolumn.source.redpanda_manifest import Manifest, Stored, parse


def stored(meta: Meta) -> Stored:
    def known(value: int) -> int | None:
        return None if value == NOT_SET else value

    terms = meta.segment_term, known(meta.archiver_term), known(meta.ntp_revision)
    deltas = known(meta.delta_offset), known(meta.delta_offset_end)
    return Stored(meta.base_offset, meta.committed_offset, meta.size_bytes, *terms, *deltas, meta.sname_format)


@st.composite
def logs(draw: st.DrawFn) -> list[Meta]:
    rng = draw(st.randoms(use_true_random=False))
    count, offset, delta = draw(st.integers(0, 200)), draw(st.sampled_from([0, 5, 2**40, 2**61])), 0
    metas = []
    wide = draw(st.booleans())
    for _ in range(count):
        last = offset + rng.randrange(1 << rng.randrange(1, 50 if wide else 20))
        end = delta + rng.randrange(min(3, last + 1 - delta) + 1)
        metas.append(
            Meta(
                offset, last, rng.randrange(1 << rng.randrange(1, 49)), rng.randrange(4), rng.choice((1, 2, NOT_SET)),
                rng.choice((18, 18, 19, NOT_SET)), min(delta, offset), end, rng.choice((1, 2, 3)), rng.randrange(2),
                rng.choice((-1, 0, 1700000000000 + rng.randrange(10**9))), rng.choice((-1, 2**63 - 1, 5)), rng.randrange(1 << 64) - 2**63,
            )
        )  # fmt: skip
        offset, delta = last + 1 + rng.choice((0, 0, 7)), end
    return metas


@settings(max_examples=examples(60), deadline=None)
@given(metas=logs(), frame=st.sampled_from([16, 64, 1024]), replaced=st.integers(0, 3), hints=st.integers(0, 2), spilled=st.booleans())
def test_both_kinds_of_manifests_are_read(metas: list[Meta], frame: int, replaced: int, hints: int, spilled: bool) -> None:
    head = Head(last_offset=metas[-1].committed_offset if metas else 0, start_offset=metas[0].base_offset if metas else NOT_SET)
    older = metas[:7] if spilled else None
    found = parse("m", as_binary(head, metas, replaced, older, frame, hints))
    expected = [stored(meta) for meta in metas]
    assert found.segments == expected
    assert found.spilled == (None if older is None else [(meta.base_offset, meta.committed_offset) for meta in older])
    assert (found.namespace, found.topic, found.partition, found.revision) == ("kafka", "t", 0, 18)
    assert found.start == (metas[0].base_offset if metas else 0)
    assert found.log_bytes == sum(meta.size_bytes for meta in metas)
    by_name = parse("m", as_json(head, metas))
    assert by_name.segments == sorted(expected)
    assert (by_name.topic, by_name.last_offset, by_name.start) == ("t", head.last_offset, found.start)


def test_members_of_json_that_have_their_defaults() -> None:
    """The oldest manifests have few fields, and no term of the archiver."""
    segments = {"10-3-v1.log": {"size_bytes": 7, "base_offset": 10, "committed_offset": 19}}
    found = parse(
        "m", json.dumps({"version": 1, "namespace": "kafka", "topic": "t", "partition": 4, "revision": 2, "segments": segments}).encode()
    )
    assert found.segments == [Stored(10, 19, 7, 3, None, None, None, None, 1)]
    assert (found.segments[0].name, found.segments[0].suffix) == ("10-3-v1.log", "")
    bare = {"version": 1, "namespace": "kafka", "topic": "t", "partition": 4, "revision": 2}
    assert parse("m", json.dumps(bare).encode()).segments == []


METAS = [Meta(i * 10, i * 10 + 9, 1000 + i * i, 1 + i // 10, delta_offset=i, delta_offset_end=i + 1) for i in range(20)]
HEAD = Head(last_offset=399, start_offset=0, archive_start_offset=0)
HOLLOW = as_binary(HEAD, METAS[:1], 1)
BINARY, JSON = as_binary(HEAD, METAS, 2, METAS[:3], hints=1), as_json(HEAD, METAS[:5])


def outcome(data: bytes) -> Manifest | None:
    try:
        return parse("m", data)
    except KolumnError:
        return None


@pytest.mark.parametrize("data", [BINARY, JSON], ids=["binary", "json"])
def test_a_manifest_that_was_cut_is_an_error(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(KolumnError, match=r"^m: malformed manifest"):
            parse("m", data[:end])


@pytest.mark.parametrize("data", [BINARY, JSON], ids=["binary", "json"])
def test_changed_bytes_are_errors_or_other_values(data: bytes) -> None:
    rng = random.Random(41)
    for _ in range(examples(1500)):
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(mutant))
            how = rng.randrange(3)
            if how == 0:
                mutant[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                mutant[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF, len(data))))
            else:
                mutant[at : at + 8] = struct.pack("<q", rng.choice((0, -1, 2**63 - 1, NOT_SET)))
        found = outcome(bytes(mutant))
        assert found is None or all(one.base <= one.last and one.size >= 0 for one in found.segments)


def test_lengths_are_compared_with_the_bytes_that_are_there() -> None:
    """Counts of any size cost no memory."""
    tracemalloc.start()
    for at in range(len(HOLLOW)):
        for number in (0xFFFFFFFF, 0x00FFFFFF):
            outcome(HOLLOW[:at] + struct.pack("<I", number) + HOLLOW[at + 4 :])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"committed_offset": 3, "base_offset": 5}, "committed_offset"),
        ({"size_bytes": 1 << 60}, "size_bytes"),
        ({"segment_term": -1}, "segment_term"),
        ({"sname_format": 9}, "sname_format"),
        ({"delta_offset": 12, "base_offset": 5, "committed_offset": 30}, "delta_offset"),
        ({"archiver_term": -2}, "archiver_term"),
    ],
)
def test_values_that_no_log_has(changed: dict[str, Any], words: str) -> None:
    meta = replace(Meta(0, 9, 100), **changed)
    raises(KolumnError, words, parse, "m", as_binary(HEAD, [meta]))
    if "segment_term" not in changed:
        raises(KolumnError, words, parse, "m", as_json(HEAD, [meta]))


@pytest.mark.parametrize(
    "changed",
    [{"start_offset": 201}, {"archive_start_offset": 201}, {"start_offset": -3}, {"start_kafka_offset": -1}],
)
def test_a_log_that_begins_after_its_end(changed: dict[str, int]) -> None:
    """Nothing of it would be read."""
    for write in (as_binary, as_json):
        raises(KolumnError, next(iter(changed)), parse, "m", write(replace(HEAD, **changed), METAS))
        same = {name: value - 1 for name, value in changed.items() if value > 0}
        assert parse("m", write(replace(HEAD, **same), METAS)).start in (0, 200)


@pytest.mark.parametrize("text", [b"{}", b"{", b"[]", b"", b'{"namespace":"kafka","topic":"a/b","partition":0,"revision":1}', b"\0" * 50])
def test_what_is_no_manifest(text: bytes) -> None:
    raises(KolumnError, "malformed manifest", parse, "m", text)


def test_the_hash_of_keys() -> None:
    """Keys of objects that Redpanda's own documents and tests show."""
    for path, digits in (
        ("kafka/test/0_24/194-257-1055502-1-v1.log", "002fef90"),
        ("test-ns/test-topic/42_1/10-1-v1.log", "9b367cb7"),
        ("test-ns/test-topic/42_1/20-29-2048-1-v1.log", "96c6b7a9"),
        ("test-ns/test-topic/42_1/30-1-v1.log", "df1262f5"),
        ("test-ns/test-topic/42_1/40-42-4096-2-v1.log", "e44e8104"),
    ):
        assert redpanda.hash_of(path) == digits
    for size in range(70):
        data = bytes((i * 37 + size) % 256 for i in range(size))
        assert xxh32(data, 0, len(data)) == streams.xxh32(data)


def test_names_of_segments() -> None:
    named = redpanda.named
    node, moved = named("12-3-v1.log"), named("12-3-v1.log.4")
    assert node is not None
    assert moved is not None
    assert (node.base, node.raft.term, node.copy_id) == (12, 3, None)
    assert (moved.base, moved.raft.term, moved.copy_id) == (12, 3, "12-3-v1.log.4")
    stored = named("3676-7429-77-1-v1.log.1")
    assert stored is not None
    assert (stored.base, stored.raft.last, stored.raft.term, stored.copy_id) == (3676, 7429, 1, "3676-7429-77-1-v1.log.1")
    for name in (
        "0-1-v1.base_index",
        "0-1-v1.log.1.tx",
        "0-1-v2.log",
        "9-3-77-1-v1.log",
        "00000000000000000000.log",
        "0-1-v1.log.",
        "a-1-v1.log",
    ):
        assert named(name) is None
    assert redpanda.partition_in("/d/kafka/my-topic-1/3_18") == ("my-topic-1", 3)
    assert redpanda.partition_in("s3://b/x/kafka/t/3_18") == ("t", 3)
    assert redpanda.partition_in("/d/t-0") == (None, None)


def test_lists_of_aborted_transactions() -> None:
    assert redpanda.aborted_ranges(tx_file([(7, 3, 9), (5, 1, 4), (7, 3, 9)])) == [(5, 1, 4), (7, 3, 9)]
    for raw in (None, b"", b"{}", b"[]", tx_file([(7, 9, 3)]), tx_file([(7, -1, 3)]), b'{"ranges":[{"pid.id":1,"first":"0","last":2}]}'):
        assert redpanda.aborted_ranges(raw) is None


def test_the_kit_names_objects_as_redpanda_does() -> None:
    head, bucket = Head("test-topic", 42, 0, "test-ns"), Bucket
    made = bucket(root=None)  # type: ignore[arg-type]
    assert made.manifest_key(head) == "20000000/meta/test-ns/test-topic/42_0/manifest.bin"
    meta = Meta(20, 29, 2048, archiver_term=2, ntp_revision=1)
    assert made.key(head, meta) == "96c6b7a9/test-ns/test-topic/42_1/20-29-2048-1-v1.log.2"
