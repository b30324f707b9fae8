"""Segments that Aiven's tiered-storage wrote: compressed, encrypted, damaged."""

import hashlib
import json
import os
import re
import shutil
from contextlib import closing
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import zstandard

import kolumn
from kit.asked import invoked, skipping, watched
from kit.corpus import HERE as CORPUS
from kit.encoder import Record, batch
from kit.outcome import raises
from kit.replicas import flip
from kit.tiers import Aiven, aiven_of
from kolumn.cli.common import size_of
from kolumn.source import tier_file as aiven_file
from kolumn.source import tier_manifest as aiven_manifest
from kolumn.source.read_ahead import open_ranges
from kolumn.source.segments import find_segments
from kolumn.source.tier_file import Access, AivenFile, key_files
from kolumn.source.tier_manifest import AivenManifest, parse

GOLDEN = CORPUS.parent / "aiven"
FIRST_CHUNK = "9d596667e889bb68c7d8cac5e6b1aa27b4b3b081f9e5103d61b773e7b4f4d9a0"
"""SHA-256 of the first 100000 bytes of the segment from which Aiven's classes made all four."""
LOG = CORPUS / "transactional" / "txn-zstd-0"
COLUMNS = ["topic", "partition", "offset", "key", "value"]
COMMITTED: dict[str, Any] = {"columns": COLUMNS, "isolation_level": "read_committed"}


def read_manifest(path: Path) -> AivenManifest:
    return parse(str(path), path.read_bytes())


@pytest.mark.parametrize(
    ("zstd", "key", "chunk"),
    [(False, None, 10_000), (True, None, 5000), (False, "k:1", 777), (True, "main", 7001), (True, "main", 1 << 20)],
)
def test_the_rows_are_those_of_the_broker(tmp_path: Path, zstd: bool, key: str | None, chunk: int) -> None:
    made, keys = aiven_of(LOG, tmp_path, chunk, key=key, zstd=zstd)
    for how in ({}, {"isolation_level": "read_committed"}, {"start_offset": 500, "end_offset": 600}):
        assert kolumn.read(made.root, columns=COLUMNS, private_keys=keys, **how).equals(kolumn.read(LOG, columns=COLUMNS, **how))
    assert kolumn.read([made.root, LOG], columns=COLUMNS, private_keys=keys).equals(kolumn.read(LOG, columns=COLUMNS))
    report = kolumn.verify(made.root, private_keys=keys)
    assert (report.ok, report.remarks.num_rows) == (True, 0)


