"""Machine code of the test kit, kept in the cache folder of machine code for other processes, until anything changes that can be in it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numba
import pytest

from kolumn.core.cache import cache_folder, fingerprint
from kolumn.core.deferred import apply
from kolumn.formats.layouts import EXTRA
from kolumn.kernels.machine.image import SOURCES


@cache
def kept_in(*files: str) -> Path | None:
    """Folder for what is compiled of these files, and of what a kernel is made of; None if there is no place for one."""
    folder, own = cache_folder(), hashlib.sha256(b"".join(Path(one).read_bytes() for one in files)).hexdigest()[:16]
    return folder and folder / fingerprint(*SOURCES, drafts=EXTRA) / own


@contextmanager
def keeping(*files: str) -> Iterator[bool]:
    """What Numba is told to keep is kept in `kept_in` while the context lasts; whether it can be kept."""
    apply()
    folder = kept_in(*files)
    with pytest.MonkeyPatch.context() as patch:
        if folder is not None:
            patch.setattr(numba.config, "CACHE_DIR", str(folder))
        yield folder is not None
