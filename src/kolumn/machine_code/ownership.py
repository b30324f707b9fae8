"""Whether other users can write to a folder. This matters because the contents of the cache are run as code."""

import grp
import os
import pwd
import stat
from pathlib import Path

_LINKS = 40
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def objection(path: Path) -> str | None:
    """Why another user could put files into a folder, or replace it; None if only this user and root could.

    This examines the folder, every folder above it, and the links on the way. The folder itself need not exist.

    Parameters
    ----------
    path : Path
        A relative path is relative to the working folder.

    Returns
    -------
    str or None
        The path that is unsafe, and the reason.
    """
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
                if not stat.S_ISREG(info.st_mode):
                    return f"{entry.path} is not a regular file"
                if (wrong := _wrong(info)) is not None:
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
