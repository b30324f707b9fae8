"""Names in tiers: copies of closed segments that a broker, or a tool beside it, puts elsewhere.

    <topic>-<partition>-<topic id>/<20-digit base offset>-<segment id>.log      Kafka's LocalTieredStorage, and plugins that copy files
    <topic>-<topic id>/<partition>/<20-digit base offset>-<segment id>.log      Aiven's tiered-storage, with a .rsm-manifest beside it

Ids are UUIDs: 16 bytes as 22 characters of url-safe base64. A folder is one of a tier only if its segments' names have ids too: a
topic's name may look like a name with an id. A tool that copies files under their own names needs no rule of its own.
"""

import re

_ID = r"[A-Za-z0-9_-]{21}[AQgw]"
"""16 bytes leave four zero bits in the last of the characters."""
_STEM = re.compile(rf"(?P<base>[0-9]{{20}})(?:-(?P<id>{_ID}))?")
_PARTITION = re.compile(rf"(?P<topic>.+)-(?P<partition>[0-9]{{1,10}})-{_ID}", re.DOTALL)
_TOPIC = re.compile(rf"(?P<topic>.+)-{_ID}", re.DOTALL)
MANIFEST = ".rsm-manifest"
"""Suffix of Aiven's manifests."""


def stem(name: str) -> tuple[int, str | None] | None:
    """Base offset and id of a segment, from the last part of a name of one of its files; None for other names."""
    match = _STEM.fullmatch(name.partition(".")[0])
    return None if match is None else (int(match["base"]), match["id"])


def partition_of(folder: str) -> tuple[str, int] | None:
    """Topic and partition, from the last part of the name of a partition's folder in a tier; None for other names."""
    match = _PARTITION.fullmatch(folder)
    return None if match is None else (match["topic"], int(match["partition"]))


def place_of(folder: str, above: str) -> tuple[str, int] | None:
    """Topic and partition, from the last part of a folder's name and that of the folder above; partition -1 for a topic's folder.

    None if the names are not those of a tier.
    """
    topic = _TOPIC.fullmatch(above)
    if topic is not None and folder.isdecimal():
        return topic["topic"], int(folder)
    match = _TOPIC.fullmatch(folder)
    return partition_of(folder) or (None if match is None else (match["topic"], -1))
