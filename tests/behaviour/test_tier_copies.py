"""Segments of a tier that are written anew in its layout: read back by Kolumn, and by other code."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import kolumn
from kit.corpus import HERE as CORPUS
from kit.outcome import raises
from kit.replicas import flip
from kit.tiers import Aiven, aiven_of, checkpoint, tier_of
from kolumn.core.errors import StorageError
from kolumn.source import storage
from kolumn.source.segments import Segment, find_segments
from kolumn.source.storage import logs_last
from kolumn.source.tier_file import Access, key_files
from kolumn.source.tier_manifest import parse
from kolumn.writers import outgoing as outgoing_module
from kolumn.writers import tier
from kolumn.writers.commit import run
from kolumn.writers.outgoing import outgoing
from kolumn.writers.tier import METADATA_SCHEMA, REPLACED_SCHEMA, Written, copy_in_tier, tier_folder, write_in_tier

LOG = CORPUS / "transactional" / "txn-zstd-0"
GOLDEN = CORPUS.parent / "aiven"
BASES = [int(path.stem) for path in sorted(LOG.glob("*.log"))]
COLUMNS = ["topic", "partition", "offset", "key", "value", "timestampMs"]
Keys = dict[str, Path] | None


def rows(source: Any, **options: Any) -> pa.Table:
    return kolumn.read(source, columns=COLUMNS, **options)


def segments(root: Path | str, keys: Keys = None) -> list[Segment]:
    return [replace(one, access=Access(key_files(keys))) for one in find_segments(root)]


def written_anew(segment: Segment, scratch: Path, without: int | None = None) -> Path:
    """The log of a segment of ``LOG``, without one of its batches, as brokers have it."""
    scratch.mkdir(exist_ok=True)
    source, made = LOG / f"{segment.base_offset:020d}.log", scratch / f"{segment.base_offset:020d}.log"
    for suffix in (".index", ".timeindex"):
        shutil.copy(source.with_suffix(suffix), made.with_suffix(suffix))
    data = source.read_bytes()
    if without is not None:
        row = kolumn.batches(source).slice(without, 1).to_pylist()[0]
        data = data[: row["position"]] + data[row["position"] + row["size"] :]
        # Positions are others now. Brokers make an empty index anew.
        made.with_suffix(".index").write_bytes(b"")
    made.write_bytes(data)
    return made


def opened(manifest: Path, private: Path | None) -> tuple[bytes, dict[str, bytes], list[bytes]]:
    """A segment of Aiven's tier by plain code: its log, its index files, and the start values of all that is encrypted."""
    top, starts = json.loads(manifest.read_text()), list[bytes]()
    index = top["chunkIndex"]
    if "encryption" in top:
        assert private is not None
        wrapped = base64.b64decode(top["encryption"]["dataKey"].rpartition(":")[2])
        sha3: Any = SHA3_512
        cipher = AESGCM(PKCS1_OAEP.new(RSA.import_key(private.read_bytes()), sha3).decrypt(wrapped))

    def plain(data: bytes) -> bytes:
        if "encryption" not in top:
            return data
        starts.append(data[:12])
        return cipher.decrypt(data[:12], data[12:], base64.b64decode(top["encryption"]["aad"]))

    stored, position, log = manifest.with_suffix(".log").read_bytes(), 0, b""
    for size in sizes_in(index):
        part, position = plain(stored[position : position + size]), position + size
        part = zstandard.ZstdDecompressor().decompress(part) if top["compression"] else part
        log += part
        assert len(part) == index["originalChunkSize"] or position == len(stored)
    assert (position, len(log)) == (len(stored), index["originalFileSize"])
    data, indexes = manifest.with_suffix(".indexes").read_bytes(), {}
    places = {name: place for name, place in top["segmentIndexes"].items() if place is not None}
    for name, place in places.items():
        part = data[place["position"] : place["position"] + place["size"]]
        indexes[name] = plain(part) if part else b""
    assert sum(place["size"] for place in places.values()) == len(data)
    return log, indexes, starts


