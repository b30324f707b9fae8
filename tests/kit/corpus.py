"""Segments of real brokers, and what Kafka's own classes read from them."""

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kit import oracle

HERE = Path(__file__).resolve().parents[1] / "data" / "corpus"

RECORD_NAMES = {
    "offset": "offset", "timestampMs": "timestamp_ms", "timestampType": "timestamp_type", "key": "key", "value": "value",
    "headers": "headers", "producerId": "producer_id", "producerEpoch": "producer_epoch", "sequence": "sequence",
    "leaderEpoch": "leader_epoch", "isTransactional": "is_transactional", "isControl": "is_control", "magic": "magic", "codec": "codec",
    "position": "batch_position",
}  # fmt: skip
"""Kolumn's record columns -> columns of the expected file."""

BATCH_NAMES = {
    "position": "position", "size": "size", "lastOffset": "last_offset", "magic": "magic", "codec": "codec", "crc": "crc",
    "crcValid": "is_valid", "timestampType": "timestamp_type", "maxTimestampMs": "max_timestamp", "producerId": "producer_id",
    "producerEpoch": "producer_epoch", "baseSequence": "base_sequence", "leaderEpoch": "leader_epoch",
    "isTransactional": "is_transactional", "isControl": "is_control", "deleteHorizonMs": "delete_horizon_ms",
}  # fmt: skip
"""Kolumn's batch columns -> columns of the expected file; the base offset differs for wrappers."""


@lru_cache(100)
def _table(path: Path) -> pa.Table:
    """Dozens of tests ask for each table, and nobody can change it; a larger corpus is not kept."""
    return pq.read_table(path)


@dataclass(frozen=True)
class Case:
    """A topic-partition directory with its expected contents."""

    directory: Path

    def __str__(self) -> str:
        return f"{self.directory.parent.name}/{self.directory.name}"

    @property
    def segments(self) -> list[str]:
        """Paths of its segments, snapshots of KRaft too, in the order of the expected files."""
        return sorted(str(path) for path in self.directory.iterdir() if path.suffix in (".log", ".checkpoint"))

    def expected(self) -> pa.Table:
        """Every record, control records too."""
        return _table(self._beside("expected.parquet"))

    def expected_batches(self) -> pa.Table:
        """Every outermost entry."""
        return _table(self._beside("batches.parquet"))

    def expected_segments(self) -> list[dict[str, Any]]:
        """Sizes and counts for each segment, and why Kafka's reader stopped."""
        return json.loads(self._beside("segments.json").read_text())

    def _beside(self, suffix: str) -> Path:
        return self.directory.with_name(f"{self.directory.name}.{suffix}")


def cases() -> list[Case]:
    """Cases of the repository, and those of the corpus that KOLUMN_CORPUS names, but for copies of the repository's."""
    return list(_cases(os.environ.get("KOLUMN_CORPUS")))


@lru_cache(1)
def _cases(more: str | None) -> tuple[Case, ...]:
    roots = [HERE, *(Path(path).resolve() for path in [more] if path)]
    suffix = ".expected.parquet"
    found = [Case(path.with_name(path.name.removesuffix(suffix))) for root in roots for path in sorted(root.glob(f"*/*{suffix}"))]
    own = {str(case): case for case in found if HERE in case.directory.parents}
    return tuple(case for case in found if own.get(str(case), case) == case or _files(case) != _files(own[str(case)]))


def _files(case: Case) -> dict[str, Any]:
    """What the files hold: Parquet files of the same rows need not be the same bytes."""
    beside = case.directory.parent.glob(f"{case.directory.name}.*")
    found = (path for path in (*case.directory.iterdir(), *beside) if path.is_file())
    return {path.name: pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes() for path in found}


@lru_cache(1)
def small_segments(limit: int = 4096) -> list[list[bytes]]:
    """Entries in the first ``limit`` bytes of each of the repository's segments: food for damage."""
    found = []
    for path in sorted(HERE.glob("*/*/*.log")):
        data = path.read_bytes()[:limit]
        found.append([data[entry.position : entry.position + entry.size] for entry in oracle.read(data).entries])
    return [entries for entries in found if len(entries) > 1]
