"""Names of Redpanda's files, on a node and in a bucket, and what they tell of its segments.

    <data>/<namespace>/<topic>/<partition>_<revision>/<base>-<term>-v1.log                            a node
    <prefix>/<namespace>/<topic>/<partition>_<revision>/<segment's name>[.<archiver's term>]          a segment in a bucket
    <prefix>/meta/<namespace>/<topic>/<partition>_<revision>/manifest.bin, or manifest.json           what is in a bucket of a partition

A segment's name in a bucket is ``<base>-<term>-v1.log`` or ``<base>-<last>-<size>-<term>-v1.log``; base and last are raw offsets, both
inclusive. The prefix is the id of the cluster, a UUID; in buckets of older releases it has the 8 digits of a hash, which is another one for
each segment, and for manifests ends in seven zeros. Beside a segment in a bucket is a file ``.tx`` if there are aborted transactions in it.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kolumn.core.errors import Code, CorruptBatchError
from kolumn.formats.codecs.lz4 import xxh32

HIGHEST_RAW = 2**63 - 2
_NUMBER = "[0-9]{1,19}"
_SEGMENT = re.compile(
    rf"(?P<base>{_NUMBER})-(?:(?P<last>{_NUMBER})-(?P<size>{_NUMBER})-)?(?P<term>{_NUMBER})-v1\.log(?P<archiver>\.{_NUMBER})?"
)
_PARTITION = re.compile(r"(?P<partition>[0-9]{1,10})_(?P<revision>[0-9]{1,19})")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"[0-9a-f]{8}")
META, TX = "meta", ".tx"
MANIFEST_BIN, MANIFEST_JSON = "manifest.bin", "manifest.json"
KAFKA = "kafka"
"""The namespace of topics."""
OWN_NAMESPACES = ("redpanda", "kafka_internal")
"""Namespaces of Redpanda's own logs."""
BESIDE = re.compile(
    rf"{_NUMBER}-{_NUMBER}-v1(\.base_index|\.compaction_index|\.log\.compaction\.staging|\.compaction\.staging|\.log\.staging)"
    rf"|{_NUMBER}-(?:{_NUMBER}-{_NUMBER}-)?{_NUMBER}-v1\.log(?:\.{_NUMBER})?\.(tx|index)"
    r"|(tx|archival_metadata|id_allocator|log_eviction|partition_properties)\.snapshot|snapshot"
    r"|(topic_)?manifest\.(json|bin)(\.[0-9.-]+)?|pid\.lock|startup_log|\.redpanda_data_dir"
)
"""Names of other files that Redpanda keeps beside segments."""


@dataclass(frozen=True)
class Raft:
    """What is known of a segment of Redpanda besides its bytes.

    Attributes
    ----------
    term : int
        Term of the leader that wrote it, which is the leader epoch of its records.
    delta, delta_end : int, optional
        How many raw offsets before its first batch, and before what follows its last one, are none of consumers, according to the manifest
        of a bucket.
    aborted : str, optional
        Name of the file that lists its aborted transactions.
    last : int, optional
        Its last raw offset, of a segment in a bucket.
    log_start : int, optional
        The first offset that the log has for consumers, according to the manifest: records below it were deleted, and some of them are in
        its first segment still.
    """

    term: int
    delta: int | None = None
    delta_end: int | None = None
    aborted: str | None = None
    last: int | None = None
    log_start: int | None = None


class Named(NamedTuple):
    """What the name of a segment tells. ``copy_id`` is the name itself in a bucket, which may have others of the same offsets."""

    base: int
    raft: Raft
    copy_id: str | None


def named(name: str) -> Named | None:
    """What the last part of a name tells of a segment; None for other names."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match["base"]) > HIGHEST_RAW or int(match["term"]) >= 2**31:
        return None
    last = None if match["last"] is None else int(match["last"])
    if last is not None and not int(match["base"]) <= last <= HIGHEST_RAW:
        return None
    in_bucket = last is not None or match["archiver"] is not None
    return Named(int(match["base"]), Raft(int(match["term"]), last=last), name if in_bucket else None)


def partition_number(folder: str) -> int | None:
    """Number of the partition, from the last part of the name of its folder; None for other folders."""
    match = _PARTITION.fullmatch(folder)
    return None if match is None else int(match["partition"])


def partition_in(folder: str) -> tuple[str | None, int | None]:
    """Topic and partition of the segments in a folder, by its name and that of the folder above; None if it has none."""
    topic, last = _last_parts(folder, 2)
    partition = partition_number(last)
    return (None, None) if partition is None or not topic else (topic, partition)


def ntp_of(folder: str) -> str:
    """Namespace, topic and partition's folder, from the name of that folder."""
    return "/".join(_last_parts(folder, 3))


def _last_parts(folder: str, count: int) -> list[str]:
    if "://" not in folder and (folder.count("/") < count or "." in folder.split("/")[-count:] or ".." in folder):
        folder = os.path.abspath(folder)
    parts = folder.rstrip("/").split("/")[-count:]
    return [""] * (count - len(parts)) + parts


def stale(segments: Iterable[tuple[str, int | None]]) -> dict[str, CorruptBatchError]:
    """Why segments of a folder are no part of its log, by their names: one of a later term begins at the same offset. Given are names and
    first offsets in order, without empty segments."""
    faults: dict[str, CorruptBatchError] = {}
    for (name, base), (later, following) in pairwise(segments):
        if base == following:
            expected = f"one segment that begins at offset {base}"
            found = f"{later.rpartition('/')[2]} too, which is not of an earlier term"
            faults[name] = CorruptBatchError(name, 0, Code.OFFSET_ORDER, expected=expected, found=found)
    return faults


def is_prefix(name: str) -> bool:
    """Whether a folder may be the first one of the keys in a bucket."""
    return _UUID.fullmatch(name) is not None or _HASH.fullmatch(name) is not None


def is_hash(name: str) -> bool:
    """Whether the first folder of a key is a hash, which is another one for each object."""
    return _HASH.fullmatch(name) is not None


def holds_manifests(prefix: str) -> bool:
    """Whether manifests may be in the folder with a prefix; of a hash only the first digit counts for them."""
    return not is_hash(prefix) or prefix.endswith("0000000")


def hash_of(path: str) -> str:
    """The first folder of a segment's key in buckets of older releases, for the rest of the key without the archiver's term."""
    name = path.encode()
    return f"{xxh32(name, 0, len(name)):08x}"


def aborted_ranges(raw: bytes | None) -> list[tuple[int, int, int]] | None:
    """Aborted transactions in a file ``.tx`` as (producer id, first raw offset, that of the marker), by their markers; None if the file is
    missing or not valid."""
    try:
        found = [(entry["pid.id"], entry["first"], entry["last"]) for entry in json.loads(raw or b"")["ranges"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not all(type(number) is int for entry in found for number in entry):
        return None
    if not all(0 <= first <= last <= HIGHEST_RAW and 0 <= producer < 2**63 for producer, first, last in found):
        return None
    return sorted(set(found), key=lambda entry: (entry[2], entry))
