"""`recover` writes every intact batch of damaged copies, once, as folders that are sound, and says what is lost."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit import encoder
from kit.asked import invoked, offsets, put, skipping
from kit.corpus import HERE, cases
from kit.outcome import raises
from kit.replicas import COLUMNS, copy, damaged, flip, last_bytes, logs, make_log, records, rows_of, write_log
from kit.tiers import aiven_of, tier_of
from kolumn.log.pieces import entry_chunks

TRANSACTIONAL = HERE / "transactional" / "txn-lz4-0"
WHOLE = [case for case in cases() if case.directory.parent.name not in ("unclean", "compacted", "compacted-old", "internal")]


def contents(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in suffixes}


def stored(folder: Path) -> list[bytes]:
    rows = kolumn.batches(folder, errors="skip").to_pylist()
    return [Path(row["segment"]).read_bytes()[row["position"] :][: row["size"]] for row in rows if row["crcValid"]]


def batches(first: int, end: int, count: int = 5) -> list[bytes]:
    return [encoder.batch(records(offset, count)) for offset in range(first, end, count)]


def lost(done: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in done.lost.to_pylist()]


RANGE = ("firstOffset", "lastOffset")


def sound(folder: Path) -> None:
    """Nothing is damaged, and no side file contradicts the log."""
    report = kolumn.verify(folder)
    assert report.ok
    assert {row["kind"] for row in report.remarks.to_pylist()} <= {"offset-gap"}


@pytest.mark.sample
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_what_is_whole_stays_what_it_is(case: Any, tmp_path: Path) -> None:
    done = kolumn.recover(case.directory, tmp_path)
    folder = tmp_path / case.directory.name
    assert contents(folder, ".log") == contents(case.directory, ".log")
    assert (done.ok, done.lost.num_rows) == (True, 0)
    assert done.partitions["records"].to_pylist() == [case.expected().num_rows]
    assert kolumn.verify(folder).remarks.num_rows == kolumn.verify(case.directory).remarks.num_rows
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        # Of a log whose start was moved the checkpoint begins there; the records before it are still in the segment, and are kept.
        if (case.directory / name).exists() and (folder / name).exists() and "delete-records" not in str(case):
            assert (folder / name).read_bytes() == (case.directory / name).read_bytes()
    assert not contents(folder, ".snapshot", ".kafka_cleanshutdown")


@pytest.mark.parametrize("name", ["v2-java/java-zstd-0", "upgraded/upgraded-lz4-0", "v1-native/v1-native-gzip-0"])
def test_every_intact_batch_of_one_copy_is_kept(name: str, tmp_path: Path) -> None:
    directory = next((case.directory for case in cases() if str(case) == name), HERE / "v2-java" / "java-zstd-0")
    source = copy(directory, tmp_path / "disk")
    last_bytes(source, lambda number: number % 7 == 3)
    done = kolumn.recover(source, tmp_path / "out")
    folder = tmp_path / "out" / source.name
    assert stored(folder) == stored(source)
    assert not done.ok
    before, after = (set(offsets(one, errors="skip", include_control=True)) for one in (directory, folder))
    gone = [(row["certainty"], row["recordsLost"], range(row["firstOffset"], row["lastOffset"] + 1)) for row in done.lost.to_pylist()]
    assert sorted(before - after) == [offset for *_, places in gone for offset in places]
    assert all(count == len(places) for certainty, count, places in gone if certainty == "exact")
    sound(folder)


def test_copies_damaged_at_different_places_lose_nothing(tmp_path: Path) -> None:
    copies = [copy(TRANSACTIONAL, tmp_path / name) for name in ("b1", "b2")]
    for i, folder in enumerate(copies):
        last_bytes(folder, lambda number, i=i: number % 2 == i)
    done = kolumn.recover(copies, tmp_path / "out")
    folder = tmp_path / "out" / TRANSACTIONAL.name
    for suffix in (".log", ".txnindex"):
        assert contents(folder, suffix) == contents(TRANSACTIONAL, suffix)
    assert contents(folder, ".index", ".timeindex").keys() >= contents(TRANSACTIONAL, ".index").keys()
    assert (done.ok, set(done.kept["source"].to_pylist())) == (True, set(map(str, copies)))
    assert sum(done.kept["batches"].to_pylist()) == done.partitions["batches"][0].as_py() == kolumn.batches(TRANSACTIONAL).num_rows
    for isolation in ("read_committed", "read_uncommitted"):
        assert kolumn.read(folder, isolation_level=isolation) == kolumn.read(TRANSACTIONAL, isolation_level=isolation)
    assert kolumn.verify(folder).remarks.num_rows == 0


def test_what_all_copies_have_lost_is_counted(tmp_path: Path) -> None:
    entries = batches(0, 50)
    folders = [write_log(tmp_path / name, (0, entries[:6]), (30, entries[6:])) for name in ("b1", "b2")]
    for folder in folders:
        flip(logs(folder)[0], len(b"".join(entries[:3])) - 1)
    flip(logs(folders[0])[1], 100)
    done = kolumn.recover(folders, tmp_path / "out")
    assert lost(done, "kind", *RANGE, "recordsLost", "certainty") == [("damage", 10, 14, 5, "exact")]
    assert offsets(tmp_path / "out") == [*range(10), *range(15, 50)]
    assert "<b>1 stretch lost: 45 records recovered in 1 partition</b>" in done._repr_html_()


def test_the_end_of_the_log_is_unknown_and_its_offsets_are_not_given_again(tmp_path: Path) -> None:
    entries = batches(0, 30)
    folder = write_log(tmp_path, (0, entries[:4]), (20, entries[4:]))
    logs(folder)[1].write_bytes(b"\xff" * 300)
    done = kolumn.recover(folder, tmp_path / "out")
    assert lost(done, *RANGE, "recordsLost", "certainty") == [(20, None, None, "unknown")]
    assert [(int(path.stem), path.stat().st_size > 0) for path in logs(tmp_path / "out" / "t-0")] == [(0, True), (20, False)]
    # A torn end is no damage.
    torn = write_log(tmp_path / "torn", (0, [entries[0], entries[1][:-9]]))
    done = kolumn.recover(torn, tmp_path / "whole")
    assert (done.ok, lost(done, "kind", "firstOffset", "certainty")) == (True, [("tail", 5, "unknown")])
    sound(tmp_path / "whole")


def test_batches_that_are_cut_differently_are_kept_whole(tmp_path: Path) -> None:
    every = records(0, 30)
    first = [encoder.batch(every[a:b]) for a, b in ((0, 5), (5, 10), (10, 15), (15, 30))]
    second = [encoder.batch(every[a:b]) for a, b in ((0, 10), (10, 13), (13, 30))]
    folders = [write_log(tmp_path / "b1", (0, first)), write_log(tmp_path / "b2", (0, second))]
    flip(logs(folders[0])[0], len(first[0]) - 1)
    flip(logs(folders[1])[0], len(second[0]) + len(second[1]) - 1)
    assert kolumn.recover(folders, tmp_path / "out").ok
    assert offsets(tmp_path / "out") == list(range(30))
    assert set(stored(tmp_path / "out" / "t-0")) <= set(first) | set(second)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("cuts", [(3, 5), (12, 15)], ids=["the first is across", "the second is across"])
def test_a_batch_across_others_is_encoded_again(cuts: tuple[int, int], magic: int, tmp_path: Path) -> None:
    """Only its records that no other batch has; they are what they were, with the producer's sequence."""
    every = records(0, 20)

    def entry(start: int, end: int) -> bytes:
        if magic < 2:
            return encoder.wrapper(magic, every[start:end], 1)
        return encoder.batch(every[start:end], codec=1, producer_id=7, producer_epoch=1, base_sequence=start, leader_epoch=3)

    first, second = [entry(0, cuts[1]), entry(cuts[1], 20)], [entry(0, cuts[0]), entry(cuts[0], 20)]
    whole = write_log(tmp_path / "whole", (0, first))
    one, other = write_log(tmp_path / "b1", (0, first)), write_log(tmp_path / "b2", (0, second))
    flip(logs(one)[0], len(first[0]) + 70)
    flip(logs(other)[0], len(second[0]) - 1)
    done = kolumn.recover([one, other], tmp_path / "out")
    columns = ["offset", "timestampMs", "key", "value", "headers", "producerId", "producerEpoch", "sequence", "leaderEpoch"]
    assert kolumn.read(tmp_path / "out", columns=columns).equals(kolumn.read(whole, columns=columns))
    assert (done.ok, done.lost.num_rows) == (True, 0)
    sound(tmp_path / "out" / "t-0")


