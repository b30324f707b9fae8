"""Conversion, compaction and erasure have the same results as Spark jobs and in one process."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kolumn
from kit import redpanda
from kit.corpus import HERE as CORPUS
from kolumn import spark_plugin
from kolumn.core.errors import ArgumentError

ANYWHERE = pytest.mark.parametrize("scheme", [pytest.param("", id="path"), pytest.param("local://", marks=pytest.mark.slow, id="URL")])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("upgraded", {"magic": 2}),
        ("v2-java", {"format": "v3-compact"}),
        ("internal", {"format": "redpanda"}),
        ("transactional", {"magic": 1, "codec": "gzip", "drop_transactions": True}),
    ],
)
@ANYWHERE
def test_convert(spark: SparkSession, tmp_path: Path, case: str, options: dict[str, Any], scheme: str) -> None:
    target = f"{scheme}{tmp_path / 'other'}"
    expected = kolumn.convert(CORPUS / case, tmp_path / "one", **options)
    done = spark_plugin.convert(spark, str(CORPUS / case), target, **options)
    assert files(tmp_path / "other") == files(tmp_path / "one")
    assert (done.records, done.batches, done.copied, done.lost) == (expected.records, expected.batches, expected.copied, expected.lost)
    assert done.segments == [f"{scheme}{path}".replace("/one/", "/other/") for path in expected.segments]
    with pytest.raises(ArgumentError, match="already exists"):
        spark_plugin.convert(spark, str(CORPUS / case), target, **options)


def test_convert_from_redpanda(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks know which offsets a segment's become, though they do not read the segments before it."""
    log = redpanda.mixed((CORPUS / "v2-append-time" / "append-time-0" / f"{0:020}.log").read_bytes(), {0: (2, 2), 20: (2,), 50: (19,)})
    cut = [0, *(at for at, *_ in list(redpanda.headers(log.data))[30:60:29]), len(log.data)]
    source = tmp_path / "source" / "0_7"
    source.mkdir(parents=True)
    for start, stop in pairwise(cut):
        (source / f"{int.from_bytes(log.data[start + 8 : start + 16], 'little')}-3-v1.log").write_bytes(log.data[start:stop])
    expected = kolumn.convert(source, tmp_path / "one", source_format="redpanda")
    done = spark_plugin.convert(spark, str(source), str(tmp_path / "other"), source_format="redpanda")
    assert files(tmp_path / "other") == files(tmp_path / "one")
    assert len(done.segments) == len(cut) - 1
    assert (done.records, done.copied, done.lost) == (expected.records, expected.copied, expected.lost)
    found = kolumn.read(Path(done.segments[0]).parent, columns=["offset"])["offset"].to_pylist()
    assert found == sorted(log.offsets.values())


@ANYWHERE
@pytest.mark.parametrize(("case", "include_active"), [("compacted", True), ("compacted-old", False)])
def test_compact(spark: SparkSession, tmp_path: Path, case: str, include_active: bool, scheme: str) -> None:
    now = 1_795_203_600_000
    expected = kolumn.compact(CORPUS / case, tmp_path / "one", include_active=include_active, now=now)
    done = spark_plugin.compact(spark, str(CORPUS / case), f"{scheme}{tmp_path / 'other'}", include_active=include_active, now=now)
    assert files(tmp_path / "other") == files(tmp_path / "one")
    assert (done.records, done.retained, done.bytes) == (expected.records, expected.retained, expected.bytes)


@ANYWHERE
@pytest.mark.parametrize("case", ["compacted-old", "transactional"])
def test_erase(spark: SparkSession, tmp_path: Path, case: str, scheme: str) -> None:
    keys = sorted({key for key in kolumn.read(CORPUS / case)["key"].to_pylist() if key is not None})[::20]
    expected = kolumn.erase(CORPUS / case, tmp_path / "one", keys=keys)
    target = f"{scheme}{tmp_path / 'other'}"
    done = spark_plugin.erase(spark, str(CORPUS / case), target, keys=keys, verify=True)
    assert files(tmp_path / "other") == files(tmp_path / "one")
    assert expected.records > 0
    assert done.partitions.drop("folder").equals(expected.partitions.drop("folder"))
    assert done.erased.equals(expected.erased)
    assert done.verification is not None
    assert all(done.verification["ok"].to_pylist())
    with pytest.raises(ArgumentError, match="already exists"):
        spark_plugin.erase(spark, str(CORPUS / case), target, keys=keys)


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    [good, *_] = sorted((CORPUS / "upgraded").glob("*/*.log"))
    (source / f"{0:020}.log").write_bytes(good.read_bytes())
    damaged = bytearray(good.read_bytes())
    damaged[100] ^= 1
    (source / f"{10_000:020}.log").write_bytes(damaged)
    options: Any
    for work, options in ((spark_plugin.convert, {"magic": 2}), (spark_plugin.compact, {"include_active": True})):
        with pytest.raises(Exception, match=r"crc: expected"):
            work(spark, str(source), str(tmp_path / "out"), **options)
        assert files(tmp_path / "out") == {}
    done = spark_plugin.convert(spark, str(source), str(tmp_path / "out"), errors="skip")
    assert len(done.damage) == 1
    with pytest.raises(ArgumentError, match="first_dirty_offset"):
        spark_plugin.compact(spark, str(source), str(tmp_path / "two"), first_dirty_offset=5)
