"""Kafka's own DumpLogSegments finds no errors in segments and indexes that Kolumn writes, converts and compacts."""

import subprocess
from pathlib import Path

import pytest

import kolumn
from foreign.test_written import CODECS, CORPUS, WAYS, sample
from kit.java import NEEDS_JAVA

FOLDER = "t-0"
COMPLAINTS = ("mismatch", "non-consecutive", "Non-consecutive", "out of order", "isvalid: false", "Exception", "ERROR", "invalid", "failed")

pytestmark = NEEDS_JAVA


def dump(broker: str, folder: Path, *options: str) -> list[str]:
    """Lines that the tool prints about the files of a folder."""
    files = ",".join(str(path) for path in sorted(folder.glob("0*")) if path.suffix in (".log", ".index", ".timeindex"))
    command = ["java", "-Xmx1g", "-cp", broker, "kafka.tools.DumpLogSegments", *options, "--files", files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()


def check(broker: str, folder: Path, records: int) -> None:
    lines = dump(broker, folder, "--deep-iteration")
    wrong = [line for line in lines if any(word in line for word in COMPLAINTS) and "isvalid: true" not in line]
    assert (wrong, sum(line.startswith("| offset:") for line in lines)) == ([], records)
    assert not [line for line in dump(broker, folder, "--index-sanity-check") if any(word in line for word in COMPLAINTS)]
    assert any(line.startswith("offset: ") and "position: " in line for line in lines), "no index entry was looked at"


@pytest.mark.parametrize(("magic", "codec"), WAYS)
def test_written(broker: str, tmp_path: Path, magic: int, codec: int) -> None:
    table = sample(magic)
    offsets = table.schema.get_field_index("offset")
    table = table.set_column(offsets, "offset", kolumn_offsets(table.num_rows))
    kolumn.write(
        table, tmp_path / FOLDER, magic=magic, codec=CODECS[codec], segment_bytes=60_000, index_interval_bytes=512, batch_bytes=700
    )
    check(broker, tmp_path / FOLDER, table.num_rows)


def kolumn_offsets(rows: int) -> list[list[int]]:
    """Offsets without gaps, because the tool reports each gap as non-consecutive."""
    return [list(range(5_000_000_000, 5_000_000_000 + rows))]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_converted(broker: str, tmp_path: Path, magic: int) -> None:
    source = CORPUS / "v1" / next(path.name for path in sorted((CORPUS / "v1").iterdir()) if path.is_dir() and any(path.glob("*.log")))
    done = kolumn.convert(source, tmp_path, magic=magic, codec="gzip", index_interval_bytes=512)
    check(broker, tmp_path / source.name, done.records)


@pytest.mark.parametrize("case", ["compacted/compact-lz4-0", "v0/v0-lz4-0", "v1/v1-lz4-0", "transactional/txn-open-0"])
def test_rebuilt_indexes(broker: str, tmp_path: Path, case: str) -> None:
    folder = tmp_path / Path(case).name
    folder.mkdir()
    for path in (CORPUS / case).glob("*.log"):
        (folder / path.name).write_bytes(path.read_bytes())
    kolumn.rebuild_index(folder, index_interval_bytes=512)
    lines = dump(broker, folder, "--deep-iteration")
    # Compaction makes holes and empty batches, which the tool reports for the broker's own indexes too.
    wrong = [line for line in lines if any(word in line for word in COMPLAINTS) and "isvalid: true" not in line]
    assert [line for line in wrong if "onsecutive" not in line and "timestamp mismatch" not in line] == []
    assert [line for line in lines if "log timestamp:" in line and not line.endswith("log timestamp: -1")] == []
    assert not [line for line in dump(broker, folder, "--index-sanity-check") if any(word in line for word in COMPLAINTS)]
    assert any(line.startswith("offset: ") and "position: " in line for line in lines), "no index entry was looked at"


@pytest.mark.parametrize("case", ["compacted/compact-lz4-0", "compacted-old/v1-compact-snappy-0", "compacted/compact-txn-0"])
def test_compacted(broker: str, tmp_path: Path, case: str) -> None:
    kolumn.compact(CORPUS / case, tmp_path, include_active=True, index_interval_bytes=512)
    lines = dump(broker, tmp_path / Path(case).name, "--deep-iteration")
    # Compaction makes holes. An empty batch has a timestamp, but no record with it: the tool reports the same for the broker's own
    # index of these segments.
    wrong = [line for line in lines if any(word in line for word in COMPLAINTS) and "isvalid: true" not in line]
    assert [line for line in wrong if "onsecutive" not in line and "timestamp mismatch" not in line] == []
    mismatches = [line for line in lines if "log timestamp:" in line]
    assert [line for line in mismatches if not line.endswith("log timestamp: -1")] == []
    records = kolumn.read(tmp_path, columns=["offset"], include_control=True).num_rows
    assert sum(line.startswith("| offset:") for line in lines) == records
