"""Whether a topic is the one that was read before: brokers assign an id to each topic, and write it next to the segments."""

from collections.abc import Iterable, Mapping

from kolumn.source.segments import Segment
from kolumn.source.side_files import read_topic_id
from kolumn.source.storage import beside


def topic_ids(segments: Iterable[Segment]) -> dict[str, str]:
    """Ids of topics from ``partition.metadata`` (Kafka 2.8 and later); one file of each topic is read. Topics without one are left out."""
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
    """A message for each topic whose id has changed; no message if one of the two ids is unknown."""
    return [
        f"topic {topic}: its id was {before[topic]} and is {now[topic]}: it was deleted and created anew, and its offsets began again at 0"
        for topic in sorted(before)
        if now.get(topic, before[topic]) != before[topic]
    ]
