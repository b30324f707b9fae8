"""Kafka's own DumpLogSegments finds no errors in what Kolumn writes, converts and compacts, and prints the same of internal topics."""

import shutil
import subprocess
from pathlib import Path

import pytest

import kolumn
from foreign.test_written import WAYS, sample
from kit.corpus import HERE as CORPUS
from kit.corpus import cases
from kit.dumped import BROKERS, DECODERS, Printed, differences, kept, printed, same, topic_of
from kit.java import NEEDS_JAVA
from kit.streams import CODECS

SEGMENTS = sorted({segment for case in cases() if case.directory.parent.name == "internal" for segment in case.segments})
FOLDER = "t-0"
COMPLAINTS = ("mismatch", "non-consecutive", "Non-consecutive", "out of order", "isvalid: false", "Exception", "ERROR", "invalid", "failed")

pytestmark = NEEDS_JAVA


def run(classes: str, tool: str, *options: str, files: list[str]) -> list[str]:
    command = ["java", "-Xmx1g", "-cp", classes, tool, *options, "--files", ",".join(files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.splitlines()


def complaints(broker: str, folder: Path) -> tuple[list[str], int]:
    """What the tool says against the files of a folder, and how many records it prints; of their indexes it says nothing."""
    files = [str(path) for path in sorted(folder.glob("0*")) if path.suffix in (".log", ".index", ".timeindex")]
    lines, of_indexes = (
        run(broker, "kafka.tools.DumpLogSegments", option, files=files) for option in ("--deep-iteration", "--index-sanity-check")
    )
    assert not [line for line in of_indexes if any(word in line for word in COMPLAINTS)]
    assert any(line.startswith("offset: ") and "position: " in line for line in lines), "no index entry was looked at"
    wrong = [line for line in lines if any(word in line for word in COMPLAINTS) and "isvalid: true" not in line]
    wrong += [line for line in lines if "log timestamp:" in line and not line.endswith("log timestamp: -1")]
    return wrong, sum(line.startswith("| offset:") for line in lines)


def of_compacted(broker: str, folder: Path) -> tuple[list[str], int]:
    """Without what the tool says of the broker's own files too: compaction makes holes and empty batches, which have a timestamp."""
    wrong, records = complaints(broker, folder)
    return [line for line in wrong if "onsecutive" not in line and "timestamp mismatch" not in line], records


@pytest.mark.parametrize(("magic", "codec"), WAYS)
def test_written(broker: str, tmp_path: Path, magic: int, codec: int) -> None:
    table = sample(magic)
    # Without gaps, because the tool reports each as non-consecutive.
    offsets = [range(5_000_000_000, 5_000_000_000 + table.num_rows)]
    table = table.set_column(table.schema.get_field_index("offset"), "offset", offsets)
    how = {"segment_bytes": 60_000, "index_interval_bytes": 512, "batch_bytes": 700}
    kolumn.write(table, tmp_path / FOLDER, magic=magic, codec=CODECS[codec], **how)
    assert complaints(broker, tmp_path / FOLDER) == ([], table.num_rows)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_converted(broker: str, tmp_path: Path, magic: int) -> None:
    source = CORPUS / "v1" / next(path.name for path in sorted((CORPUS / "v1").iterdir()) if path.is_dir() and any(path.glob("*.log")))
    done = kolumn.convert(source, tmp_path, magic=magic, codec="gzip", index_interval_bytes=512)
    assert complaints(broker, tmp_path / source.name) == ([], done.records)


@pytest.mark.parametrize("case", ["compacted/compact-lz4-0", "v0/v0-lz4-0", "v1/v1-lz4-0", "transactional/txn-open-0"])
def test_rebuilt_indexes(broker: str, tmp_path: Path, case: str) -> None:
    folder = tmp_path / Path(case).name
    folder.mkdir()
    for path in (CORPUS / case).glob("*.log"):
        shutil.copy(path, folder)
    kolumn.rebuild_index(folder, index_interval_bytes=512)
    assert of_compacted(broker, folder)[0] == []


@pytest.mark.parametrize("case", ["compacted/compact-lz4-0", "compacted-old/v1-compact-snappy-0", "compacted/compact-txn-0"])
def test_compacted(broker: str, tmp_path: Path, case: str) -> None:
    kolumn.compact(CORPUS / case, tmp_path, include_active=True, index_interval_bytes=512)
    records = kolumn.read(tmp_path, columns=["offset"], include_control=True).num_rows
    assert of_compacted(broker, tmp_path / Path(case).name) == ([], records)


def dumped(tool: str, topic: str, files: list[str]) -> dict[str, dict[int, Printed]]:
    """What the tool prints of each segment of a topic, by offset."""
    return printed(run(tool, "org.apache.kafka.tools.DumpLogSegments", DECODERS[topic], files=files))


@pytest.mark.parametrize("topic", sorted({topic_of(segment) for segment in SEGMENTS}))
def test_messages_are_those_of_kafkas_decoders(tool: str, topic: str) -> None:
    compared = 0
    for segment, lines in dumped(tool, topic, [one for one in SEGMENTS if topic_of(one) == topic]).items():
        rows = kolumn.read(segment, topic=topic, decode="internal", include_control=True).to_pylist()
        assert {row["offset"] for row in rows} == set(lines)
        for row in rows:
            key, value, control = lines[row["offset"]]
            assert list(differences(row, key, value, control)) == [], (segment, row["offset"])
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("topic", sorted({topic_of(str(log)) for log in BROKERS.glob("*/*/*.log")}))
def test_what_is_kept_of_other_brokers_is_what_the_tool_prints(tool: str, topic: str) -> None:
    """`tests/behaviour/test_groups.py` compares these messages without the tool."""
    files = {str(log): log for log in BROKERS.glob(f"*/{topic}-0/*.log")}
    assert files
    for segment, lines in dumped(tool, topic, sorted(files)).items():
        assert lines == kept(files[segment])


def test_differences_are_seen() -> None:
    assert (list(same({"a": [1], "b": b"\0"}, {"a": [1], "b": "AA=="})), list(same({"a": [1]}, {"a": [2]}))) == ([], [".a[0]: 1, not 2"])
    assert list(same({"a": 5}, {})) == [".a: 5 is not printed"]
