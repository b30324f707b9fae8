"""Offsets of consumers in logs of Redpanda that begin later than at raw offset 0, by the key-value store of their node."""

import logging
import random
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kolumn
from kit.encoder import Record, batch
from kit.fuzz import FIRST as SEED
from kit.redpanda import FILTERED, TX_FENCE, Mixed, headers, mixed
from kit.redpanda_kvstore import Store, filtered_batches, map_key, map_value, reach_key, reach_value, snapshot
from kolumn.copies import kvstore

ASKED = {"format": "redpanda", "columns": ["offset", "rawOffset"]}
RAW, DELTA, EARLIER = 100, 7, [(90, 1), (97, 2)]
"""Where the log begins, the delta there, and the last batches before it that consumers have no offsets of."""


@dataclass
class Node:
    """A node with the end of one log, in two segments, and a store."""

    folder: Path
    first: Mixed
    second: Mixed
    store: Store

    @property
    def log(self) -> Path:
        return self.folder / "kafka" / "t" / "0_9"

    @property
    def batches(self) -> list[tuple[int, int]]:
        return filtered_batches(self.first.data + self.second.data)

    @property
    def files(self) -> list[Path]:
        return sorted(self.log.iterdir(), key=lambda path: int(path.name.split("-")[0]))

    def fits(self, delta: int = DELTA, batches: list[tuple[int, int]] | None = None) -> bytes:
        """The value of a map that fits the log; by default its own one."""
        before = sum(length for _, length in EARLIER)
        return map_value(delta - before, [*EARLIER, *(self.batches if batches is None else batches)])

    def read(self, **options: object) -> dict[int, int]:
        columns = kolumn.read(self.files, topic="t", partition=0, **ASKED, **options).to_pydict()
        return dict(zip(columns["rawOffset"], columns["offset"], strict=True))

    @property
    def translated(self) -> dict[int, int]:
        return {**self.first.offsets, **self.second.offsets}

    @property
    def raw(self) -> dict[int, int]:
        return {raw: raw for raw in self.translated}


def log_of(counts: list[int]) -> bytes:
    parts, offset = [], 0
    for count in counts:
        parts.append(batch([Record(offset + i, b"k", b"v" * 40, 1000 + offset + i) for i in range(count)]))
        offset += count
    return b"".join(parts)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    rng = random.Random(SEED)

    def part(raw: int, delta: int) -> Mixed:
        own = {i: tuple(rng.choice([*FILTERED, TX_FENCE]) for _ in range(2)) for i in range(1, 8, 3)} | {4: (2, 19)}
        return mixed(log_of([rng.randint(1, 4) for _ in range(8)]), own, raw, delta)

    first = part(RAW, DELTA)
    second = part(first.end, first.delta)
    made = Node(tmp_path / "data", first, second, Store(tmp_path / "data" / "redpanda" / "kvstore" / "0_0"))
    made.log.mkdir(parents=True)
    (made.log / f"{RAW}-1-v1.log").write_bytes(first.data)
    (made.log / f"{first.end}-2-v1.log").write_bytes(second.data)
    return made


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def fill(store: Store, node: Node, group: int = 5) -> None:
    """Other groups, other key spaces and the log's own map, some of them put twice."""
    store.put(
        (b"\x01\x00" + struct.pack("<q", group), b"of a leader"),
        (map_key(1), map_value(0, [(0, 1), (RAW + 1, 1)])), (reach_key(1), reach_value(RAW + 5)),
        (map_key(group), node.fits(batches=[])),
        (map_key(2), map_value(3, [])), (reach_key(2), reach_value(10**6)), (reach_key(3), reach_value(4)),
        (b"\x04\x07", b"of a kind that is not known"),
        (map_key(group), node.fits()), (reach_key(group), reach_value(node.second.end - 1)),
    )  # fmt: skip


def test_a_map_that_fits(node: Node, warned: pytest.LogCaptureFixture) -> None:
    fill(node.store, node)
    assert node.read() == node.translated
    end = min(node.second.offsets.values()) + 1
    assert node.read(start_offset=end - 4, end_offset=end) == {raw: at for raw, at in node.translated.items() if end - 4 <= at < end}
    assert not warned.text
    report = kolumn.verify(node.files, format="redpanda")
    assert report.ok
    assert "raw-offsets" not in report.remarks["kind"].to_pylist()
    assert node.read(start_delta=DELTA + 1) == {raw: offset - 1 for raw, offset in node.translated.items()}


