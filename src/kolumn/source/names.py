"""Names in a broker's log directory, ``<topic>-<partition>`` with a state while it is deleted or moved, of segments in it; and in tiers.

    <topic>-<partition>-<topic id>/<20-digit base offset>-<segment id>.log      Kafka's LocalTieredStorage, and plugins that copy files
    <topic>-<topic id>/<partition>/<20-digit base offset>-<segment id>.log      Aiven's tiered-storage, with a .rsm-manifest beside it

Ids are UUIDs: 16 bytes as 22 characters of url-safe base64. A folder is one of a tier only if its segments' names have ids too: a
topic's name may look like a name with an id. A tool that copies files under their own names needs no rule of its own.
"""

import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from kolumn.core.errors import ArgumentError, StorageError
from kolumn.source import storage

_ID = r"[A-Za-z0-9_-]{21}[AQgw]"  # 16 bytes leave four zero bits in the last of the characters
_STEM = re.compile(rf"(?P<base>[0-9]{{20}})(?:-(?P<id>{_ID}))?")
_PARTITION = re.compile(rf"(?P<topic>.+)-(?P<partition>[0-9]{{1,10}})-{_ID}", re.DOTALL)
_TOPIC = re.compile(rf"(?P<topic>.+)-{_ID}", re.DOTALL)
MANIFEST = ".rsm-manifest"  # suffix of Aiven's manifests


def file_name(base_offset: int, suffix: str = ".log") -> str:
    """Name of a file of the segment with this base offset (``LogFileUtils.filenamePrefixFromOffset`` of Kafka)."""
    return f"{base_offset:020}{suffix}"


def stem(name: str) -> tuple[int, str | None] | None:
    """Base offset and id of a segment, from the last part of a name of one of its files; None for other names."""
    match = _STEM.fullmatch(name.partition(".")[0])
    return None if match is None else (int(match["base"]), match["id"])


def partition_of(folder: str) -> tuple[str, int] | None:
    """Topic and partition, from the last part of the name of a partition's folder in a tier; None for other names."""
    match = _PARTITION.fullmatch(folder)
    return None if match is None else (match["topic"], int(match["partition"]))


def tier_partition(folder: str, above: str) -> tuple[str, int] | None:
    """Topic and partition, from the last part of a tier's folder's name and that of the folder above; partition -1 for a topic's folder."""
    topic = _TOPIC.fullmatch(above)
    if topic is not None and folder.isdecimal():
        return topic["topic"], int(folder)
    match = _TOPIC.fullmatch(folder)
    return partition_of(folder) or (None if match is None else (match["topic"], -1))


LOG = ".log"
SWAP = ".log.swap"
CLEANED = ".cleaned"
DELETED = ".deleted"
DELETED_LOG = f"{LOG}{DELETED}"
INDEXES = (".index", ".timeindex")
PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[^\s.]+-(?P<state>delete|future|stray))?", re.DOTALL)
"""Kafka writes 32 digits before the state, and takes anything (``LocalLog.DELETE_DIR_PATTERN``)."""
_NUMBER = re.compile(r"[0-9]{1,19}|0[0-9]{19}")


def topic_partition(name: str) -> tuple[str, int]:
    """Topic and partition from the last part of a folder's name; "" and -1 for other names."""
    match = PARTITION.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else ("", -1)


def log_name(topic: str | None, partition: int | None, place: str) -> str:
    """What messages call a log: topic and partition, or where it is, if its folder has another name."""
    return place if topic is None or partition is None else f"{topic}-{partition}"


def partition_in(folder: str, is_tier: bool) -> tuple[str | None, int | None]:
    """Topic and partition of the segments in a folder, by its name; None if it has none."""
    last = folder.rpartition("/")[2]
    if last in ("", ".", "..") and not storage.is_url(folder):
        last = os.path.basename(os.path.abspath(folder))
    if is_tier and (known := partition_of(last)) is not None:
        return known
    match = PARTITION.fullmatch(last)
    return (match["topic"], int(match["partition"])) if match else (None, None)


def is_partition_folder(name: str) -> bool:
    """Whether the last part of a name is a valid name of a topic-partition's folder."""
    return PARTITION.fullmatch(storage.base_name(name)) is not None


