"""Log directories whose partitions are read one after the other, so that threads decode the first ones while the next ones are listed.

A reader plans its whole source before it decodes anything: a partition may be in several folders, and segments in a tier may belong to it.
In an ordinary log directory names of folders rule that out, so each folder is planned by itself. What turns out not to be ordinary is left
to the plan of the whole source: `UnusualError` says so.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from kolumn.backend import choose
from kolumn.entries.replaced import with_twins, without_replaced
from kolumn.errors import KolumnError
from kolumn.options import Options
from kolumn.paths import LISTING, is_on
from kolumn.plan.seek import select_ranges
from kolumn.source import storage
from kolumn.source.folder_scan import scanned
from kolumn.source.log_names import LOG, PARTITION, topic_partition
from kolumn.source.segments import Range, Segment, in_directory
from kolumn.source.tier_names import MANIFEST, place_of
from kolumn.transactions.states import matter

_Read = TypeVar("_Read")
_SUFFIXES = (LOG, MANIFEST, ".swap", ".cleaned", ".deleted", ".index")


class UnusualError(Exception):
    """The source has to be planned as a whole."""


class ByFolder:
    """Ranges of the segments of a log directory, each of its folders listed when it is needed; iterated once.

    The iteration ends with `UnusualError`, or with the error of a folder that cannot be listed.
    """

    def __init__(self, root: str, folders: list[str], options: Options) -> None:
        self._above, self._folders, self._options = (storage.real_folder(root),), folders, options
        self._ranges, self._is_whole = self._planned(), False

    def __iter__(self) -> Iterator[Range]:
        return self._ranges

    def read(self, read: Callable[["ByFolder"], _Read], plan: Callable[[], object]) -> _Read | None:
        """What ``read`` makes of the ranges; None if the source has to be planned as a whole, which ``plan`` does.

        The errors are those of a read that plans first: what the plan finds wrong comes before what is wrong in a segment.
        """
        try:
            return read(self)
        except UnusualError:
            return None
        except KolumnError:
            with suppress(KolumnError, UnusualError):
                for _ in self._ranges:
                    pass
            if not self._is_whole:
                plan()
            raise

    def _planned(self) -> Iterator[Range]:
        found = False
        for folder in self._folders:
            own = in_directory(folder, self._above)
            if not _are_ordinary(own, *topic_partition(storage.base_name(folder))):
                raise UnusualError
            found = found or bool(own)
            yield from select_ranges(with_twins(without_replaced(own)), self._options)
        if not found:
            raise UnusualError
        self._is_whole = True


def ranges_by_folder(source: object, options: Options) -> ByFolder | None:
    """The same ranges as those of the plan of a whole source, if it is a log directory of several partitions; None for other sources.

    None too if the options need more of the log than the segments themselves, and with one thread, which would wait for each folder anyway.
    """
    if options.threads == 1 or not isinstance(source, str | os.PathLike) or not is_on(LISTING):
        return None
    root = os.fspath(source)
    if not isinstance(root, str) or root.endswith(LOG) or storage.is_url(storage.plain(root)) or not _is_plain(options):
        return None
    try:
        with os.scandir(root) as entries:
            if any(one.name.endswith(_SUFFIXES) for one in entries):
                return None
        names = [one.path for one in scanned(root) if one.is_dir()]
    except (OSError, KolumnError):
        return None
    places = dict[tuple[str, int], str]()
    for name in names:
        last = storage.base_name(name)
        match = PARTITION.fullmatch(last)
        if match is not None and not match["state"]:
            if topic_partition(last) in places:
                return None
            places[topic_partition(last)] = name
        elif place_of(last, storage.base_name(root)) is not None:
            return None
    return ByFolder(root, [name for _, name in sorted(places.items())], options) if len(places) > 1 else None


def _is_plain(options: Options) -> bool:
    ranges = options.start_offset, options.end_offset, options.start_timestamp, options.end_timestamp, options.topic, options.partition
    return (
        options.format == "kafka"
        and ranges == (None,) * len(ranges)
        and not (options.typed or options.include_snapshots or options.include_deleted_records is False or matter(options))
        and options.on_progress is None
        and choose(options.backend) == "cpu"
    )


def _are_ordinary(segments: list[Segment], topic: str, partition: int) -> bool:
    """Whether segments are a broker's, of one partition, and nothing has to be asked about other folders."""
    inodes = set[int | None]()
    for one in segments:
        if (
            one.topic != topic
            or one.partition != partition
            or one.copy_id is not None
            or one.manifest is not None
            or one.fault is not None
            or one.identity is None
        ):
            return False
        inodes.add(one.identity.inode)
    return len(inodes) == len(segments) and None not in inodes
