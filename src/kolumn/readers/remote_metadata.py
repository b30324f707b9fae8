"""Which copies in a tier are those of its log, by what brokers have noted of them in the topic `__remote_log_metadata`.

A broker writes COPY_SEGMENT_STARTED before it copies a segment and COPY_SEGMENT_FINISHED after it, and likewise when it deletes one
(``RemoteLogSegmentState``). It reads no copy in another state than COPY_SEGMENT_FINISHED (``RemoteLogMetadataCache``): files of a copy that
failed, or whose deletion did, may be left in the tier.
"""

import logging
import os
from collections.abc import Iterator

from kolumn.copies.ranges import topic_rows
from kolumn.core.errors import shown
from kolumn.damage.findings import Skipped
from kolumn.log.live import segments_of_source
from kolumn.source.folder_scan import scanned
from kolumn.source.segments import Segment
from kolumn.source.storage import is_url, parent

logger = logging.getLogger(__name__)
TOPIC = "__remote_log_metadata"
STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
"""By their numbers (``RemoteLogSegmentState``)."""
_FINISHED = 1
_MESSAGES = ("RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord")


def without_unfinished(segments: list[Segment]) -> list[Segment]:
    """The segments without copies in a tier that no broker would read; a warning tells of those.

    The topic counts if it is among the segments, or on this machine beside a folder of a topic-partition of which segments are in a tier.
    Copies of which it says nothing stay: their brokers may have had another topic, or have lost it.
    """
    copies = {one.copy_id for one in segments if one.copy_id is not None}
    if not copies:
        return segments
    topics = {one.topic for one in segments if one.copy_id in copies and one.topic is not None}
    states = _states(_metadata(segments, topics), topics)
    left_out = [one for one in segments if states.get(one.copy_id or "", _FINISHED) != _FINISHED]
    if not left_out:
        return segments
    first = left_out[0]
    logger.warning(
        "%d segments of a tier are left out, which brokers do not read by %s: the first is %s, in state %s",
        len(left_out), TOPIC, shown(first.path), STATES[states[first.copy_id or ""]],
    )  # fmt: skip
    gone = {one.copy_id for one in left_out}
    return [one for one in segments if one.copy_id is None or one.copy_id not in gone]


def _metadata(segments: list[Segment], topics: set[str]) -> list[Segment]:
    """Segments of the topic: those of the source, or else those beside its folders."""
    own = [one for one in segments if one.topic == TOPIC]
    if own:
        return own
    local = {parent(os.path.abspath(one.path)) for one in segments if one.topic in topics and not is_url(one.path)}
    folders = [one.path for above in sorted({parent(folder) for folder in local}) for one in _folders(above)]
    return segments_of_source(folders) if folders else []


def _folders(above: str) -> Iterator["os.DirEntry[str]"]:
    for one in scanned(above):
        name, _, partition = one.name.rpartition("-")
        if name == TOPIC and partition.isdecimal() and one.is_dir() and any(file.endswith(".log") for file in os.listdir(one.path)):
            yield one


def _states(metadata: list[Segment], topics: set[str]) -> dict[str, int]:
    """The last state of each copy of a segment of some topics. All of a copy's records are in one partition."""
    found: dict[str, int] = {}
    if not metadata:
        return found
    # Only here: it has the messages of all internal topics.
    from kolumn.values.internal.topics import decode_value

    names, skipped = [topic.encode() for topic in topics], Skipped()
    for batch in topic_rows(metadata, ("value",), on_damage=skipped):
        for value in batch.column(0).to_pylist():
            # Most records are of other topics, and decoding is slow.
            if value is None or not any(name in value for name in names):
                continue
            one = decode_value(TOPIC, False, None, value)
            if one.type in _MESSAGES and one.fields is not None and one.fields["remoteLogSegmentState"] in range(len(STATES)):
                found[one.fields["remoteLogSegmentId"]["id"]] = one.fields["remoteLogSegmentState"]
    if skipped.pieces:
        logger.warning("%s: %s: states of copies may be older ones", TOPIC, skipped)
    return found