def offset_in(name: str) -> int | None:
    """The number before the first dot of a name, as Kafka's loader reads it: of any number of digits; None if there is none."""
    number = storage.base_name(name).partition(".")[0]
    return int(number) if _NUMBER.fullmatch(number) else None


def base_and_copy(name: str) -> tuple[int | None, str | None]:
    """Base offset and id from a name of a segment; None for other files: the offset in a snapshot's name is its end."""
    last = name.rpartition("/")[2]
    if last[20:] == LOG and last.isascii() and last[:20].isdigit():
        return int(last[:20]), None
    parts = stem(last) if last.partition(".")[2].startswith("log") else None
    return (None, None) if parts is None else parts


def names_in(source: Any) -> list[str]:
    if isinstance(source, str):
        return [source]
    is_one = isinstance(source, str | bytes | bytearray | os.PathLike) or not isinstance(source, Iterable) or hasattr(source, "read")
    parts = [source] if is_one else list(source)
    if not parts:
        raise ArgumentError("no source given: name a segment file, a topic-partition directory, a log directory or a glob")
    names = list[str]()
    for part in parts:
        name = os.fspath(part) if isinstance(part, str | os.PathLike) else None
        if not isinstance(name, str):
            shown = f"{reprlib.repr(part)}{'' if is_one else ' in a list'}"
            raise ArgumentError(f"source: expected a path as str or os.PathLike, or a list of paths, found {shown}")
        names.append(name)
    return names


def checked(file: storage.FolderEntry) -> storage.FolderEntry:
    if not file.is_regular or (not file.size and not storage.is_url(file.name) and not storage.holds_nothing(file.name)):
        raise ArgumentError(
            f"{file.name}: not a regular file: a device, a socket, a pipe, or a file that the system makes up has no size or positions. "
            "Copy what comes out of it to a file, and name that"
        )
    return file


def nothing_there(name: str) -> str:
    """What is wrong with a name of which there is no file."""
    return "no file matches this pattern" if storage.is_pattern(name) else "no such file or directory"


_LEVELS, _MOST_FOLDERS, _MOST_ENTRIES = 4, 100, 10_000


def nearby(folder: str, find: Callable[[str], list[Any]]) -> str:
    """Hint for an error message about a folder in which ``find`` found no segment: where there are some; empty if there are none. That is a
    file or a folder that is no part of the log, or a folder on one of four deeper levels, of each of which 100 folders are looked at."""
    for entry in storage.listing(folder):
        if not entry.is_folder and f"{LOG}." in storage.base_name(entry.name):
            return f"; {entry.name!r} is a segment that brokers delete, which is read if it is named"
    names, pattern, left = [folder], folder, _MOST_ENTRIES
    for _ in range(_LEVELS):
        pattern = storage.within(pattern, "*")
        below: list[str] = []
        for name in names:
            entries = _if_possible(storage.listing, name) if left > 0 else []
            left -= len(entries)
            below += [entry.name for entry in entries if entry.is_folder]
        names = below[:_MOST_FOLDERS]
        for name in names:
            if (match := PARTITION.fullmatch(storage.base_name(name))) is not None and match["state"]:
                return f"; {name!r} is a {match['state']} replica, which is read if it is named"
        found = list(islice((name for name in names if _if_possible(find, name)), 2))
        if found:
            return f"; there are segments in {found[0]!r}{f', and in others that {pattern!r} names' if len(found) > 1 else ''}"
    return ""


def _if_possible(look: Callable[[str], list[Any]], folder: str) -> list[Any]:
    """What is in a folder; nothing if this may not be read."""
    try:
        return look(folder)
    except StorageError:
        return []


def real_names(names: Iterable[str]) -> Iterator[str]:
    """For each name one that is the same for all links and relative paths to a file; URLs stay what they are."""
    folders: dict[str, str] = {}
    for name in names:
        if storage.is_url(name):
            yield name
            continue
        folder = storage.parent(name)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        yield os.path.realpath(name) if os.path.islink(name) else os.path.join(folders[folder], os.path.basename(name))
