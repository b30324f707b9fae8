"""A log of Redpanda that was converted, in a folder of a real broker of Kafka: consumers get every record at its offset."""

import struct
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import kolumn
from kit import redpanda
from kit.cluster import LEVELS, Cluster
from kit.corpus import HERE, Case
from kit.java import NEEDS_JAVA

pytestmark = NEEDS_JAVA
NAMES = ("txn-lz4", "txn-zstd")
OWN: dict[int, tuple[int, ...]] = {0: (2, 2), 3: (10,), 40: (19, 10), 90: (2, 23)}


def test_a_broker_serves_a_converted_log(tool: str, tmp_path: Path) -> None:
    """Of several segments, with transactions, without a clean shutdown: the broker reads them, and finds out which are aborted."""
    cluster = Cluster(tool, tmp_path / "cluster")
    with cluster.running():
        cluster.create({name: {} for name in NAMES})
    folders, expected, ends = dict[str, Path](), dict[str, dict[str, list[dict[str, Any]]]](), dict[str, int]()
    for name in NAMES:
        case = Case(HERE / "transactional" / f"{name}-0")
        log = redpanda.mixed(b"".join(Path(path).read_bytes() for path in case.segments), OWN)
        cut = [at for at, *_ in redpanda.headers(log.data)]
        source = tmp_path / "data" / name / "0_21"
        source.mkdir(parents=True)
        for start, stop in ((0, cut[50]), (cut[50], cut[91]), (cut[91], len(log.data))):
            base = struct.unpack_from("<q", log.data, start + 8)[0]
            (source / f"{base}-3-v1.log").write_bytes(log.data[start:stop])
        done = kolumn.convert(source, tmp_path / "new" / name, source_format="redpanda")
        folders[name], ends[name] = Path(done.segments[0]).parent, log.end - log.delta
        # Kafka's own classes have read the same records at these offsets, before batches of Redpanda's own came between.
        known = case.expected().to_pylist()
        assert len(known) == len(log.offsets)
        new_offset = dict(zip((row["offset"] for row in known), sorted(log.offsets.values()), strict=True))
        for level in LEVELS:
            seen = kolumn.read(case.directory, columns=["offset", "key", "value"], isolation_level=level).to_pylist()
            expected.setdefault(name, {})[level] = [row | {"offset": new_offset[row["offset"]]} for row in seen]
        assert 0 < len(expected[name]["read_committed"]) < len(expected[name]["read_uncommitted"])
    cluster.replace(folders)
    cluster.forget(set(folders))
    with cluster.running():
        new = Producer({"bootstrap.servers": cluster.address})
        for name, end in ends.items():
            for level in LEVELS:
                assert cluster.records(name, level) == expected[name][level], (name, level)
            offsets: list[int] = []
            new.produce(name, b"last", partition=0, on_delivery=lambda _, message, to=offsets: to.append(message.offset()))
            assert new.flush(60) == 0
            assert offsets == [end]
