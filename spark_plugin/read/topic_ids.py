"""Whether a topic is the one that was read before: brokers give each an id, and write it beside every partition's segments."""

from collections.abc import Iterable, Mapping

from kolumn.source.segments import Segment
from kolumn.source.side_files import read_topic_id
from kolumn.source.storage import beside


def topic_ids(segments: Iterable[Segment]) -> dict[str, str]:
    """Ids of topics, where there is a ``partition.metadata`` that says it (Kafka 2.8 and later); one file of each topic is read."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for segment in segments:
        if segment.topic is None or segment.topic in seen:
            continue
        seen.add(segment.topic)
        number = read_topic_id(beside(segment.path, "partition.metadata"))
        if number is not None:
            found[segment.topic] = number
    return found


def created_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What to say of each topic that has another id than before; nothing where either is not known."""
    return [
        f"topic {topic}: its id was {before[topic]} and is {now[topic]}: it was deleted and created anew, and its offsets began again at 0"
        for topic in sorted(before)
        if now.get(topic, before[topic]) != before[topic]
    ]
