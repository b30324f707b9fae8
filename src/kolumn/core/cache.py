"""Folders in which compiled code is stored between processes, and fingerprints that tell its versions apart.

The contents are run as code, so a folder counts only if no other user could have put files there.
"""

import grp
import hashlib
import os
import pwd
import stat
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kolumn.core.errors import shown

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

READY = "reading.ready"
"""File that marks a folder of machine code as complete for reading."""
_LINKS = 40
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def places() -> list[Path]:
    """Folders for machine code, best first: KOLUMN_CACHE_DIR, the user's cache folder, a folder in the system's temporary folder."""
    # Not at the top, as `inspect` below: these take long to import, and code that was compiled ahead needs neither.
    from tempfile import gettempdir

    named = os.environ.get("KOLUMN_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    own = [Path(home) / "kolumn", Path(gettempdir()) / f"kolumn-{os.getuid()}"]
    return [Path(named).absolute(), *own] if named else own


@cache
def cache_folder(name: str = "") -> Path | None:
    """Folder for machine code that only this user can write to, created if missing, or the folder ``name`` in it, which may be missing. If
    the folder ``name`` is `READY`, nothing has to be writable. A warning is given if KOLUMN_CACHE_DIR is not used, or if the result is
    None: there is no such folder."""
    refused: list[str] = []
    found = None
    for place in places():
        wrong = objection(place / name)
        if wrong is None and name:
            wrong = file_objection(place / name)
        if wrong is None and not (name and (place / name / READY).is_file()):
            wrong = _unwritable(place)
        if wrong is None:
            found = place
            break
        refused.append(wrong)
    _tell(found, "; ".join(refused))
    return None if found is None else found / name


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


def _tell(found: Path | None, reasons: str) -> None:
    """Warn once if there is no folder, or if the named one is not used."""
    if not reasons or reasons in _told or (found is not None and not os.environ.get("KOLUMN_CACHE_DIR")):
        return
    _told.add(reasons)
    if found is None:
        advice = "set KOLUMN_CACHE_DIR to a folder that only you can write to"
        text = f"no folder for machine code ({reasons}), so every process has to compile, which is slow; {advice}"
    else:
        text = f"KOLUMN_CACHE_DIR is not used ({reasons}); machine code is stored in {found}"
    warnings.warn(shown(text), stacklevel=4)


def objection(path: Path) -> str | None:
    """The unsafe path, and why: another user could put files into a folder, or replace it. None if only this user and root could. This
    examines the folder, which need not exist, every folder above it, and the links on the way."""
    try:
        return _walk(Path(os.path.abspath(path)), _LINKS)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"


def file_objection(folder: Path) -> str | None:
    """Why another user could have written one of the files of a folder that passed `objection`; None if no other user could."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                wrong = _wrong(info) if stat.S_ISREG(info.st_mode) else "is not a regular file"
                if wrong is not None:
                    return f"{entry.path} {wrong}"
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return None


def _walk(path: Path, links: int) -> str | None:
    place = Path(path.anchor)
    for name in ("", *path.parts[1:]):
        place = place / name
        try:
            info = place.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(info.st_mode):
            if info.st_uid not in (0, os.getuid()):
                return f"{place} is a link of another user"
            if links == 0:
                return f"{place}: too many links"
            rest = path.relative_to(place)
            # `normpath` would be wrong: ".." after a link is the parent of the link's target.
            target = Path(os.path.realpath(place.parent), os.readlink(place))
            return _walk(_without_dots(target) / rest, links - 1)
        if not stat.S_ISDIR(info.st_mode):
            return f"{place} is not a folder"
        sticky = bool(info.st_mode & stat.S_ISVTX) and place != path
        if (wrong := _wrong(info, sticky)) is not None:
            return f"{place} {wrong}"
    return None


def _without_dots(target: Path) -> Path:
    """The path without ``..``; each is replaced by the parent of the real path before it."""
    whole = Path(target.anchor)
    for name in target.parts[1:]:
        whole = Path(os.path.realpath(whole)).parent if name == ".." else whole / name
    return whole


def _wrong(info: os.stat_result, sticky: bool = False) -> str | None:
    if info.st_uid not in (0, os.getuid()):
        return f"belongs to another user ({_name(info.st_uid)})"
    if info.st_mode & _OTHERS and not sticky and not (_is_private(info.st_gid) and not info.st_mode & stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(info.st_mode):04o})"
    return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _is_private(gid: int) -> bool:
    """Whether this user is the only member of a group. Linux distributions make such a group for each user and let it write their files."""
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def package() -> "Traversable":
    """Kolumn's own folder, which may be in a zip."""
    place = Path(__file__).parents[1]
    if place.is_dir():
        return place
    # This import takes as long as several of NumPy's.
    from importlib.resources import files

    return files("kolumn")


@cache
def fingerprint(*names: str, drafts: tuple[ModuleType, ...]) -> str:
    """Digest of source files: modules and packages of Kolumn by name, including nested packages, and the modules of drafts."""
    own = digest(package(), *names)
    if not drafts:
        return own
    import inspect

    return hashlib.sha256(own.encode() + b"".join(inspect.getsource(module).encode() for module in drafts)).hexdigest()[:16]


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