def test_each_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions may begin in other segments of the folder, but there are none that are not known."""
    made, _ = aiven_of(LOG, tmp_path, 5000)
    manifests = sorted(made.root.glob("*/*/*.rsm-manifest"))
    calls = watched(monkeypatch, aiven_manifest, "read_manifest")
    assert kolumn.read(made.root, **COMMITTED).equals(kolumn.read(LOG, **COMMITTED))
    assert sorted(file.name for file, _ in calls) == [str(manifest) for manifest in manifests]
    calls.clear()
    assert kolumn.read(manifests[1:], **COMMITTED).equals(kolumn.read(LOG, **COMMITTED, start_offset=int(manifests[1].name[:20])))
    assert str(manifests[0]) in [file.name for file, _ in calls]


def test_every_name_of_it_is_a_source(tmp_path: Path) -> None:
    made, keys = aiven_of(LOG, tmp_path / "tier", 5000, key="a", zstd=True)
    folder = next(made.root.glob("*/0"))
    expected = kolumn.read(LOG, columns=COLUMNS)
    for source in (made.root, folder.parent, folder, f"{folder}/*.rsm-manifest", f"local://{made.root}", sorted(folder.glob("*.log"))):
        assert kolumn.read(source, columns=COLUMNS, private_keys=keys).equals(expected)
    (folder / f"{5000:020d}-{'A' * 22}.log").write_bytes(b"not whole yet")
    assert kolumn.read(made.root, columns=COLUMNS, private_keys=keys).equals(expected)


def test_what_aivens_classes_encrypted_and_compressed() -> None:
    for mode, end in (("plain", 825_590), ("zstd", 825_696), ("aes", 825_842), ("zstdaes", 825_948)):
        manifest = read_manifest(GOLDEN / f"{mode}.rsm-manifest")
        assert (len(manifest.borders), manifest.borders[-1]) == (10, end)
        assert (manifest.compressed, manifest.encryption is not None) == ("zstd" in mode, "aes" in mode)
    assert (manifest.topic, manifest.partition, manifest.first, manifest.last, manifest.size) == ("orders", 0, 0, 2001, 825_590)
    golden = AivenFile(manifest, Access(key_files({"key1": GOLDEN / "priv.der"})))
    assert hashlib.sha256(golden.read_at(100_000, 0)).hexdigest() == FIRST_CHUNK
    with pytest.raises(kolumn.KolumnError, match=r"chunk 1, bytes 100040 to 200080 \(bytes 100000 to 200000 of the segment\).*was cut"):
        golden.read_at(1, 100_000)
    golden.close()


@pytest.mark.skipif("KOLUMN_CORPUS" not in os.environ, reason="needs KOLUMN_CORPUS")
@pytest.mark.parametrize("mode", ["plain", "zstd", "aes", "zstdaes"])
def test_what_aivens_classes_wrote(tmp_path: Path, mode: str) -> None:
    folder = Path(os.environ["KOLUMN_CORPUS"]) / "tiered" / "aiven"
    if not folder.exists():
        pytest.skip("this corpus has no tier")
    for suffix in (".log", ".rsm-manifest"):
        shutil.copyfile(folder / f"{mode}{suffix}", tmp_path / f"x{suffix}")
    found = kolumn.read(tmp_path / "x.rsm-manifest", private_keys={"key1": folder / "priv.der"}, columns=["offset", "value"])
    assert found.num_rows == 2000
    assert found.equals(kolumn.read(folder / "plain.log", columns=["offset", "value"]))
    assert kolumn.recover(tmp_path / "x.rsm-manifest", tmp_path / "made", private_keys={"key1": folder / "priv.der"}).ok
    (made,) = (tmp_path / "made" / "orders-0").glob("*.log")
    assert made.read_bytes() == (folder / "plain.log").read_bytes()


TOPIC = "remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition"


def broken(root: Path, key: str | None = "k", zstd: bool = True) -> tuple[Path, Path, dict[str, Path] | None]:
    """A segment of 200 batches in chunks of 5000 bytes: its manifest, its object, and the keys."""
    root.mkdir(exist_ok=True)
    made = Aiven(root, 5000, zstd=zstd, key=key)
    manifest = made.put(b"".join(batch([Record(offset, value=os.urandom(300))]) for offset in range(200)), "t", 0, 0, 199)
    return manifest, manifest.with_suffix(".log"), made.keys()


@pytest.mark.parametrize(("key", "reason"), [("k", "the tag of AES-GCM is wrong"), (None, "zstd")])
def test_a_changed_byte_names_the_chunk_and_is_a_hole(tmp_path: Path, key: str | None, reason: str) -> None:
    manifest, log, keys = broken(tmp_path, key)
    chunk = read_manifest(manifest).borders[3]
    flip(log, chunk + 2)
    where = rf"\.log: chunk 3, bytes {chunk} to \d+ \(bytes 15000 to 20000 of the segment\): .*{reason}"
    raises(kolumn.KolumnError, where, kolumn.read, log.parent, private_keys=keys)
    found, skipped = skipping(log.parent, private_keys=keys)
    lost = sorted(set(range(200)) - set(found["offset"].to_pylist()))
    assert 10 < len(lost) < 20
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert skipped.stretches > 0
    assert not kolumn.verify(log.parent, private_keys=keys).ok


@pytest.mark.parametrize(
    ("zstd", "key", "words"), [(True, "k", "chunk"), (True, None, r"chunks \d+ to 14, bytes"), (False, None, r"\.log: bytes \d+ to")]
)
def test_an_object_that_is_missing_or_cut(
    tmp_path: Path, zstd: bool, key: str | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neighbouring chunks that are missing are one warning."""
    manifest, log, keys = broken(tmp_path, key, zstd)
    size = log.stat().st_size
    os.truncate(log, size // 2)
    raises(kolumn.KolumnError, r"expected \d+ bytes, found .*: the object is missing or was cut", kolumn.read, manifest, private_keys=keys)
    offsets = kolumn.read(manifest, private_keys=keys, errors="skip", columns=["offset"])["offset"].to_pylist()
    assert 80 < len(offsets) <= 100
    assert offsets == list(range(len(offsets)))
    (hole,) = [message for message in caplog.messages if message.endswith("left out")]
    assert re.search(words, hole)
    log.unlink()
    with pytest.raises(kolumn.KolumnError, match=rf"{log.name}: missing: .*{manifest.name} says that it has {size} bytes"):
        kolumn.read(manifest, private_keys=keys)
    found, skipped = skipping(manifest, private_keys=keys)
    assert (found.num_rows, skipped.stretches) == (0, 1)


def test_an_object_without_its_manifest_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Manifests are written last, so its copy was not finished; but a manifest may have been lost too."""
    made, keys = aiven_of(LOG, tmp_path, 5000, key="k")
    gone = sorted(made.root.glob("*/*/*.rsm-manifest"))[1]
    gone.unlink()
    whole, lost, left = (
        kolumn.read(source, private_keys=keys, columns=["offset"])["offset"].to_pylist()
        for source in (LOG, LOG / f"{gone.name[:20]}.log", made.root)
    )
    assert left == [offset for offset in whole if offset not in lost]
    text = f"1 objects without a manifest are left out, as copies that were not finished: the first is {gone.with_suffix('.log')}"
    assert text in caplog.text
    caplog.clear()
    kolumn.read(made.root, private_keys=keys, isolation_level="read_committed")
    assert caplog.text.count(text) == 1


def test_keys_that_do_not_fit(tmp_path: Path) -> None:
    manifest, _, _ = broken(tmp_path)
    (tmp_path / "other").mkdir()
    other = Aiven(tmp_path / "other", 100, key="k").key_file()
    (tmp_path / "text").write_text("none")
    for given, error, words in (
        (None, kolumn.ArgumentError, "encrypted with key 'k': expected its private key in private_keys={'k': path}, found none"),
        ({"x": other}, kolumn.ArgumentError, "found those of 'x'"),
        ({"k": other}, kolumn.KolumnError, "cannot be unwrapped with key 'k'"),
        ({"k": tmp_path / "text"}, kolumn.ArgumentError, "is no private key in PEM or DER"),
        ({"k": tmp_path / "no"}, kolumn.ArgumentError, "cannot be read: No such file"),
        ("k=no", kolumn.ArgumentError, "expected a mapping"),
    ):
        for errors in ("raise", "skip"):
            raises(error, words.replace("{", r"\{"), kolumn.read, manifest, private_keys=given, errors=errors)


def test_every_member_of_a_manifest_is_checked(tmp_path: Path) -> None:
    manifest, _, _ = broken(tmp_path)
    good = json.loads(manifest.read_text())
    for path, value in (
        ("version", "2"), ("chunkIndex", None), ("chunkIndex.type", "other"), ("chunkIndex.originalChunkSize", 0),
        ("chunkIndex.originalChunkSize", True), ("chunkIndex.originalFileSize", 2**31), ("chunkIndex.originalFileSize", "1"),
        ("chunkIndex.transformedChunks", "?"), ("chunkIndex.transformedChunks", "AAAA"),
        ("compression", "yes"), ("encryption", []), ("encryption.dataKey", "k"), ("encryption.dataKey", "k:?"), ("encryption.aad", 5),
        ("remoteLogSegmentMetadata.startOffset", -1), ("remoteLogSegmentMetadata.endOffset", None),
        ("remoteLogSegmentMetadata.startOffset", 2**63 - 1), ("remoteLogSegmentMetadata.endOffset", -1),
        ("remoteLogSegmentMetadata.endOffset", 2**63 - 1), ("remoteLogSegmentMetadata.segmentLeaderEpochs", [1]),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"-1": 0}), ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"9" * 5000: 0}),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"2": 9, "5": 0}), ("remoteLogSegmentMetadata.remoteLogSegmentId.id", ""),
        *((f"{TOPIC}.topic", name) for name in ("../../evil", "..", ".", "/etc", "a\nb", "a" * 250)), (f"{TOPIC}.partition", 2**31),
    ):  # fmt: skip
        bad = json.loads(json.dumps(good))
        *above, last = path.split(".")
        reduce(getitem, above, bad)[last] = value
        raises(kolumn.KolumnError, rf"^m: manifest of a tier's segment, .*{last}: expected ", parse, "m", json.dumps(bad).encode())
    for text in (b"", b"[1]", b"{", b"\xff", b"[" * 100_000):
        raises(kolumn.KolumnError, r"^m: ", parse, "m", text)


FULL = list(range(30))
MIDDLE = FULL[10:20]


def three(root: Path, zstd: bool, key: str | None) -> tuple[Path, dict[str, Path] | None]:
    """A log of three segments in two leader epochs: the manifest of the second, and the keys."""
    root.mkdir()
    made = Aiven(root, 1000, zstd=zstd, key=key)
    indexes = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction"), bytes(34))
    for base, epochs in ((0, {"0": 0}), (10, {"0": 10, "3": 15}), (20, {"3": 20})):
        data = b"".join(batch([Record(at, value=b"v" * 300)], leader_epoch=3 * (at >= 15)) for at in range(base, base + 10))
        made.put(data, "orders", 0, base, base + 9, epochs, indexes)
    return sorted(root.glob("*/*/*.rsm-manifest"))[1], made.keys()


@pytest.mark.parametrize(
    ("zstd", "key", "flip", "step"),
    [
        *((zstd, key, 1, 37) for zstd in (False, True) for key in (None, "k")),
        # A manifest with both has all that one with either has.
        *(pytest.param(zstd, key, flip, 1, marks=pytest.mark.slow) for zstd, key in ((False, None), (True, "k")) for flip in (1, 2)),
    ],
)
def test_a_changed_byte_of_a_manifest_costs_its_segment_alone(tmp_path: Path, zstd: bool, key: str | None, flip: int, step: int) -> None:
    """One byte after the other. What changes nothing that is read stays."""
    manifest, keys = three(tmp_path / "tier", zstd, key)
    whole = manifest.read_bytes()
    told = whole.find(b"remoteLogSegmentMetadata")
    how: dict[str, Any] = {"private_keys": keys, "columns": ["topic", "partition", "offset"]}
    for at, before in enumerate(whole):
        # All digits of its topic-partition and its epochs, and some bytes of the rest.
        if at % step and not (at > told and 48 <= before < 58):
            continue
        manifest.write_bytes(whole[:at] + bytes([before ^ flip]) + whole[at + 1 :])
        found, skipped = skipping(tmp_path / "tier", **how)
        offsets, where = found["offset"].to_pylist(), (at, whole[at - 20 : at])
        assert set(zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True)) == {("orders", 0)}, where
        assert [offset for offset in offsets if offset not in MIDDLE] == FULL[:10] + FULL[20:], where
        assert offsets == FULL or skipped.stretches, where
        try:
            read = kolumn.read(tmp_path / "tier", **how)
        except kolumn.KolumnError as caught:
            named = manifest.stem in str(caught)
        else:
            named = read.equals(found) and offsets == FULL and not skipped.stretches
        assert named, where


def test_a_manifest_with_too_high_an_end_takes_no_offsets_from_the_next(tmp_path: Path) -> None:
    manifest, keys = three(tmp_path / "tier", True, "k")
    manifest.write_text(manifest.read_text().replace('"endOffset": 19', '"endOffset": 39'))
    with pytest.raises(kolumn.KolumnError, match=rf"{manifest.name}: endOffset: expected 19, which its last batch has, found 39"):
        kolumn.read(tmp_path / "tier", private_keys=keys)
    assert kolumn.read(tmp_path / "tier", private_keys=keys, errors="skip", columns=["offset"])["offset"].to_pylist() == FULL
    manifest.write_text(manifest.read_text().replace('"3": 15', '"2": 15'))
    remarks = kolumn.verify(tmp_path / "tier", private_keys=keys).remarks.to_pylist()
    assert [(row["position"], row["kind"]) for row in remarks] == [(3330, "side-file"), (1850, "side-file")]
    assert "endOffset 39, and the last batch ends at offset 19" in remarks[0]["remark"]
    assert "epoch 2 at offset 15, whose batch has 3; 5 of 10 batches differ" in remarks[1]["remark"]


def test_a_manifest_that_its_index_files_do_not_fit_leaves_them_unread(tmp_path: Path) -> None:
    """The absent index of aborted transactions would mean that there are none."""
    made, keys = aiven_of(LOG, tmp_path, 2000, key="k", zstd=True, indexes=True)
    for manifest in made.root.glob("*/*/*.rsm-manifest"):
        whole = manifest.read_text()
        for word, other in (('"transaction"', '"trbnsaction"'), ('"segmentIndexes"', '"segmentIndexet"'), ('"size": ', '"size": 1')):
            manifest.write_text(whole.replace(word, other))
            assert kolumn.read(made.root, private_keys=keys, **COMMITTED).equals(kolumn.read(LOG, **COMMITTED))
        manifest.write_text(whole)


def test_sizes_that_a_manifest_claims_are_checked(tmp_path: Path) -> None:
    """64 KiB of zstd hold 2 GiB; a chunk of one byte each would be two thousand million chunks."""
    manifest, log, _ = broken(tmp_path / "zstd", None)
    log.write_bytes(zstandard.ZstdCompressor().compress(bytes(1 << 20)))

    def changed(manifest: Path, **chunk_index: Any) -> Path:
        text = json.loads(manifest.read_text())
        text["chunkIndex"] |= chunk_index
        manifest.write_text(json.dumps(text))
        return manifest

    whole = {"type": "fixed", "originalFileSize": 2**31 - 1, "transformedChunkSize": 1 << 16, "finalTransformedChunkSize": 1 << 16}
    changed(manifest, originalChunkSize=2**31 - 1, **whole)
    raises(kolumn.KolumnError, r"have 2147483647 bytes, and at most \d+ are decoded at once: set memory_bytes", kolumn.read, manifest)
    raises(kolumn.KolumnError, r"originalChunkSize: expected at most \d+ chunks", kolumn.read, changed(manifest, originalChunkSize=1))
    changed(manifest, originalChunkSize=1 << 20, originalFileSize=1 << 20, finalTransformedChunkSize=log.stat().st_size)
    assert kolumn.read(manifest).num_rows == 0
    # Chunks that are stored as they are have the size of the segment.
    manifest, log, _ = broken(tmp_path / "plain", None, zstd=False)
    with pytest.raises(kolumn.KolumnError, match=rf"originalFileSize: expected the {log.stat().st_size % 5000} bytes of its chunks"):
        kolumn.read(changed(manifest, originalFileSize=5000))


def test_neighbouring_chunks_are_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest, _, keys = broken(tmp_path)
    (segment,) = find_segments(manifest)
    assert segment.manifest is not None
    file, borders = AivenFile(segment.manifest, Access(key_files(keys))), segment.manifest.borders
    with closing(file):
        monkeypatch.setattr(file, "_object", counting := Mock(wraps=file._object))
        assert len(file.read_at(20_000, 7000)) == 20_000
        assert len(file.read_at(5000, 26_000)) == 5000
    assert counting.read_at.mock_calls == [call(end - start, start) for start, end in ((borders[1], borders[6]), (borders[6], borders[7]))]


@pytest.mark.parametrize("key", [None, "k"])
def test_indexes_lead_to_few_chunks(tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small range of committed records decodes the chunks with it and with markers, not those before it."""
    made, keys = aiven_of(LOG, tmp_path, 2000, key=key, zstd=True, indexes=True)
    calls = watched(monkeypatch, AivenFile, "_checked")
    monkeypatch.setattr("kolumn.source.segment_file.BLOCK", 2000)
    chunks = sum(len(read_manifest(path).borders) - 1 for path in made.root.glob("*/*/*.rsm-manifest"))
    last = kolumn.batches(LOG)["lastOffset"][-1].as_py()
    for level in ("read_uncommitted", "read_committed"):
        how: dict[str, Any] = {"columns": COLUMNS, "isolation_level": level, "start_offset": last - 40, "end_offset": last - 20}
        calls.clear()
        assert kolumn.read(made.root, private_keys=keys, **how).equals(kolumn.read(LOG, **how))
        decoded = {(file.manifest.name, chunk) for file, chunk, *_ in calls}
        assert len(decoded) < chunks / 3, (level, len(decoded), chunks)
    # What was changed is not believed, and costs a walk; so does what is gone.
    for path in made.root.glob("*/*/*.indexes"):
        data = bytearray(path.read_bytes())
        data[::7] = bytes(len(data[::7]))
        path.write_bytes(data)
    assert kolumn.read(made.root, private_keys=keys, **how).equals(kolumn.read(LOG, **how))
    for path in made.root.glob("*/*/*.indexes"):
        path.unlink()
    assert kolumn.read(made.root, private_keys=keys, **how).equals(kolumn.read(LOG, **how))


@pytest.mark.parametrize("key", [None, "k"])
def test_an_index_of_aborts_that_is_damaged_is_not_taken_for_absent(tmp_path: Path, key: str | None) -> None:
    """Its snapshot is whole, and a segment without aborts has that alone."""
    expected = kolumn.read(LOG, **COMMITTED)
    made, keys = aiven_of(LOG, tmp_path, 2000, key=key, zstd=True, indexes=True)
    for manifest in made.root.glob("*/*/*.rsm-manifest"):
        whole, indexes = manifest.read_text(), manifest.with_suffix(".indexes")
        stored, part = indexes.read_bytes(), json.loads(whole)["segmentIndexes"]["transaction"]
        if not part["size"]:
            continue
        indexes.write_bytes(stored[: part["position"]] + b"\xff\xff" + stored[part["position"] + 2 :])
        assert kolumn.read(made.root, private_keys=keys, **COMMITTED).equals(expected)
        indexes.write_bytes(stored)
        manifest.write_text(whole.replace(json.dumps({"transaction": part})[1:-1], '"transaction": {"position": -1, "size": 5}'))
        assert manifest.read_text() != whole
        assert kolumn.read(made.root, private_keys=keys, **COMMITTED).equals(expected)
        manifest.write_text(whole)


def test_commands_and_all_that_reads_take_keys(tmp_path: Path) -> None:
    manifest, log, keys = broken(tmp_path)
    assert keys is not None
    more = {"sql": ["select count(*) from t"], "report": ["-o", str(tmp_path / "page.html")]}
    for command in ("verify", "cat", "stats", "inspect", "space", "overview", "report", "sql"):
        done = invoked(command, manifest, *more.get(command, []), "--key-file", f"k={keys['k']}")
        assert done.exit_code == 0, done.stderr
    assert "--key-file k=path" in invoked("verify", manifest).stderr
    expected = kolumn.read(manifest, private_keys=keys)
    assert kolumn.scan_polars(manifest, private_keys=keys).collect().to_arrow()["offset"].to_pylist() == expected["offset"].to_pylist()
    assert [row.records for row in kolumn.space(manifest, private_keys=keys)] == [200] * 8
    raises(kolumn.ArgumentError, "encrypted with key 'k'", kolumn.space, manifest)
    raises(kolumn.ArgumentError, r"its bytes are in the chunks of a tier", kolumn.compact, log.parent, tmp_path / "made")


def test_the_size_for_a_progress_bar_needs_no_manifest_of_a_segment_that_is_left_out(tmp_path: Path) -> None:
    manifest, _ = three(tmp_path / "tier", False, None)
    manifest.write_text("{")
    read = [read_manifest(one).size for one in manifest.parent.glob("*.rsm-manifest") if one != manifest]
    assert size_of([str(tmp_path / "tier")]) == sum(read) > 1000


@pytest.mark.parametrize("key", [None, "k"])
def test_indexes_that_cannot_be_fetched_are_not_taken_for_missing(
    tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, keys = aiven_of(LOG, tmp_path, 2000, key=key, zstd=True, indexes=True)
    url = f"local://{made.root}"
    reset = Mock(read_at=Mock(side_effect=OSError("the connection was reset")))
    monkeypatch.setattr(aiven_file, "open_ranges", lambda name: reset if name.endswith(".indexes") else open_ranges(name))
    monkeypatch.setattr("kolumn.source.storage.time.sleep", lambda seconds: None)
    with pytest.raises(kolumn.KolumnError, match=r"\.indexes: bytes \d+ to \d+ cannot be read: the connection was"):
        kolumn.read(url, private_keys=keys, **COMMITTED)
    assert kolumn.read(url, private_keys=keys, errors="skip", **COMMITTED).equals(kolumn.read(LOG, **COMMITTED))
    assert "the connection was reset; the log is read instead" in caplog.text
    caplog.clear()
    monkeypatch.setattr(aiven_file, "open_ranges", open_ranges)
    for path in made.root.glob("*/*/*.indexes"):
        path.unlink()
    assert kolumn.read(url, private_keys=keys, **COMMITTED).equals(kolumn.read(LOG, **COMMITTED))
    assert "the log is read instead" in caplog.text
