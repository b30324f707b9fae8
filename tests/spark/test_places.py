"""Hosts that tasks prefer: those of the blocks of segments in HDFS. A small one of Hadoop's own says where blocks are."""

import json
import subprocess
from pathlib import Path

import pyspark
import pytest

from kit.java import NEEDS_JAVA
from kolumn.core.errors import MissingError
from kolumn.spark_plugin import connector_jar
from kolumn.spark_plugin.session.java import Artifact

pytestmark = [*NEEDS_JAVA, pytest.mark.nightly]
HARNESS = Path(__file__).parents[1] / "kit" / "java" / "hdfs" / "WhereBlocksAre.java"


def test_tasks_prefer_the_hosts_with_most_of_their_bytes(tmp_path: Path) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    cluster = Artifact("org.apache.hadoop", "hadoop-client-minicluster", client.stem.rpartition("-")[2])
    try:
        path = f"{cluster.fetch()}:{connector_jar()}:{jars}/*"
    except MissingError as error:
        pytest.skip(str(error))
    several = [[["FILE0", 0, 10], ["FILE1", 0, 1000], ["FILE2", 0, 10**5], ["FILE0", 0, 10**6]], [["FILE1", 5, 6]], []]
    fails = [[["FILE1", 0, 5]], [["FILE1", 0, 5], ["hdfs://127.0.0.1:1/kafka", 0, 5]], [["FILE1", 0, 5]]]
    command = ["java", "-cp", path, str(HARNESS), str(tmp_path), *map(json.dumps, (several, None, fails))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    found = [json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert found == [
        [["one.test", "three.test", "two.test"], ["two.test"], []],
        [[]],
        # Without an answer for one file the query goes on, and no more is asked.
        [["two.test"], [], []],
    ], done.stdout[-2000:] + done.stderr[-5000:]
