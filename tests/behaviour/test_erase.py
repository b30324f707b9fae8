"""Erasure: what is meant is gone from every byte, everything else is as it was, and a slow plain reference rewrites the same batches."""

import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kolumn
from kit import oracle, tiers
from kit.asked import offsets, put
from kit.corpus import Case, cases
from kit.draft_segments import FORMATS, Maker, Row
from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, control_batch, message, with_crc, wrapper
from kit.fuzz import FIRST, TURN, none_fails
from kit.inflate import inflate
from kit.outcome import raises
from kit.replicas import flip, write_log
from kolumn.writers.rewriting import erasure_proof, needles

TIME = 1_700_000_000_000
HEADER = struct.Struct(">qiibIhiqqqhii")
SHIPPED = [case for case in cases() if not case.directory.name.startswith("__cluster_metadata") and case.expected().num_rows]


def files(folder: Path, suffix: str = "") -> dict[str, bytes]:
    """The files below a folder by their names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob(f"*{suffix}")) if path.is_file()}


def entries(data: bytes) -> list[tuple[bytes, oracle.Entry]]:
    """Bytes and rows of each entry, as the independent reader finds them."""
    return [(data[one.position : one.position + one.size], one) for one in oracle.read(data).entries]


def kept_of(entry: bytes, found: oracle.Entry, meant: Callable[[oracle.Row], bool], stays: Callable[[int, int, int], bool]) -> bytes | None:
    """An entry without the records that are meant, by the independent encoder; None if it goes."""
    rows = [row for row in found.rows if row.isControl or not meant(row)]
    if len(rows) == len(found.rows):
        return entry
    left = [
        Record(row.offset, row.key, row.value, row.timestampMs, tuple((name.encode(), value) for name, value in row.headers))
        for row in rows
    ]
    if entry[16] == 2:
        base, _, epoch, _, _, attributes, delta, base_time, highest, producer, producer_epoch, sequence, _ = HEADER.unpack_from(entry)
        if not left and not stays(attributes, producer, base + delta):
            return None
        has_horizon, append = attributes & 0x40, attributes & LOG_APPEND_TIME
        return batch(
            left, codec=attributes & 7, flags=attributes & (~0x47 if not left else ~7), base_offset=base, last_offset=base + delta,
            base_timestamp=base_time if has_horizon and left else None, max_timestamp=highest if append or not left else None,
            producer_id=producer, producer_epoch=producer_epoch, base_sequence=sequence, leader_epoch=epoch,
        )  # fmt: skip
    codec, append = entry[17] & 7, entry[17] & LOG_APPEND_TIME
    return wrapper(entry[16], left, codec, flags=append, timestamp=left[0].timestamp if append else None) if left and codec else None


def what(entry: bytes, found: oracle.Entry) -> tuple[Any, ...]:
    """All that an entry says but how it is compressed, and where it is."""
    rows = [row._replace(position=0) for row in found.rows]
    if entry[16] == 2:
        offset, _, epoch, magic, _, *rest = HEADER.unpack_from(entry)
        return offset, epoch, magic, *rest, rows
    return entry[:8], entry[16:18], rows


def compare(source: Path, target: Path, meant: Callable[[oracle.Row], bool]) -> int:
    """Compare a partition's folder with what was erased of it; returns the number of erased records."""
    logs = sorted(source.glob("*.log"))
    before = {log.name: entries(log.read_bytes()) for log in logs}
    last, opened = dict[int, tuple[int, int]](), dict[int, int]()
    for found in before.values():
        for entry, _ in found:
            if entry[16] == 2:
                base, _, _, _, _, attributes, delta, _, _, producer, epoch, _, _ = HEADER.unpack_from(entry)
                # A marker does not take the place of the last data of its epoch (``ProducerAppendInfo.appendEndTxnMarker``).
                if not attributes & CONTROL or last.get(producer, (epoch, 0))[0] != epoch:
                    last[producer] = epoch, base + delta
                if attributes & CONTROL:
                    opened.pop(producer, None)
                elif attributes & TRANSACTIONAL:
                    opened.setdefault(producer, base)
    last.pop(-1, None)
    stable = min(opened.values(), default=2**63)

    def stays(attributes: int, producer: int, end: int) -> bool:
        return last.get(producer, (0, -1))[1] == end or end in ends or (bool(attributes & TRANSACTIONAL) and end >= stable)

    ends = {
        HEADER.unpack_from(found[-1][0])[0] + HEADER.unpack_from(found[-1][0])[6]
        for found in before.values()
        if found and found[-1][0][16] == 2
    }
    gone = 0
    for name, found in before.items():
        gone += sum(meant(row) and not row.isControl for _, one in found for row in one.rows)
        expected = [made for entry, one in found if (made := kept_of(entry, one, meant, stays))]
        after = entries((target / name).read_bytes())
        assert len(after) == len(expected), name
        untouched = {entry for entry, _ in found}
        for (entry, one), made in zip(after, expected, strict=True):
            assert entry == made if made in untouched else what(entry, one) == what(made, oracle.read_entry(made, 0)), name
    return gone