def test_formats_in_one_log_and_leader_epochs(tmp_path: Path) -> None:
    every = records(0, 60)
    entries = [encoder.message(0, every[0]), encoder.wrapper(0, every[1:6], 1), encoder.message(1, every[6])]
    entries += [encoder.wrapper(1, every[7:20], 3)]
    entries += [encoder.batch(every[a:b], leader_epoch=epoch) for a, b, epoch in ((20, 30, 2), (30, 45, 2), (45, 60, 5))]
    folder = write_log(tmp_path, (0, entries))
    flip(logs(folder)[0], len(b"".join(entries[:4])) - 1)
    done = kolumn.recover(folder, tmp_path / "out")
    assert offsets(tmp_path / "out") == [*range(7), *range(20, 60)]
    assert (tmp_path / "out" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n2 20\n5 45\n"
    assert lost(done, *RANGE) == [(7, 19)]
    sound(tmp_path / "out")


@pytest.mark.parametrize("damaged_one", [1, 2])
def test_a_wrapper_with_a_damaged_offset_gets_that_of_its_last_message(damaged_one: int, tmp_path: Path) -> None:
    every = records(0, 20)
    wrappers = [encoder.wrapper(0, every[i : i + 5], 1) for i in range(0, 20, 5)]
    changed = list(wrappers)
    changed[damaged_one] = (1 << 44).to_bytes(8, "big") + changed[damaged_one][8:]
    kolumn.recover(write_log(tmp_path / "disk", (0, changed[:3]), (15, changed[3:])), tmp_path / "out")
    assert stored(tmp_path / "out" / "t-0") == wrappers
    sound(tmp_path / "out")


@pytest.mark.sample
@pytest.mark.parametrize(
    "names",
    [
        *({name: other} for name, other in ((30, 33), (30, 28), (30, 1000), (0, 7), (60, 59), (60, 5), (90, 31), (90, 120))),
        {30: 60, 60: 30}, {0: 60, 60: 0, 30: 2},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("copies", [1, 2])
def test_segments_under_wrong_names(names: dict[int, int], copies: int, tmp_path: Path) -> None:
    """Intact entries that adjoin each other are believed; 90 is no segment, but a copy of the one from 30 on under another name."""
    segments = [(base, [encoder.batch(records(offset, 5)) for offset in range(base, base + 30, 5)]) for base in (0, 30, 60)]
    whole = write_log(tmp_path / "whole", *segments)
    folders = [write_log(tmp_path / "a", *((names.get(base, base), entries) for base, entries in segments))]
    if 90 in names:
        put(folders[0], *segments[1][1], base=names[90])
    if copies == 2:
        folders.append(write_log(tmp_path / "b", segments[0], (30, segments[1][1][:3])))
        assert rows_of(kolumn.read(folders, replicas="merge", columns=COLUMNS)) == rows_of(kolumn.read(whole, columns=COLUMNS))
    done = kolumn.recover(folders, tmp_path / "out")
    assert (done.ok, done.lost.num_rows) == (True, 0)
    sound(tmp_path / "out")
    assert b"".join(path.read_bytes() for path in logs(tmp_path / "out" / "t-0")) == b"".join(path.read_bytes() for path in logs(whole))


def test_segments_that_are_gone_or_under_other_names(tmp_path: Path) -> None:
    """Without index files retention looks the same. What another copy has is not lost."""
    folders = [write_log(tmp_path / name, (0, batches(0, 30)), (30, batches(30, 60))) for name in ("a", "b")]
    kolumn.rebuild_index(folders[0], index_interval_bytes=100)
    logs(folders[0])[0].unlink()
    done = kolumn.recover(folders[0], tmp_path / "out")
    assert lost(done, "kind", *RANGE, "recordsAtMost") == [("damage", 0, 29, 30)]
    assert "00000000000000000000.index, which lists offset 2" in done.lost["reason"][0].as_py()
    assert kolumn.recover(folders, tmp_path / "both").lost.num_rows == 0
    # The entry after it is damaged, so it adjoins none.
    moved = batches(30, 60)
    folder = write_log(tmp_path / "2", (0, batches(0, 30)), (30, batches(60, 90)), (60, moved))
    flip(folder / f"{60:020}.log", len(moved[0]) + 100)
    assert lost(kolumn.recover(folder, tmp_path / "2" / "out"), *RANGE, "certainty") == [(35, 39, "exact")]
    assert offsets(tmp_path / "2" / "out") == [*range(35), *range(40, 90)]
    # It adjoins no neighbour's; so does the first entry of a segment that is misnamed and has no other.
    entries = batches(0, 30)
    entries[3] = (3).to_bytes(8, "big") + entries[3][8:]
    entries[2] = (10_010).to_bytes(8, "big") + entries[2][8:]
    done = kolumn.recover(write_log(tmp_path / "3", (0, entries[:3]), (15, entries[3:])), tmp_path / "3" / "out")
    assert offsets(tmp_path / "3" / "out") == [*range(10), *range(20, 30)]
    assert lost(done, *RANGE) == [(10, 14), (15, 19)]


@pytest.mark.sample
@pytest.mark.parametrize("seed", range(40))
def test_random_copies(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = make_log(rng, rng.randint(2, 9))
    copies = [tmp_path / f"b{i}" for i in range(rng.choice((1, 2, 2, 3)))]
    for one in copies:
        damaged(rng, log, one / "t-0", 0.7)
    kolumn.recover(copies, tmp_path / "out")
    options: dict[str, Any] = {"columns": COLUMNS, "include_control": True}
    expected = rows_of(kolumn.read(copies, replicas="merge", errors="skip", **options))
    assert rows_of(kolumn.read(tmp_path / "out", errors="skip", **options)) == expected
    assert set(stored(tmp_path / "out" / "t-0")) <= {one for folder in copies for one in stored(folder / "t-0")} | set(log.entries)


def test_a_tier_and_the_folder_of_the_broker(tmp_path: Path) -> None:
    """What one has lost the other has, but for a batch at the end of a segment that only the tier has."""
    entries = batches(0, 80, 10)
    whole = write_log(tmp_path / "broker", *((10 * i, entries[i : i + 2]) for i in range(0, 8, 2)))
    tier = tier_of(whole, tmp_path / "tier")
    logs(whole)[0].unlink()
    flip(logs(whole)[0], 100)
    flip(logs(tier)[0], len(entries[0]) + 100)
    done = kolumn.recover([tmp_path / "tier", tmp_path / "broker"], tmp_path / "out")
    assert offsets(tmp_path / "out") == [*range(10), *range(20, 80)]
    assert lost(done, *RANGE, "recordsLost", "certainty") == [(10, 19, 10, "exact")]
    assert [int(path.stem) for path in logs(tmp_path / "out" / "t-0")] == [0, 20, 40, 60]
    sound(tmp_path / "out")


def test_an_encrypted_tier(tmp_path: Path) -> None:
    source = copy(HERE / "transactional" / "txn-zstd-0", tmp_path / "disk")
    made, keys = aiven_of(source, tmp_path / "tier", 5000, zstd=True, key="main")
    assert keys is not None
    raises(kolumn.ArgumentError, "expected its private key in private_keys=", kolumn.recover, made.root, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    done = kolumn.recover(made.root, tmp_path / "made", private_keys=keys)
    assert done.ok
    assert contents(tmp_path / "made" / source.name, ".log") == contents(source, ".log")
    sound(tmp_path / "made" / source.name)
    # Of a changed chunk only the batches in it are lost, and the broker's folder has them still.
    log = sorted(made.root.glob("*/*/*.log"))[0]
    flip(log, log.stat().st_size // 2)
    worse = kolumn.recover(made.root, tmp_path / "worse", private_keys=keys)
    assert not worse.ok
    assert 0 < worse.partitions["records"][0].as_py() < done.partitions["records"][0].as_py()
    assert kolumn.recover([made.root, source], tmp_path / "both", private_keys=keys).ok
    assert contents(tmp_path / "both" / source.name, ".log") == contents(source, ".log")
    command = ["recover", str(made.root), "-o", str(tmp_path / "command"), "--key-file", f"main={keys['main']}"]
    assert invoked(*command).exit_code == 1
    assert contents(tmp_path / "command" / source.name, ".log") == contents(tmp_path / "worse" / source.name, ".log")


def test_a_manifest_that_is_malformed_loses_its_segment_alone(tmp_path: Path) -> None:
    source = copy(HERE / "transactional" / "txn-zstd-0", tmp_path / "disk")
    made, keys = aiven_of(source, tmp_path / "tier", 5000, zstd=True, key="main")
    paths = logs(source)
    bad = sorted(made.root.glob("*/*/*.rsm-manifest"))[1]
    bad.write_text(bad.read_text().replace('"originalChunkSize": 5000', '"originalChunkSize": 0'))
    first, end = int(paths[1].stem), int(paths[2].stem)
    words = rf"{bad.name}: .*originalChunkSize: expected an integer from 1 .*found '0'"
    raises(kolumn.KolumnError, words, kolumn.read, made.root, private_keys=keys)
    left = [offset for offset in offsets(source) if not first <= offset < end]
    found, skipped = skipping(made.root, private_keys=keys)
    assert found["offset"].to_pylist() == left
    assert [(one.segment, "originalChunkSize" in one.reason) for one in skipped.damage] == [(str(bad), True)]
    for replicas in ("first", "merge"):
        assert offsets(made.root, private_keys=keys, errors="skip", replicas=replicas) == left
    listed: list[kolumn.Damage] = []
    kolumn.batches(made.root, private_keys=keys, errors="skip", on_damage=listed.append)
    assert [one.segment for one in listed] == [str(bad)]
    report = kolumn.verify(made.root, private_keys=keys)
    assert (report.ok, report.damage["segment"].to_pylist()) == (False, [str(bad)])
    done = kolumn.recover(made.root, tmp_path / "made", private_keys=keys)
    assert lost(done, "segment", *RANGE) == [(str(bad), first, end - 1)]
    assert kolumn.recover([made.root, source], tmp_path / "both", private_keys=keys).ok
    # Alone it is no source, and a report of what is not there.
    assert kolumn.read(bad, private_keys=keys, errors="skip").num_rows == 0
    bad.write_text("{")
    assert kolumn.recover(bad, tmp_path / "none", private_keys=keys).lost["segment"].to_pylist() == [str(bad)]


def test_several_topics_and_their_ids(tmp_path: Path) -> None:
    for name in ("a-0", "b-c-3"):
        put(tmp_path / "disk" / name, encoder.batch(records(7, 5)), base=7)
    (tmp_path / "disk" / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (tmp_path / "disk" / "b-c-3" / "partition.metadata").write_text("version: 0\ntopic_id: nothing\n")
    done = kolumn.recover(tmp_path / "disk", tmp_path / "out")
    assert [(row["topic"], row["partition"], row["records"]) for row in done.partitions.to_pylist()] == [("a", 0, 5), ("b-c", 3, 5)]
    assert (tmp_path / "out" / "a-0" / "partition.metadata").exists()
    assert not (tmp_path / "out" / "b-c-3" / "partition.metadata").exists()


def test_sources_and_targets_that_are_refused(tmp_path: Path) -> None:
    folder, other = (write_log(tmp_path / name, (0, [encoder.batch(records(0, 5, text))])) for name, text in (("b1", b"v"), ("b2", b"w")))
    (tmp_path / "out" / "t-0").mkdir(parents=True)
    (tmp_path / "out" / "t-0" / "mine").write_text("mine")
    some = shutil.copy(logs(folder)[0], tmp_path / "some.log")
    for words, source, target, options in (
        ("already exists", folder, tmp_path / "out", {}),
        ("is it a source", folder, folder, {}),
        ("at least 1", folder, tmp_path / "new", {"index_interval_bytes": 0}),
        ("topic=", some, tmp_path / "new", {}),
        ("20 digits", some, tmp_path / "new", {"topic": "t", "partition": 0}),
        ("no copies of", [folder, other], tmp_path / "new", {}),
    ):
        raises(kolumn.ArgumentError, words, kolumn.recover, source, target, **options)
    assert not (tmp_path / "new").exists()


def test_a_log_that_changes_meanwhile_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(*args: Any, **options: Any) -> Any:
        for chunk in entry_chunks(*args, **options):
            chunk.entries.array[-1, :] = 0
            yield from ()

    monkeypatch.setattr("kolumn.tools.broker_folders.entry_chunks", cut_short)
    raises(kolumn.KolumnError, "changed while it was copied", kolumn.recover, write_log(tmp_path, (0, batches(0, 10))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command(tmp_path: Path) -> None:
    entries = batches(0, 20)
    folder = write_log(tmp_path, (0, entries))
    assert invoked("recover", folder, tmp_path / "whole").exit_code == 0
    flip(logs(folder)[0], len(entries[0]) - 1)
    result = invoked("recover", folder, tmp_path / "out")
    assert result.exit_code == 1
    for text in ("Written", "Where it comes from", "Lost", "exact", "1 stretch lost: 15 records in 1 partition"):
        assert text in result.stdout
    result = invoked("recover", folder, "-o", tmp_path / "json", "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["ok"], said["lost"][0]["recordsLost"], said["partitions"][0]["records"]) == (1, False, 5, 15)
    assert invoked("recover", folder, "-o", tmp_path / "json").exit_code == 2