def sizes_in(index: dict[str, Any]) -> Iterator[int]:
    count = -(-index["originalFileSize"] // index["originalChunkSize"])
    if index["type"] == "fixed":
        yield from [index["transformedChunkSize"]] * (count - 1)
        yield index["finalTransformedChunkSize"]
        return
    raw = zstandard.ZstdDecompressor().decompress(base64.b64decode(index["transformedChunks"]))
    assert int.from_bytes(raw[:4], "big") == count
    for chunk in range(count - 1):
        width = raw[8]
        yield int.from_bytes(raw[4:8], "big") + int.from_bytes(raw[9 + chunk * width : 9 + (chunk + 1) * width], "big")
    yield int.from_bytes(raw[-4:], "big")


def tiers_of(root: Path, chunk: int, **how: Any) -> tuple[Path, Keys]:
    made, keys = aiven_of(LOG, root, chunk, indexes=True, **how)
    return made.root, keys


@pytest.mark.parametrize(
    ("zstd", "key", "chunk"), [(False, None, 10_000), (True, None, 5000), (False, "k:1", 777), (True, "main", 300), (True, "main", 1 << 20)]
)
def test_aivens_objects_are_those_of_the_new_log(tmp_path: Path, zstd: bool, key: str | None, chunk: int) -> None:
    source, keys = tiers_of(tmp_path / "source", chunk, zstd=zstd, key=key)
    private, gone, target = next(iter((keys or {}).values()), None), list[int](), tmp_path / "target"
    with outgoing(str(target), []) as place:
        for number, segment in enumerate(segments(source, keys), -3):
            made = written_anew(segment, tmp_path / "made", abs(number))
            gone += range(*offsets_of(segment, abs(number)))
            with place(f"{target}/{tier_folder(segment)}") as folder:
                done = write_in_tier(segment, made, folder)
            assert done.metadata == []
            assert done.replaced == {
                **{"topic": "txn-zstd", "partition": 0, "firstOffset": segment.base_offset, "lastOffset": segment.manifest.last},
                **{"replaces": segment.path, "segment": os.path.relpath(segment.path, source), "segmentId": segment.copy_id},
                **{"newSegmentId": segment.copy_id, "bytes": segment.size, "newBytes": made.stat().st_size},
            }
    assert len(gone) > 5
    for before in sorted(source.glob("*/*/*.rsm-manifest")):
        after = target / before.relative_to(source)
        (_, old, _), (log, new, _) = opened(before, private), opened(after, private)
        assert log == (tmp_path / "made" / f"{before.name[:20]}.log").read_bytes()
        assert new == old | {"offset": b""}
        old_top, new_top = json.loads(before.read_text()), json.loads(after.read_text())
        for name in ("chunkIndex", "segmentIndexes"):
            del old_top[name], new_top[name]
        assert new_top == old_top
    whole = rows(LOG)
    expected = whole.filter(pa.array([offset not in gone for offset in whole["offset"].to_pylist()]))
    assert rows(target, private_keys=keys).equals(expected)
    assert kolumn.verify(target, private_keys=keys).ok
    raises(kolumn.ArgumentError, "already exists", write_all, source, keys, target)


def write_all(source: Path | str, keys: Keys, target: Any, scratch: Path | None = None) -> list[Written]:
    done = []
    with outgoing(str(target), []) as place:
        for segment in segments(source, keys):
            with place(f"{target}/{tier_folder(segment)}") as folder:
                if scratch is None:
                    copy_in_tier(segment, folder)
                else:
                    done.append(write_in_tier(segment, written_anew(segment, scratch), folder))
    return done


def offsets_of(segment: Segment, batch: int) -> tuple[int, int]:
    row = kolumn.batches(LOG / f"{segment.base_offset:020d}.log").slice(batch, 1).to_pylist()[0]
    return row["baseOffset"], row["lastOffset"] + 1


@pytest.mark.parametrize("url", ["{}", "local://{}"])
def test_an_unchanged_log_has_the_same_contents_and_no_start_value_twice(tmp_path: Path, url: str) -> None:
    source, keys = tiers_of(tmp_path / "source", 1000, zstd=True, key="k")
    assert keys is not None
    starts = []
    for number in range(2):
        target = tmp_path / f"target{number}"
        for done in write_all(url.format(source), keys, url.format(target), tmp_path / "made"):
            assert done.replaced["segmentId"] == done.replaced["newSegmentId"]
        for before in sorted(source.glob("*/*/*.rsm-manifest")):
            old, new = opened(before, keys["k"]), opened(target / before.relative_to(source), keys["k"])
            assert new[:2] == old[:2]
            starts += [*new[2], *(old[2] if number == 0 else [])]
    assert len(starts) > 100
    assert len(set(starts)) == len(starts)
    copied = tmp_path / "copied"
    write_all(url.format(source), None, url.format(copied))
    names = sorted(path.relative_to(source) for path in source.glob("*/*/*"))
    assert sorted(path.relative_to(copied) for path in copied.glob("*/*/*")) == names
    assert all((copied / name).read_bytes() == (source / name).read_bytes() for name in names)


@pytest.mark.parametrize(("zstd", "key"), [(False, None), (True, "k")])
def test_an_erasure_writes_aivens_layout(tmp_path: Path, zstd: bool, key: str | None) -> None:
    source, keys = tiers_of(tmp_path / "source", 3000, zstd=zstd, key=key)
    gone, target = sorted(set(filter(None, rows(LOG, end_offset=BASES[2])["key"].to_pylist())))[:20], tmp_path / "target"
    done = kolumn.erase(source, target, keys=gone, private_keys=keys, verify=True)
    assert (done.ok, done.records >= 20, done.metadata.num_rows) == (True, True, 0)
    for level in ("read_uncommitted", "read_committed"):
        whole = rows(LOG, isolation_level=level)
        expected = whole.filter(pa.array([one not in gone for one in whole["key"].to_pylist()]))
        assert rows(target, private_keys=keys, isolation_level=level).equals(expected)
    replaced = {Path(name).name for name in done.replaced["segment"].to_pylist()}
    for path in source.glob("*/*/*.rsm-manifest"):
        assert ((target / path.relative_to(source)).read_bytes() == path.read_bytes()) == (path.name not in replaced)
    assert 0 < len(replaced) < len(BASES)


def test_an_erasure_writes_every_copy_of_a_tier_and_the_folder(tmp_path: Path) -> None:
    """Also those that a read needs nothing of, since brokers have the offsets, or another leader's copy is newer."""
    source = tier_of(LOG, tmp_path / "source")
    for path in sorted(source.glob("*.*"))[:6]:
        shutil.copy(path, source / f"{path.name[:21]}{'A' * 22}{path.suffix}")
    gone, target = [rows(LOG)["key"][0].as_py()], tmp_path / "target"
    done = kolumn.erase([source, LOG], target, keys=gone, verify=True)
    assert (done.ok, done.replaced.num_rows, done.metadata.num_rows) == (True, 2, 8)
    assert [row["segments"] for row in done.partitions.to_pylist()] == [5, 5]
    logs = [*target.glob("*/*.log")]
    assert len(logs) == 10
    assert not any(row in gone for log in logs for row in rows(log)["key"].to_pylist())
    same = [path for path in source.iterdir() if (target / source.name / path.name).exists()]
    assert len(same) == len([*source.iterdir()]) - 12
    raises(kolumn.ArgumentError, "name a folder", kolumn.erase, source, tmp_path / "one.log", keys=gone)


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("layout", ["kafka", "aiven"])
def test_a_run_that_was_killed_while_files_got_their_names_is_completed_at_a_url(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, keys = tier_of(LOG, tmp_path / "source"), None
    if layout == "aiven":
        source, keys = tiers_of(tmp_path / "aiven", 1000, key="k")
    url, moved = f"local://{tmp_path / 'target'}", list[str]()

    def move(name: str, place: str) -> None:
        moved.append(place)
        if len(moved) == 5:
            raise KilledError
        storage_move(name, place)

    storage_move = storage.move
    with monkeypatch.context() as killing:
        killing.setattr(storage, "move", move)
        killing.setattr(run, "withdraw", lambda root, folder: False)
        killing.setattr(outgoing_module, "discard", lambda folder: None)
        with pytest.raises(KilledError):
            write_all(source, keys, url, tmp_path / "made")
    (said,) = kolumn.tidy(url)
    assert said.action == "completed", said
    assert rows(tmp_path / "target", private_keys=keys).equals(rows(source, private_keys=keys))


def test_kafkas_files_get_a_new_id_that_needs_entries(tmp_path: Path) -> None:
    source = tier_of(LOG, tmp_path / "source")
    # Kafka copies none that is empty, other plugins may.
    aborts = sorted(source.glob("*.txnindex"))
    aborts[1].unlink()
    os.truncate(aborts[2], 0)
    for path in source.glob("*.leader_epoch_checkpoint"):
        path.write_text(checkpoint([(0, 0), (1, BASES[1] + 7), (2, BASES[2])]))
    found, target = segments(source), tmp_path / "target"
    done = write_all(source, None, target, tmp_path / "made")
    replaced = pa.Table.from_pylist([one.replaced for one in done], REPLACED_SCHEMA)
    entries = pa.Table.from_pylist([row for one in done for row in one.metadata], METADATA_SCHEMA).to_pylist()
    names = {segment.path: row["segment"] for segment, row in zip(found, replaced.to_pylist(), strict=True)}
    assert len(set(names.values())) == len(names) == 4
    for before, after in names.items():
        assert not (target / source.name / Path(before).name).exists()
        for path in source.glob(f"{Path(before).stem}.*"):
            assert (target / after).with_suffix(path.suffix).read_bytes() == path.read_bytes()
    assert len(list(target.rglob("*.*"))) == len(list(source.iterdir()))
    assert rows(target).equals(rows(source))
    for segment, row, entry in zip(found, replaced.to_pylist(), entries[::4], strict=True):
        log = LOG / f"{segment.base_offset:020d}.log"
        batches = kolumn.batches(log)
        assert entry == {
            **{"topic": "txn-zstd", "topicId": source.name[-22:], "partition": 0, "segmentId": row["newSegmentId"]},
            **{"message": "RemoteLogSegmentMetadataRecord", "remoteLogSegmentState": "COPY_SEGMENT_STARTED"},
            **{"startOffset": segment.base_offset, "endOffset": batches["lastOffset"][-1].as_py()},
            **{"maxTimestampMs": batches["maxTimestampMs"].to_numpy().max(), "segmentSizeInBytes": log.stat().st_size},
            "segmentLeaderEpochs": {
                0: [(0, 0)], 1: [(0, BASES[1]), (1, BASES[1] + 7)], 2: [(2, BASES[2])], 3: [(2, BASES[3])],
            }[BASES.index(segment.base_offset or 0)],
            "txnIndexEmpty": segment.base_offset in BASES[1:3],
        }  # fmt: skip
    states = [(row["remoteLogSegmentState"], row["segmentId"] == replaced["segmentId"][i // 4].as_py()) for i, row in enumerate(entries)]
    started, finished, deleting, deleted = states[:4]
    assert states == [started, finished, deleting, deleted] * 4
    assert [finished, deleting, deleted] == [
        ("COPY_SEGMENT_FINISHED", False), ("DELETE_SEGMENT_STARTED", True), ("DELETE_SEGMENT_FINISHED", True),
    ]  # fmt: skip


def test_a_larger_log_gets_a_new_id_in_aivens_layout_too(tmp_path: Path) -> None:
    """A broker asks for no byte above the size that it knows."""
    source, _ = tiers_of(tmp_path / "source", 1000)
    segment, folder = segments(source)[0], tmp_path / "target" / "txn-zstd-x" / "0"
    made, log = written_anew(segment, tmp_path / "made"), LOG / f"{BASES[0]:020d}.log"
    shutil.copy(log, made)
    # Anything that is larger, with the same end.
    small = replace(segment, size=segment.size - 1)
    folder.mkdir(parents=True)
    done = write_in_tier(small, made, folder)
    number = done.replaced["newSegmentId"]
    assert number != segment.copy_id
    assert [row["segmentId"] for row in done.metadata] == [number, number, segment.copy_id, segment.copy_id]
    assert {row["topicId"] for row in done.metadata} == {tier_folder(segment)[9:31]}
    assert done.metadata[0]["segmentLeaderEpochs"] == [(0, 0)]
    assert {path.name for path in folder.iterdir()} == {f"{0:020d}-{number}{suffix}" for suffix in (".indexes", ".log", ".rsm-manifest")}
    (again,) = find_segments(folder)
    assert again.copy_id == number
    assert rows(folder)["value"].equals(rows(log)["value"])


def test_ids_are_spelled_as_kafka_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([b"\xf8" + bytes(15), bytes(range(16))])
    monkeypatch.setattr(tier, "uuid4", lambda: type("Uuid", (), {"bytes": next(made)}))
    assert tier._new_id() == "AAECAwQFBgcICQoLDA0ODw"


def test_what_cannot_be_right_is_refused(tmp_path: Path) -> None:
    source, keys = tiers_of(tmp_path / "source", 1000, zstd=True, key="k")
    (tmp_path / "other").mkdir()
    other, target = Aiven(tmp_path / "other", 100, key="k").key_file(), tmp_path / "target"
    first = segments(source, keys)[0]
    assert first.manifest is not None
    made = written_anew(first, tmp_path / "made")
    for given, error, words in (
        (None, kolumn.ArgumentError, "encrypted with key 'k'"),
        ({"k": other}, kolumn.KolumnError, "cannot be unwrapped with key 'k'"),
    ):
        raises(error, words, write_in_tier, replace(first, access=Access(key_files(given), holes=True)), made, target)
    # A log that ends before, or with nothing in it, which has no chunk.
    batches = kolumn.batches(made)
    for size, last in ((batches["position"][-1].as_py(), batches["lastOffset"][-2].as_py()), (0, -1)):
        os.truncate(made, size)
        words = rf"{first.path}: expected the last offset {first.manifest.last} as before in the new log, found the last offset {last}$"
        raises(kolumn.KolumnError, words, write_in_tier, first, made, target)
    made = written_anew(first, tmp_path / "made")
    flip(Path(first.manifest.indexes_name), json.loads(Path(first.path).read_text())["segmentIndexes"]["producerSnapshot"]["position"] + 20)
    raises(kolumn.KolumnError, r"expected the \.snapshot that the segment has, found none", write_in_tier, first, made, target)
    Path(first.path).unlink()
    raises(kolumn.KolumnError, "manifest", write_in_tier, replace(first, manifest=replace(first.manifest, indexes=())), made, target)
    made.with_suffix(".timeindex").unlink()
    raises(StorageError, r"\.timeindex: missing", write_in_tier, first, made, target)
    assert not list(target.rglob("*.rsm-manifest"))
    (kafka,) = segments(tier_of(LOG, tmp_path / "kafka", BASES[:1]))
    os.truncate(written_anew(first, tmp_path / "made"), 0)
    raises(kolumn.KolumnError, "expected an entry in the new log, found the last offset -1", write_in_tier, kafka, made, target)


def test_files_appear_in_an_order_in_which_none_is_taken_for_whole_too_early() -> None:
    names = ["a/0.rsm-manifest", "a/0.log", "a/0.indexes", "a/1.rsm-manifest", "a/1.log", "a/2.index", "a/2.log"]
    order = ["a/0.indexes", "a/2.index", "a/0.log", "a/1.log", "a/2.log", "a/0.rsm-manifest", "a/1.rsm-manifest"]
    assert sorted(names, key=logs_last) == order


@pytest.mark.parametrize("mode", ["plain", "zstd", "aes", "zstdaes"])
def test_chunk_indexes_are_those_of_aivens_classes(mode: str) -> None:
    """Byte for byte, but for the zstd frame around sizes."""
    path = GOLDEN / f"{mode}.rsm-manifest"
    manifest, index = parse(str(path), path.read_bytes()), json.loads(path.read_bytes())["chunkIndex"]
    made = tier._chunk_index(manifest, manifest.size, np.diff(manifest.borders).tolist())
    for one in (made, index):
        if one["type"] == "variable":
            one["transformedChunks"] = zstandard.ZstdDecompressor().decompress(base64.b64decode(one["transformedChunks"]))
    assert made == index
    assert list(made) == list(index)


@pytest.mark.skipif("KOLUMN_CORPUS" not in os.environ, reason="needs KOLUMN_CORPUS")
def test_a_manifest_is_that_of_aivens_classes(tmp_path: Path) -> None:
    folder = Path(os.environ["KOLUMN_CORPUS"]) / "tiered" / "aiven"
    if not folder.exists():
        pytest.skip("this corpus has no tier")
    for suffix in (".log", ".rsm-manifest"):
        shutil.copyfile(folder / f"plain{suffix}", tmp_path / f"x{suffix}")
    (tmp_path / "x.indexes").write_bytes(bytes(104))
    made = tmp_path / f"{0:020d}.log"
    shutil.copyfile(folder / "plain.log", made)
    made.with_suffix(".index").write_bytes(bytes(16))
    made.with_suffix(".timeindex").write_bytes(bytes(24))
    (segment,) = segments(tmp_path / "x.rsm-manifest")
    write_in_tier(segment, made, tmp_path / "made")
    assert (tmp_path / "made" / "x.rsm-manifest").read_bytes() == (folder / "plain.rsm-manifest").read_bytes()
    assert (tmp_path / "made" / "x.log").read_bytes() == made.read_bytes()
