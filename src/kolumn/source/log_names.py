"""Names in a broker's log directory: ``<topic>-<partition>``, with a state while it is deleted or moved, and of segments in it."""

import os
import re

from kolumn.source import storage, tier_names

LOG = ".log"
SWAP = ".log.swap"
CLEANED = ".cleaned"
DELETED = ".deleted"
INDEXES = (".index", ".timeindex")
PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[^\s.]+-(?P<state>delete|future|stray))?", re.DOTALL)
"""Kafka writes 32 digits before the state, and takes anything (``LocalLog.DELETE_DIR_PATTERN``)."""
_NUMBER = re.compile(r"[0-9]{1,19}|0[0-9]{19}")


def topic_partition(name: str) -> tuple[str, int]:
    """Topic and partition from the last part of a folder's name; "" and -1 for other names."""
    match = PARTITION.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else ("", -1)


def place_in(folder: str, is_tier: bool) -> tuple[str | None, int | None]:
    """Topic and partition of the segments in a folder, by its name; None if it has none."""
    last = storage.base_name(folder)
    if last in ("", ".", "..") and not storage.is_url(folder):
        last = os.path.basename(os.path.abspath(folder))
    topic, partition = (tier_names.partition_of(last) if is_tier else None) or topic_partition(last)
    return (topic, partition) if topic else (None, None)


def is_partition_folder(name: str) -> bool:
    """Whether the last part of a name is a valid name of a topic-partition's folder."""
    return PARTITION.fullmatch(storage.base_name(name)) is not None


def offset_in(name: str) -> int | None:
    """The number before the first dot of a name, as Kafka's loader reads it: of any number of digits; None if there is none."""
    found = storage.base_name(name).partition(".")[0]
    return int(found) if _NUMBER.fullmatch(found) else None


def base_and_copy(name: str) -> tuple[int | None, str | None]:
    """Base offset and id from a name of a segment; None for other files: the offset in a snapshot's name is its end."""
    last = name.rpartition("/")[2]
    if last[20:] == LOG and last.isascii() and last[:20].isdigit():
        return int(last[:20]), None
    found = tier_names.stem(last) if last.partition(".")[2].startswith("log") else None
    return (None, None) if found is None else found
