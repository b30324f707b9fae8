"""Kolumn on YARN: Hadoop's own daemons on this machine, an environment that containers unpack, both deploy modes, both readers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

import kolumn
from kit.corpus import HERE as CORPUS
from kit.yarn import cluster_jars, packed_environment, submit, yarn
from kolumn.core.errors import MissingError
from kolumn.spark_plugin import connector_jar

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1800)]

LOG = CORPUS / "v2-java" / "java-zstd-0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    try:
        jars = cluster_jars()
    except MissingError as error:
        pytest.skip(f"Hadoop's cluster could not be fetched: {error}")
    folder = tmp_path_factory.mktemp("yarn")
    archive = packed_environment(folder)
    with yarn(folder / "cluster", jars) as conf:
        yield conf, archive


@pytest.mark.parametrize("mode", ["cluster", "client"])
@pytest.mark.parametrize("reader", ["columnar", "python"])
def test_a_packed_environment_reads_streams_and_writes(cluster: tuple[Path, Path], tmp_path: Path, mode: str, reader: str) -> None:
    conf, archive = cluster
    submit(
        conf,
        archive,
        mode,
        Path(__file__).with_name("yarn_job.py"),
        LOG,
        tmp_path,
        reader,
        jar=connector_jar() if reader == "columnar" else None,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    table = kolumn.read(LOG, columns=["offset", "value"])
    late = table.filter(pc.greater_equal(table["offset"], 5))
    sums = [pc.sum(late["offset"]).as_py(), pc.sum(pc.binary_length(late["value"])).as_py()]
    assert found["rows"] == [["java-zstd", 0, late.num_rows, late.num_rows, *sums]]
    assert [found[name] for name in ("count", "streamed", "written")] == [table.num_rows] * 3
    # The Python is the one of the archive, in containers; a Unix socket's path could not lie in their temporary folder.
    assert all("/job/bin/python" in python and str(conf) in python for python in found["pythons"])
    python, temporary, container = found["driver"]
    if mode == "cluster":
        assert container is not None
        assert "/job/bin/python" in python
        assert len(temporary) > 108
