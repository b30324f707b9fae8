"""Bytes of the file of a segment's name with another suffix: indexes, snapshots, leader epochs."""

from kolumn.source.aiven_file import index_bytes
from kolumn.source.segments import Segment
from kolumn.source.storage import look, read_bytes, with_suffix


def side_bytes(segment: Segment, suffix: str) -> bytes | None:
    """All bytes of a small file beside a segment, such as ``.index``; None if it is missing or, on this machine, cannot be read.

    Aiven's tier has them in one object, at the places that the manifest names.

    Raises
    ------
    KolumnError
        As `kolumn.source.storage.read_bytes`.
    """
    if segment.manifest is not None:
        return index_bytes(segment.manifest, segment.access, suffix)
    return read_bytes(with_suffix(segment.path, suffix)) if segment.has_beside(suffix) else None


def is_absent(segment: Segment, suffix: str) -> bool:
    """Whether a segment of a tier never had such a file; one that cannot be read is not absent."""
    if segment.copy_id is None:
        return False
    if segment.manifest is not None:
        return all(name != suffix for name, _, _ in segment.manifest.indexes)
    return not segment.has_beside(suffix) or look(with_suffix(segment.path, suffix)) is None