def test_the_file_alone_and_relative(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(node.store, node)
    path = node.files[1]
    columns = kolumn.read(path, **ASKED).to_pydict()
    assert dict(zip(columns["rawOffset"], columns["offset"], strict=True)) == node.second.offsets
    monkeypatch.chdir(node.log)
    assert kolumn.read(path.name, **ASKED)["offset"].to_pylist() == columns["offset"]


def test_what_a_snapshot_and_later_segments_have(node: Node, warned: pytest.LogCaptureFixture) -> None:
    """Whichever has the map, the last one that was put counts."""
    stale = node.fits(DELTA + 3)
    node.store.put((map_key(5), stale), (map_key(6), node.fits(DELTA + 1)))
    node.store.put((map_key(6), None))
    node.store.compact()
    node.store.put((map_key(5), node.fits()))
    assert node.read() == node.translated
    node.store.roll()
    node.store.put((map_key(7), stale), (map_key(7), None))
    assert node.read() == node.translated
    for keep in (True, False):
        node.store.compact(keep)
        assert node.read() == node.translated
    node.store.put((b"\x01key", b"value"))
    node.store.path.write_bytes(node.store.path.read_bytes() + bytes(4096))
    assert node.read() == node.translated
    assert not warned.text


def test_an_empty_snapshot(node: Node) -> None:
    node.store.compact()
    fill(node.store, node)
    assert node.read() == node.translated


def test_cores(node: Node, warned: pytest.LogCaptureFixture) -> None:
    """The map may be in the store of any core; what lies there else is left alone."""
    node.store.put((map_key(5), map_value(0, [(0, 1)])))
    other = Store(node.store.folder.parent / "1_0")
    fill(other, node)
    (node.store.folder.parent / "old").mkdir()
    (node.store.folder / "snapshot.partial.1").write_bytes(b"x")
    assert node.read() == node.translated
    node.store.put((map_key(6), node.fits()))
    assert node.read() == node.translated
    node.store.put((map_key(6), node.fits(DELTA - 1)))
    assert node.read() == node.raw
    assert f"has 2 maps that fit the batches of the log: the difference is {DELTA - 1} or {DELTA}" in warned.text


def test_maps_that_do_not_fit(node: Node, warned: pytest.LogCaptureFixture) -> None:
    own = node.batches
    others = [
        own[1:], [(own[0][0], 2), *own[1:]], [(own[0][0] + 1, 1), *own[1:]], [*own, (node.second.end - 1, 1)], sorted([*own, (RAW, 1)]),
        [], own[::-1], [*own, own[-1]], [(base, 0) for base, _ in own], [(2**63 - 1, 1)], [(-(2**63), 1), *own],
    ]  # fmt: skip
    # Straddling its beginning; deltas that no log has.
    values = [*(node.fits(batches=batches) for batches in others), map_value(4, [(RAW - 1, 2), *own]), node.fits(-1), node.fits(RAW + 1)]
    values += [map_value(-(2**63), own), map_value(2**63 - 1, own)]
    for group, value in enumerate(values):
        node.store.put((map_key(group), value))
    # What the map of the log has not yet is in it once it reaches so far.
    node.store.put((map_key(50), node.fits(batches=own[:3])), (reach_key(50), reach_value(own[3][0])))
    assert node.read() == node.raw
    assert "the node's key-value store has no map that fits the batches of the log. If you know" in warned.text
    node.store.put((reach_key(50), reach_value(own[3][0] - 1)))
    assert node.read() == node.translated


def test_the_remark(node: Node) -> None:
    node.store.put((map_key(5), node.fits(batches=node.batches[1:])))
    (remark,) = [row for row in kolumn.verify(node.files[0], format="redpanda").remarks.to_pylist() if row["kind"] == "raw-offsets"]
    assert remark["evidence"].startswith("the node's key-value store has no map that fits the batches of the log; if you know")


def test_a_map_that_ends_or_goes_on_elsewhere(node: Node) -> None:
    """The log may go on after the map, and the map after what is left of the log."""
    node.store.put((map_key(5), node.fits(batches=node.batches[:3])))
    assert node.read() == node.translated
    node.store.put((map_key(5), node.fits(batches=node.batches[:2])))
    assert node.read() == node.raw
    node.store.put((map_key(5), node.fits(batches=[*node.batches, (node.second.end, 1), (node.second.end + 4, 3)])))
    assert node.read() == node.translated


@pytest.mark.parametrize("own", [{}, {1: (2,)}, {1: (2,), 3: (19,)}])
def test_logs_with_few_batches_of_their_own(node: Node, own: dict[int, tuple[int, ...]]) -> None:
    """All that a log has are enough, but none tells nothing."""
    made = mixed(log_of([2] * 5), own, RAW, DELTA)
    node.files[1].unlink()
    node.files[0].write_bytes(made.data)
    node.store.put((map_key(5), node.fits(batches=filtered_batches(made.data))), (reach_key(5), reach_value(made.end)))
    assert node.read() == (made.offsets if own else {raw: raw for raw in made.offsets})


def test_a_node_without_a_store(node: Node, warned: pytest.LogCaptureFixture) -> None:
    assert node.read() == node.raw
    assert "key-value" not in warned.text
    (node.folder / "redpanda" / "kvstore").mkdir(parents=True)
    assert node.read() == node.raw
    assert "key-value" not in warned.text
    fill(node.store, node)
    elsewhere = node.folder / "copy.log"
    elsewhere.write_bytes(node.first.data)
    assert kolumn.read(elsewhere, **ASKED)["offset"].to_pylist() == list(node.first.offsets)
    assert kolumn.read(node.first.data, **ASKED)["offset"].to_pylist() == list(node.first.offsets)
    assert "key-value" not in warned.text


def test_missing_parts(node: Node, warned: pytest.LogCaptureFixture) -> None:
    node.store.put((map_key(5), node.fits(DELTA + 1)))
    first = node.store.path
    node.store.roll()
    fill(node.store, node)
    held = first.read_bytes()
    first.unlink()
    assert node.read() == node.raw
    assert "is not used" in warned.text
    assert "raw offsets 0 to 0, before" in warned.text
    first.write_bytes(held)
    assert node.read() == node.translated
    warned.clear()
    (node.store.folder / "snapshot").write_bytes(snapshot(node.store.state, node.store.next))
    assert node.read() == node.raw
    assert f"is up to raw offset {node.store.next}, and the segments up to {node.store.next - 1}" in warned.text


def test_a_torn_end(node: Node) -> None:
    """A node writes: what is there counts, until it is more."""
    fill(node.store, node)
    whole = node.store.path.read_bytes()
    node.store.put((map_key(5), None))
    torn = node.store.path.read_bytes()
    node.store.path.write_bytes(torn[: len(whole) + 70])
    assert node.read() == node.translated
    node.store.path.write_bytes(torn)
    assert node.read() == node.raw


@pytest.mark.parametrize("value", [
    b"", b"\0", b"\0" * 5, map_value(4, [(RAW, 1)])[:-1], map_value(4, [(RAW, 1)]) + b"\0", struct.pack("<BBI", 1, 1, 12) + bytes(12),
    struct.pack("<BBIqI", 0, 0, 12, 4, 2**32 - 1), struct.pack("<BBIqI", 0, 0, 2**32 - 1, 4, 0),
])  # fmt: skip
def test_values_that_are_no_maps(node: Node, warned: pytest.LogCaptureFixture, value: bytes) -> None:
    """Nothing of a store is used in which something is not as it should be: its map may be the one that fits."""
    fill(node.store, node)
    node.store.put((map_key(9), value))
    assert node.read() == node.raw
    assert "is not used" in warned.text
    assert "the map of raft group 9 is not as expected: expected" in warned.text
    assert str(node.store.folder) in warned.text
    node.store.put((map_key(9), None))
    assert node.read() == node.translated


@pytest.mark.parametrize("value", [None, b"", b"\2", b"\0\0", b"\1", b"\1\5\0\0\0abcd", b"\1\3\0\0\0abcd", b"\1\xff\xff\xff\xff"])
def test_values_that_are_not_stored_so(node: Node, value: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.redpanda_kvstore.put", lambda _: value)
    node.store.put((map_key(9), b"any"))
    monkeypatch.undo()
    fill(node.store, node)
    # A record without a value deletes too.
    assert node.read() == (node.translated if value is None else node.raw)


@pytest.mark.parametrize("part", ["log", "snapshot"])
def test_flipped_bits_and_cut_files(node: Node, part: str) -> None:
    """The right offsets or the raw ones, whatever became of the store."""
    rng = random.Random(SEED)
    fill(node.store, node)
    path = node.store.path
    if part == "snapshot":
        node.store.put((map_key(5), node.fits()))
        node.store.compact()
        node.store.put((b"\x01key", b"value"), (b"\x01key", b"value"))
        path = node.store.folder / "snapshot"
    data = path.read_bytes()
    log = node.files[0]
    shown = kvstore.Shown(RAW, node.second.end, *map(np.array, zip(*node.batches, strict=True)))
    deltas = set()
    for _ in range(300):
        made = bytearray(data)
        if rng.random() < 0.2:
            del made[rng.randrange(len(made)) :]
        else:
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        path.write_bytes(made)
        stores = kvstore.stores_beside(str(log))
        assert stores is not None
        delta, text = stores.delta_before(shown)
        assert (delta is None) == bool(text)
        deltas.add(delta)
    assert deltas <= {DELTA, None}
    assert None in deltas
    path.write_bytes(data)
    assert node.read() == node.translated


def test_a_store_is_read_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(node.store, node)
    calls = []
    real = kvstore._state
    monkeypatch.setattr(kvstore, "_state", lambda files: calls.append(files) or real(files))
    for _ in range(3):
        assert node.read() == node.translated
    assert len(calls) == 1
    node.store.put((map_key(5), node.fits(DELTA - 1)))
    assert node.read() != node.translated
    assert len(calls) == 2


def test_damage_in_the_log(node: Node) -> None:
    """A lost batch of the log's own is one that the map has more."""
    fill(node.store, node)
    log = node.files[0]
    data = bytearray(log.read_bytes())
    position = next(at for at, _, base, _, _ in headers(bytes(data)) if base == node.batches[0][0])
    data[position + 40] ^= 1
    log.write_bytes(data)
    found = node.read(errors="skip")
    assert found == {raw: raw for raw in found}
    assert len(found) == len(node.raw)
