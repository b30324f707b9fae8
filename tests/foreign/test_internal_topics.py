"""Kafka's own decoders print the same messages of internal topics, field by field: DumpLogSegments of Kafka 4.3.0."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.corpus import HERE, cases
from kolumn.values.internal.definitions import definitions
from kolumn.values.internal.wire import MessageBytes, reader

ROOT = Path(__file__).parents[2]
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
SEGMENTS = sorted({segment for case in cases() if case.directory.parent.name == "internal" for segment in case.segments})
LINE = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\] (?:key: (\{.*?\}) payload: (\{.*\}|<DELETE>)|payload: (\{.*\})|(\w+):? (\{.*\}))$")
CONTROL = {"LeaderChange": "LEADER_CHANGE", "SnapshotHeader": "SNAPSHOT_HEADER", "SnapshotFooter": "SNAPSHOT_FOOTER"}
CONTROL |= {"KRaftVersion": "KRAFT_VERSION", "KRaftVoters": "KRAFT_VOTERS"}
PROTOCOL = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
DEFAULTS: tuple[Any, ...] = (None, -1, -2, 0, "", [], False, "A" * 22)
"""What the tool leaves out: fields that a version does not have, and tagged fields with their default."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, ("java", "mvn"))), reason="needs Java and Maven on the PATH"),
]


@pytest.fixture(scope="module")
def tool() -> str:
    """Class path of the tool."""
    built = subprocess.run(
        ["mvn", "-q", "-B", "-f", "tests/foreign/decoders", "package"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode:
        pytest.skip(f"Maven could not fetch Kafka's tools: {built.stdout[-2000:]}")
    return str(ROOT / "build" / "tests" / "decoders" / "lib" / "*")


def topic_of(segment: str) -> str:
    return next((topic for topic in DECODERS if topic in segment), "__cluster_metadata")


def dumped(tool: str, topic: str) -> dict[str, dict[int, tuple[Any, ...]]]:
    """What the tool prints of each segment of a topic, by offset."""
    files = [segment for segment in SEGMENTS if topic_of(segment) == topic]
    command = ["java", "-Xmx1g", "-cp", tool, "org.apache.kafka.tools.DumpLogSegments", DECODERS[topic], "--files", ",".join(files)]
    found: dict[str, dict[int, tuple[Any, ...]]] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("Dumping "):
            current = found.setdefault(line.removeprefix("Dumping "), {})
        elif match := LINE.match(line):
            offset, key, value, framed, control, body = match.groups()
            texts = [None if text in (None, "<DELETE>") else json.loads(text) for text in (key, value or framed or body)]
            current[int(offset)] = (*texts, control)
        else:
            assert not line.startswith("| offset"), line
    return found


def same(own: Any, other: Any, where: str = "") -> Iterator[str]:
    """Places at which a value and the tool's JSON of it differ."""
    if isinstance(own, dict) and isinstance(other, dict):
        for name in own.keys() | other.keys():
            if name not in other:
                if own[name] not in DEFAULTS:
                    yield f"{where}.{name}: {own[name]!r} is not printed"
            elif name in PROTOCOL and isinstance(own.get(name), bytes) and isinstance(other[name], dict):
                source = MessageBytes(own[name])
                message = definitions("clients")[PROTOCOL[name]]
                yield from same(reader(message, min(source.int16(), message.versions.last))(source), other[name], f"{where}.{name}")
            else:
                yield from same(own.get(name), other[name], f"{where}.{name}")
    elif isinstance(own, list) and isinstance(other, list) and len(own) == len(other):
        for i, pair in enumerate(zip(own, other, strict=True)):
            yield from same(*pair, f"{where}[{i}]")
    elif (base64.b64encode(own).decode() if isinstance(own, bytes) else own) != other:
        yield f"{where}: {own!r}, not {other!r}"


@pytest.mark.parametrize("topic", DECODERS)
def test_messages_are_those_of_kafkas_decoders(tool: str, topic: str) -> None:
    compared = 0
    for segment, lines in dumped(tool, topic).items():
        rows = kolumn.read(segment, topic=topic, decode="internal", include_control=True).to_pylist()
        assert {row["offset"] for row in rows} == set(lines)
        for row in rows:
            key, value, control = lines[row["offset"]]
            assert list(differences(row, key, value, control)) == [], (segment, row["offset"])
            compared += 1
    assert compared > 100


def differences(row: dict[str, Any], key: Any, value: Any, control: str | None) -> Iterator[str]:
    own = row["key"]
    if control is not None:
        assert own["type"] == CONTROL[control]
        yield from same(row["value"][row["value"]["type"]], value)
        return
    if key is not None:
        assert own["version"] == int(key["type"])
        yield from same(own[own["type"]], key["data"], "key")
    if value is None:
        assert row["value"] is None
        return
    one = row["value"]
    assert one["version"] == int(value["version"])
    if key is None:
        assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", one["type"]).upper() == value["type"]
    yield from same(one.get(one["type"]) or {}, value["data"], "value")


def test_differences_are_seen() -> None:
    assert list(same({"a": [1], "b": b"\0"}, {"a": [1], "b": "AA=="})) == []
    assert list(same({"a": [1]}, {"a": [2]})) == [".a[0]: 1, not 2"]
    assert list(same({"a": 5}, {})) == [".a: 5 is not printed"]
    assert HERE.is_dir()
