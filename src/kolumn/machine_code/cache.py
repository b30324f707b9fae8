"""Folders in which compiled code is stored between processes, and fingerprints that tell its versions apart."""

import hashlib
import os
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kolumn.errors import shown
from kolumn.formats.layouts import EXTRA
from kolumn.machine_code.ownership import file_objection, objection

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

READY = "reading.ready"
"""File that marks a folder of machine code as complete for reading."""


def places() -> list[Path]:
    """Folders for machine code, best first: KOLUMN_CACHE_DIR, the user's cache folder, a folder in the system's temporary folder."""
    # Not at the top, as `inspect` below: these take long to import, and code that was compiled ahead needs neither.
    from tempfile import gettempdir

    named = os.environ.get("KOLUMN_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own = [Path(home) / "kolumn", Path(gettempdir()) / f"kolumn-{os.getuid()}"]
    return [Path(named).absolute(), *own] if named else own


@cache
def cache_folder() -> Path | None:
    """Folder for machine code that only this user can write to; created if missing. None if there is no such folder."""
    found, refused = _first_usable(None)
    _tell(found, refused)
    return found


@cache
def code_folder(name: str) -> Path | None:
    """Folder ``name`` of machine code; None if no place is usable. If the folder is `READY`, its place need not be writable."""
    found, refused = _first_usable(name)
    _tell(found, refused)
    return None if found is None else found / name


def _first_usable(name: str | None) -> tuple[Path | None, list[str]]:
    """The first usable place, and why those before it are not. With ``name``, a place that is ready need not be writable."""
    refused: list[str] = []
    for place in places():
        wrong = objection(place if name is None else place / name)
        if wrong is None and name is not None:
            wrong = file_objection(place / name)
        if wrong is None and name is not None and (place / name / READY).is_file():
            return place, refused
        if wrong is None:
            wrong = _unwritable(place)
        if wrong is None:
            return place, refused
        refused.append(wrong)
    return None, refused


def _unwritable(place: Path) -> str | None:
    # A folder that the user names may be shipped to others, who have to read it.
    from tempfile import TemporaryFile

    mode = 0o755 if os.environ.get("KOLUMN_CACHE_DIR") == str(place) else 0o700
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=mode, exist_ok=True)
        with TemporaryFile(dir=place):
            pass
    except OSError as error:
        return f"{place}: {error.strerror}"
    # The folders above the new one may be writable by others.
    return objection(place)


_told: set[str] = set()


def _tell(found: Path | None, refused: list[str]) -> None:
    """Warn once if there is no folder, or if the named one is not used."""
    reasons = "; ".join(refused)
    if not refused or reasons in _told or (found is not None and not os.environ.get("KOLUMN_CACHE_DIR")):
        return
    _told.add(reasons)
    if found is None:
        advice = "set KOLUMN_CACHE_DIR to a folder that only you can write to"
        text = f"no folder for machine code ({reasons}), so every process has to compile, which is slow; {advice}"
    else:
        text = f"KOLUMN_CACHE_DIR is not used ({reasons}); machine code is stored in {found}"
    warnings.warn(shown(text), stacklevel=4)


def package() -> "Traversable":
    """Kolumn's own folder, which may be in a zip."""
    place = Path(__file__).parents[1]
    if place.is_dir():
        return place
    # This import takes as long as several of NumPy's.
    from importlib.resources import files

    return files("kolumn")


@cache
def fingerprint(*names: str) -> str:
    """Digest of source files: modules and packages of Kolumn by name, including nested packages, and the drafts of KOLUMN_FORMATS."""
    own = digest(package(), *names)
    if not EXTRA:
        return own
    import inspect

    return hashlib.sha256(own.encode() + b"".join(inspect.getsource(module).encode() for module in EXTRA)).hexdigest()[:16]


def digest(package: "Traversable", *names: str) -> str:
    """Digest as in `fingerprint`, without the drafts, of any copy of the package."""
    total = hashlib.sha256()
    for name in names:
        for path, source in _sources(package.joinpath(name), name):
            total.update(f"{path}\0".encode() + hashlib.sha256(source.read_bytes()).digest())
    return total.hexdigest()[:16]


def _sources(place: "Traversable", path: str) -> Iterator[tuple[str, "Traversable"]]:
    # Traversables are used instead of paths because Spark ships the package in a zip.
    if place.is_dir():
        for inner in sorted(place.iterdir(), key=lambda entry: entry.name):
            yield from _sources(inner, f"{path}/{inner.name}")
    elif path.endswith(".py"):
        yield path, place
