"""Kafka's own decoders print the same messages of internal topics, field by field: DumpLogSegments of Kafka 4.3.0."""

import subprocess

import pytest

import kolumn
from kit.corpus import HERE, cases
from kit.dumped import BROKERS, DECODERS, Printed, differences, kept, printed, same, topic_of
from kit.java import NEEDS_JAVA

SEGMENTS = sorted({segment for case in cases() if case.directory.parent.name == "internal" for segment in case.segments})

pytestmark = NEEDS_JAVA


def dumped(tool: str, topic: str, files: list[str]) -> dict[str, dict[int, Printed]]:
    """What the tool prints of each segment of a topic, by offset."""
    command = ["java", "-Xmx1g", "-cp", tool, "org.apache.kafka.tools.DumpLogSegments", DECODERS[topic], "--files", ",".join(files)]
    return printed(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


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
    assert HERE.is_dir()
