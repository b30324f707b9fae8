"""The ways in which compaction cleans a segment: which one is taken depends on what pass one finds, and the result on none of it."""

from functools import partial

import pytest

from kolumn import paths
from kolumn.compaction.latest import LatestOffsets
from kolumn.paths import COMPACTION, FILTER

FILTERED, DECODED, AT_ONCE, LATER = "filtered", "decoded where records go", "all columns at once", "those of rewritten batches later"
WAYS = (FILTERED, DECODED, AT_ONCE, LATER)


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Make compaction take one of `WAYS` where it can."""
    if way == DECODED:
        patch.setattr(paths, "turned_off", lambda: {FILTER})
    elif way in (AT_ONCE, LATER):
        patch.setattr(paths, "turned_off", lambda: {COMPACTION})
        patch.setattr(LatestOffsets, "replaced_share", partial(_share, way == AT_ONCE))


def _share(at_once: bool, *_: object) -> float:
    return float(at_once)