def proved(done: kolumn.Erasure) -> list[bool]:
    """Whether each check passed."""
    assert done.verification is not None
    return done.verification["ok"].to_pylist()


def gone_from(folder: Path, secrets: set[bytes]) -> None:
    """None of some bytes is in a file, in a decompressed payload, or in a name."""
    for name, data in files(folder).items():
        for secret in secrets:
            assert secret not in data
            assert secret not in name.encode()
        if name.endswith(".log"):
            for entry, _ in entries(data):
                codec = entry[21 + 1] & 7 if entry[16] == 2 else entry[17] & 7
                if codec:
                    at = 61 if entry[16] == 2 else _value_at(entry)
                    plain = inflate(codec, entry[at:], entry[16]) if len(entry) > at else b""
                    assert not any(secret in plain for secret in secrets)


def _value_at(entry: bytes) -> int:
    at = 18 + 8 * entry[16]
    return at + 4 + max(struct.unpack_from(">i", entry, at)[0], 0) + 4


@pytest.mark.parametrize("case", SHIPPED, ids=str)
@pytest.mark.sample
def test_one_in_a_hundred_keys_of_a_real_log(tmp_path: Path, case: Case) -> None:
    source = case.directory
    rng = random.Random(FIRST)
    known = case.expected()
    keys = sorted(
        {key for key, control in zip(known["key"].to_pylist(), known["is_control"].to_pylist(), strict=True) if key and not control}
    )
    if not keys:
        pytest.skip("its records have no keys")
    if len(keys) > 1:
        # What takes the place of the last message of an old format has a test of its own.
        keys = [key for key in keys if key != known["key"][-1].as_py()]
    chosen = set(rng.sample(keys, max(1, len(keys) // 100)))
    done = kolumn.erase(source, tmp_path, keys=chosen, verify=True)
    assert done.ok, done.verification.to_pylist()
    out = tmp_path / source.name
    assert done.records == compare(source, out, lambda row: row.key in chosen) > 0
    assert kolumn.verify(out).ok
    others = b"".join(
        (key or b"") + (value or b"") for key, value in zip(*(kolumn.read(out)[name].to_pylist() for name in ("key", "value")), strict=True)
    )
    held = kolumn.read(source)
    secrets = {
        value
        for key, value in zip(held["key"].to_pylist(), held["value"].to_pylist(), strict=True)
        if key in chosen and value and len(value) >= 16
    }
    gone_from(out, {secret for secret in secrets if secret not in others})
    again = kolumn.erase(out, tmp_path / "again", keys=chosen)
    assert again.records == 0
    assert files(tmp_path / "again" / source.name) == files(out)
    if "compacted" not in str(case):
        kolumn.compact(out, tmp_path / "compacted", include_active=True)


def _records(count: int, first: int = 0) -> list[Record]:
    headers = ((b"tenant", b"t-%d" % (first % 3)),)
    return [
        Record(first + i, b"person-%04d" % ((first + i) % 7), b"a secret of %08d" % (first + i), TIME + i, headers) for i in range(count)
    ]


LAYOUTS = [(2, codec) for codec in range(5)] + [(magic, codec) for magic in (0, 1) for codec in range(4)]


@pytest.mark.parametrize(("magic", "codec"), LAYOUTS)
@pytest.mark.parametrize("append", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_every_codec_and_format(tmp_path: Path, magic: int, codec: int, append: bool) -> None:
    def entry(first: int) -> bytes:
        flags, records = LOG_APPEND_TIME * append * (magic > 0), _records(5, first)
        if magic == 2:
            return batch(records, codec=codec, flags=flags, producer_id=9, producer_epoch=1, base_sequence=first, leader_epoch=3)
        plain = [Record(r.offset, r.key, r.value, r.timestamp if magic else -1) for r in records]
        return wrapper(magic, plain, codec, flags=flags) if codec else b"".join(message(magic, record, flags) for record in plain)

    source = write_log(tmp_path / "a", (0, [entry(5 * i) for i in range(4)]), (20, [entry(20 + 5 * i) for i in range(4)]))
    done = kolumn.erase(source, tmp_path / "b", keys="person-0003", verify=True)
    assert done.ok
    assert compare(source, tmp_path / "b" / "t-0", lambda row: row.key == b"person-0003") == done.records == 6
    gone_from(tmp_path / "b", {b"person-0003", b"a secret of 00000003", b"a secret of 00000038"})
    assert done.erased.to_pylist()[0] == {"topic": "t", "partition": 0, "firstOffset": 3, "lastOffset": 3, "records": 1}
    assert kolumn.verify(tmp_path / "b").ok


def test_empty_batches_stay_where_the_log_needs_them(tmp_path: Path) -> None:
    def of(producer: int, offset: int, key: bytes = b"x", flags: int = 0) -> bytes:
        known = {"producer_id": producer, "producer_epoch": 0, "base_sequence": offset} if producer >= 0 else {}
        return batch([Record(offset, key, b"v", TIME)], flags=flags, **known)

    first = [of(7, 0), of(7, 1), of(-1, 2), of(-1, 3, b"y"), of(-1, 4)]
    opened = [
        of(8, 10, flags=TRANSACTIONAL),
        of(8, 11, b"y", TRANSACTIONAL),
        of(9, 12, flags=TRANSACTIONAL),
        control_batch(13, 0, producer_id=9),
    ]
    source = write_log(tmp_path / "a", (0, first), (10, opened), (20, [of(-1, 20), of(-1, 21)]))
    done = kolumn.erase(source, tmp_path / "b", keys="x", verify=True)
    rows = kolumn.batches(tmp_path / "b").select(["baseOffset", "count"]).to_pylist()
    # 1 and 12 are the last batches of producers, 4 and 21 of segments; 10 is the first of an open transaction.
    assert [tuple(row.values()) for row in rows] == [(1, 0), (3, 1), (4, 0), (10, 0), (11, 1), (12, 0), (13, 1), (21, 0)]
    assert (done.ok, done.records, done.partitions["dropped"].to_pylist(), done.partitions["emptied"].to_pylist()) == (True, 8, [3], [5])
    again = kolumn.erase(tmp_path / "b", tmp_path / "c", keys="x")
    assert files(tmp_path / "c") == files(tmp_path / "b")
    assert again.records == 0


def test_records_of_aborted_and_open_transactions_go_and_markers_stay(tmp_path: Path) -> None:
    for name in ("txn-lz4-0", "txn-open-0"):
        source = next(case.directory for case in SHIPPED if case.directory.name == name)
        keys = {key for key in kolumn.read(source)["key"].to_pylist() if key is not None}
        done = kolumn.erase(source, tmp_path / name, keys=keys, verify=True)
        left = kolumn.read(tmp_path / name, columns=["offset", "key", "isControl"], include_control=True)
        assert done.ok
        assert set(left.filter(left["isControl"])["offset"].to_pylist()) == set(_markers(source))
        assert not keys & set(left.filter(pc.invert(left["isControl"]))["key"].to_pylist())
        last = [kolumn.batches(folder)["lastOffset"].to_pylist()[-1] for folder in (source, tmp_path / name)]
        assert last[0] == last[1]


def _markers(source: Path) -> list[int]:
    table = kolumn.read(source, columns=["offset", "isControl"], include_control=True)
    return table.filter(table["isControl"])["offset"].to_pylist()


@pytest.mark.parametrize("magic", [0, 1])
def test_the_next_offset_of_old_formats_stays(tmp_path: Path, magic: int) -> None:
    source = write_log(tmp_path / "a", (0, [message(magic, record) for record in _records(8)]))
    kolumn.erase(source, tmp_path / "b", keys=["person-0000"], verify=True)
    assert offsets(tmp_path / "b") == list(range(1, 7))
    end = {"baseOffset": 7, "lastOffset": 7, "magic": 2, "count": 0, "size": 61}
    assert kolumn.batches(tmp_path / "b").select(list(end)).to_pylist()[-1] == end
    kolumn.erase(tmp_path / "b", tmp_path / "c", keys="person-0001")
    assert sorted(files(tmp_path / "b")) == sorted(files(tmp_path / "c"))
    everything = kolumn.erase(source, tmp_path / "d", keys=[b"person-%04d" % i for i in range(7)], verify=True)
    assert (everything.ok, everything.records) == (True, 8)
    assert kolumn.batches(tmp_path / "d").select(list(end)).to_pylist() == [end]


def test_side_files_and_what_is_not_copied(tmp_path: Path) -> None:
    source = write_log(tmp_path / "a", (0, [batch(_records(5))]), (5, [batch(_records(5, 5)) + batch(_records(3, 10))[:-9]]))
    beside = {"leader-epoch-checkpoint": b"0\n1\n0 0\n", "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
              f"{5:020}.snapshot": b"\0\1", f"{0:020}.txnindex": b"\0" * 34}  # fmt: skip
    for name, data in beside.items():
        (source / name).write_bytes(data)
    (source / f"{0:020}.log.deleted").write_bytes(batch(_records(5)))
    (source / "notes.txt").write_bytes(b"person-0001")
    done = kolumn.erase(source, tmp_path / "b", keys="person-0001", verify=True)
    out = tmp_path / "b" / "t-0"
    assert {name: (out / name).read_bytes() for name in beside} == beside
    assert {path.name for path in out.iterdir()} - set(beside) == {
        f"{base:020}{end}" for base in (0, 5) for end in (".log", ".index", ".timeindex")
    }
    assert [(row["kind"], "remove it" in row["reason"]) for row in done.left_out.to_pylist()] == [
        ("deleted", True),
        ("foreign", True),
        ("tail", False),
    ]
    assert done.ok
    assert kolumn.verify(out).ok


def test_a_swap_file_gets_its_name(tmp_path: Path) -> None:
    source = write_log(tmp_path / "a", (0, [batch(_records(5))]), (5, [batch(_records(5, 5))]))
    for suffix in ("log", "txnindex"):
        (source / f"{0:020}.{suffix}").write_bytes(batch(_records(3)) if suffix == "log" else b"old")
        (source / f"{0:020}.{suffix}.swap").write_bytes(batch(_records(5)) if suffix == "log" else b"new")
    done = kolumn.erase(source, tmp_path / "b", keys="person-0001", verify=True)
    out = tmp_path / "b" / "t-0"
    assert (done.ok, offsets(out)) == (True, [0, 2, 3, 4, 5, 6, 7, 9])
    assert (out / f"{0:020}.txnindex").read_bytes() == b"new"
    assert [(row["kind"], "remove it" in row["reason"]) for row in done.left_out.to_pylist()] == [("replaced", True)]


def test_records_without_a_key_or_a_value(tmp_path: Path) -> None:
    records = [Record(0, None, b"v"), Record(1, b"", b""), Record(2, b"k", None), Record(3, b"a key of some length", None)]
    source = write_log(tmp_path / "a", (0, [batch(records)]))
    for keys, left in (([b""], [0, 2, 3]), (["k"], [0, 1, 3]), (["a key of some length"], [0, 1, 2])):
        target = tmp_path / str(left)
        done = kolumn.erase(source, target, keys=keys, verify=True)
        assert (done.ok, offsets(target)) == (True, left)


def test_headers_and_fields(tmp_path: Path) -> None:
    people = [b'{"id": %d, "name": {"first": "n%d"}}' % (i % 3, i) for i in range(6)] + [b"{broken", None]
    records = [Record(i, None, value, TIME, ((b"tenant", b"t-%d" % (i % 2)),)) for i, value in enumerate(people)]
    source = write_log(tmp_path / "a", (0, [batch(records[:4], codec=4), batch(records[4:])]))
    done = kolumn.erase(source, tmp_path / "b", where="tenant=t-1", verify=True)
    assert (done.ok, offsets(tmp_path / "b")) == (True, [0, 2, 4, 6])
    schema = {"id": pa.int64(), "name": pa.struct([("first", pa.string())])}
    done = kolumn.erase(source, tmp_path / "c", where=["value.id=1", "tenant=t-0"], value_format="json", value_schema=schema, verify=True)
    assert (done.ok, done.undecided, done.records, offsets(tmp_path / "c")) == (False, 1, 1, [0, 1, 2, 3, 5, 6, 7])
    assert all(proved(done))
    raises(kolumn.ArgumentError, "without value_format", kolumn.erase, source, tmp_path / "d", where="value.id=1")
    raises(kolumn.ArgumentError, "name the records", kolumn.erase, source, tmp_path / "d")


def test_headers_whose_names_are_no_text(tmp_path: Path) -> None:
    """Names of headers may say which schema a value is of."""
    headers = (((b"\xff", b"1"),), ((b"a", b"1"), (b"\xc3", None), (b"b", b"2")), ())
    records = [Record(i, b"k", b"\0\0\0\0\1" + bytes([2 * i]), TIME, own) for i, own in enumerate(headers)]
    source = write_log(tmp_path / "a", (0, [batch(records)]))
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    for number, where in enumerate((["value.a=1"], ["value.a=1", "b=2"])):
        done = kolumn.erase(source, tmp_path / str(number), where=where, value_format="avro", value_schema=schema, verify=True)
        assert (done.ok, done.records, offsets(tmp_path / str(number))) == (True, 1, [0, 2])


def test_keys_that_are_none(tmp_path: Path) -> None:
    """Each is a mistake of who made the list, and no error says a key."""
    source = write_log(tmp_path / "a", (0, [batch(_records(5))]))
    wrong: list[tuple[Any, str]] = [([], "keys is empty"), ([None], "is of the type NoneType"), (["hex:zz joe@x.org"], "not hex")]
    for keys, words in wrong:
        raises(kolumn.ArgumentError, words, kolumn.erase, source, tmp_path / "b", keys=keys)
    with pytest.raises(kolumn.ArgumentError) as caught:
        kolumn.erase(source, tmp_path / "b", where={"user": "base64:joe@x.org"})
    assert "joe" not in str(caught.value)


def test_several_copies(tmp_path: Path) -> None:
    copies = [write_log(tmp_path / name, (0, [batch(_records(5))])) for name in "ab"]
    with pytest.raises(kolumn.ArgumentError, match=r"erase one directory at a time, or put its segments into one directory$"):
        kolumn.erase(copies, tmp_path / "c", keys="person-0001")
    raises(kolumn.ArgumentError, "each copy has the records", kolumn.erase, copies, tmp_path / "c", keys="x", replicas="first")


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_batches_that_overlap_and_go_back(tmp_path: Path, errors: Any) -> None:
    """The proof says of a right target that it is right."""
    made = [batch(_records(5, first), base_offset=first, last_offset=last) for first, last in ((0, 12), (5, 9), (10, 14), (2, 20), (3, 7))]
    source = write_log(tmp_path / "a", (0, made))
    done = kolumn.erase(source, tmp_path / "b", keys="person-0001", errors=errors, verify=True)
    assert (done.ok, done.records, all(proved(done))) == (True, 2, True)
    data = files(tmp_path / "b", ".log")[f"t-0/{0:020}.log"]
    assert [entry in data for entry in made] == [False, False, True, True, True]


def test_offsets_too_far_for_one_segment(tmp_path: Path) -> None:
    """What a broker splits when it starts (KAFKA-6264); in a tier a segment is one."""
    far = 2**31 + 50
    aborted = struct.pack(">hqqqq", 0, 7, 3, 8, 8) + struct.pack(">hqqqq", 0, 7, 2**31 + 51, far + 5, far + 5)
    source = write_log(
        tmp_path / "a", (0, [batch(_records(5)), batch(_records(5, 5)), batch(_records(5, far)), batch(_records(5, far + 5))])
    )
    (source / f"{0:020}.txnindex").write_bytes(aborted)
    done = kolumn.erase(source, tmp_path / "b", keys="person-0004", verify=True)
    out = tmp_path / "b" / "t-0"
    assert (done.ok, done.records, done.partitions["segments"].to_pylist()) == (True, 3, [2])
    keys = kolumn.read(source, columns=["offset", "key"]).to_pylist()
    assert offsets(out) == [row["offset"] for row in keys if row["key"] != b"person-0004"]
    assert files(out, ".txnindex") == {
        f"{0:020}.txnindex": aborted[:34], f"{far:020}.txnindex": aborted[34:],
    }  # fmt: skip
    assert kolumn.verify(out).ok
    tier = tmp_path / "tier" / "t-0-AAAAAAAAAGMAAAAAAAAAYw"
    tiers.put(tier, 0, [(source / f"{0:020}.log").read_bytes()])
    raises(kolumn.KolumnError, "cannot be one in a tier", kolumn.erase, tier, tmp_path / "c", keys="person-0004")


def test_values_of_headers_are_needles(tmp_path: Path) -> None:
    records = [Record(i, b"k%d" % i, b"v", TIME, ((b"user", user),)) for i, user in enumerate((b"joe@x.org", b"amy@x.org"))]
    source = write_log(tmp_path / "a", (0, [batch(records)]))
    (source / "leader-epoch-checkpoint").write_bytes(b"joe@x.org amy@x.org")
    done = kolumn.erase(source, tmp_path / "b", where="user=joe@x.org", verify=True)
    assert [(row["check"], row["found"]) for row in done.verification.to_pylist() if not row["ok"]] == [("bytes", 1)]


def test_never_in_place(tmp_path: Path) -> None:
    source = write_log(tmp_path, (0, [batch(_records(5))]))
    (tmp_path / "link").symlink_to(tmp_path)
    for target in (
        tmp_path,
        tmp_path / "link",
        os.path.relpath(tmp_path),
        source / "deep",
        source / "x" / "y",
        tmp_path / "link" / "t-0" / "z",
    ):
        raises(kolumn.ArgumentError, "never changed in place", kolumn.erase, source, target, keys="person-0001")
    assert sorted(os.listdir(tmp_path)) == ["link", "t-0"]
    raises(kolumn.ArgumentError, "never changed in place", kolumn.erase, f"local://{source}", f"local://{source}/deep", keys="person-0001")
    assert kolumn.erase(f"local://{source}", f"local://{tmp_path}/beside", keys="person-0001").records == 1
    # A segment alone is in any folder.
    log = shutil.copy(source / f"{0:020}.log", tmp_path / f"{0:020}.log")
    assert kolumn.erase(log, tmp_path / "deeper" / "a.log", keys="person-0001").records == 1


def test_damage_is_an_error_or_is_not_copied(tmp_path: Path) -> None:
    source = write_log(tmp_path, (0, [batch(_records(5)), batch(_records(5, 5)), batch(_records(5, 10))]))
    flip(source / f"{0:020}.log", len(batch(_records(5))) + 70)
    raises(kolumn.CorruptBatchError, "", kolumn.erase, source, tmp_path / "b", keys="person-0001")
    assert not list((tmp_path / "b").rglob("*.log"))
    done = kolumn.erase(source, tmp_path / "c", keys="person-0001", errors="skip", verify=True)
    assert (done.ok, len(done.damage), all(proved(done))) == (False, 1, True)
    assert offsets(tmp_path / "c") == [0, 2, 3, 4, 10, 11, 12, 13, 14]


def drafts(seed: int, folder: Path) -> None:
    """A random segment of a draft without the records of some keys: the others are as they were."""
    rng = random.Random(seed)
    format = FORMATS[seed % len(FORMATS)]
    made = Maker(format, rng).segment(rng.randint(1, 12))
    rows = [row for entry in made for row in entry.rows]
    keys = {row.key for row in rows if row.key is not None and not row.isControl and rng.random() < 0.4} | {b"no key of any"}
    base = rows[0].offset
    source = put(folder / "t-0", *(entry.data for entry in made), base=base).parent
    done = kolumn.erase(source, folder / "out", keys=keys, format=format, verify=True)
    assert done.ok, done.verification.to_pylist()
    left = [row for row in rows if row.isControl or row.key not in keys]
    assert done.records == len(rows) - len(left)
    found = kolumn.read(folder / "out", format=format, columns=list(Row._fields), include_control=True).to_pylist()
    assert [tuple(row[name] for name in ("offset", "key", "value", "timestampMs", "isControl", "tombstone")) for row in found] == [
        (row.offset, row.key, row.value, row.timestampMs, row.isControl, row.tombstone) for row in left
    ]
    assert kolumn.verify(folder / "out", format=format).ok
    whole = [entry.data for entry in made if all(row.isControl or row.key not in keys for row in entry.rows)]
    data = b"".join(files(folder / "out", ".log").values())
    assert all(entry in data for entry in whole)


def test_drafts() -> None:
    none_fails(drafts, 120, "behaviour.test_erase")


def test_the_proof_sees_what_is_left(tmp_path: Path) -> None:
    """A proof that always says yes would be none: the target is changed after it was written."""
    source = write_log(tmp_path / "a", (0, [batch(_records(5)), batch(_records(3, 5), codec=TURN % 5)]))
    meant: Any = {"keys": "person-0001"}

    def failing(change: Callable[[Path], object]) -> list[str]:
        target = tmp_path / "b"
        shutil.rmtree(target, ignore_errors=True)

        class Changed(erasure_proof.Proof):
            def table(self, partitions: Any) -> pa.Table:
                change(target / "t-0")
                return super().table(partitions)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kolumn.writers.rewriting.erase.Proof", Changed)
            done = kolumn.erase(source, target, verify=True, **meant)
        return [row["check"] for row in done.verification.to_pylist() if not row["ok"]]

    log = f"{0:020}.log"
    others = [record for record in _records(5) if record.key != b"person-0001"]
    second = batch(_records(3, 5), codec=TURN % 5)
    assert failing(lambda out: None) == []
    assert failing(lambda out: shutil.copy(source / log, out / log)) == ["selection", "records"]
    assert failing(lambda out: (out / log).write_bytes(batch(others[1:]) + second)) == ["records"]
    assert failing(lambda out: (out / log).write_bytes(batch(others) + batch(_records(3, 5), codec=TURN % 5, leader_epoch=9))) != []
    assert failing(lambda out: (out / log).write_bytes(batch(others, base_offset=0, last_offset=4))) == ["records", "batches"]
    assert failing(lambda out: (out / f"{0:020}.snapshot").write_bytes(b"..a secret of 00000001..")) == ["bytes"]
    meant = {"keys": ["a secret of 00000001", "person-0001"]}
    assert failing(lambda out: (out / f"{7:020}.snapshot-person-0001").write_bytes(b"")) == ["bytes"]


def test_a_value_that_another_record_has_too_is_said_and_no_failure(tmp_path: Path) -> None:
    pairs = [(b"a-person", b"the same value"), (b"b-person", b"the same value"), (b"c-person", b"with a-person in it"), (b"d", b"1")]
    records = [Record(i, key, value, TIME) for i, (key, value) in enumerate(pairs)]
    source = write_log(tmp_path / "a", (0, [batch(records, codec=TURN % 5)]))
    done = kolumn.erase(source, tmp_path / "b", keys=["a-person", "d"], verify=True)
    checks = {row["check"]: row for row in done.verification.to_pylist()}
    assert done.ok
    assert (checks["payloads"]["alsoKept"], checks["payloads"]["firstOffset"], checks["bytes"]["alsoKept"]) == (1, 1, 2)
    assert "2 of the keys and values are short" in checks["bytes"]["remark"]


def test_what_only_looks_like_a_needle_is_no_finding_and_what_no_reader_sees_is_one(tmp_path: Path) -> None:
    erased = Record(0, b"person-50", b"", TIME)
    # The length of a value of 24 bytes is the character 0.
    beside = Record(1, b"person-5", bytes(24), TIME)
    source = write_log(tmp_path / "a", (0, [batch([erased]), batch([beside])]))
    assert b"person-50" in batch([beside])
    assert kolumn.erase(source, tmp_path / "b", keys="person-50", verify=True).ok
    hidden = message(1, beside, trailing=b"..person-50..")
    stream = batch([replace(beside, value=b"v")], codec=1)
    slack = with_crc(stream[:8] + struct.pack(">i", len(stream) - 12 + 9) + stream[12:] + b"person-50")
    for name, entry in (("trailing", hidden), ("slack", slack)):
        source = write_log(tmp_path / name, (0, [message(1, erased), entry]))
        assert offsets(source) == [0, 1]
        done = kolumn.erase(source, tmp_path / f"{name}-out", keys="person-50", verify=True)
        assert [row["check"] for row in done.verification.to_pylist() if not row["ok"]] == ["bytes"], name


def search(seed: int, folder: Path) -> None:
    """The search for many needles finds what one search for each finds."""
    rng = random.Random(seed)
    letters = b"ab"[: rng.randint(1, 2)] + bytes(range(99, 99 + rng.choice([0, 3, 20])))
    some = sorted({bytes(rng.choices(letters, k=rng.choice([8, 8, 9, 13, 40]))) for _ in range(rng.randint(0, 30))})
    data = bytearray(rng.choices(letters, k=rng.randint(0, 300)))
    for needle in rng.choices(some, k=5) if some else ():
        at = rng.randint(0, len(data))
        data[at:at] = needle
    expected = sorted((at, at + len(needle)) for needle in some for at in range(len(data)) if data.startswith(needle, at))
    start, stop = needles.Pattern(some).find(np.frombuffer(bytes(data), np.uint8))
    assert list(zip(start.tolist(), stop.tolist(), strict=True)) == expected


def test_needles_are_found_wherever_they_are() -> None:
    none_fails(search, 200, "behaviour.test_erase")


def test_needles_are_taken_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure_proof, "_ROUND_BYTES", 20)
    source = write_log(tmp_path / "a", *((5 * i, [batch(_records(5, 5 * i))]) for i in range(4)))
    (source / "leader-epoch-checkpoint").write_bytes(b"a secret of 00000003, a secret of 00000010")
    done = kolumn.erase(source, tmp_path / "b", keys="person-0003", verify=True)
    assert [(row["check"], row["found"]) for row in done.verification.to_pylist() if not row["ok"]] == [("bytes", 2)]
