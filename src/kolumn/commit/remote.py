"""The commit of a run whose target is at a URL: a journal that the run or a later run carries out.

    <root>/.kolumn-<run>.partial/     a hidden folder, which readers ignore
        …/…          the files that are written
        redo.json    written when all of them are complete: which file gets which name, and which older files are removed

Before the journal is written, only this folder has changed. Afterwards the run is only completed: files get their names, older files
are removed, then the journal, then the folder. Each of these steps may be done twice, even by two runs at once, so it does not matter
whether the first run is dead: object stores have no locks. Others may be able to write to a target: a journal may only rename a run's
own files to names of segments, and remove segments of topic-partitions; any other journal is rejected.
"""

import json
import logging
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kolumn.commit.run import REDO
from kolumn.errors import ArgumentError, KolumnError, StorageError, shown
from kolumn.source import storage
from kolumn.source.fsspec_files import forget
from kolumn.source.log_names import LOG
from kolumn.source.segments import SIDE_FILES

JOURNAL = REDO
FOLDER = re.compile(r"\.kolumn-(?:[a-z]+\.)?[0-9a-f]{32}\.partial")
_SEGMENT = rf"[^/]+(?:{'|'.join(map(re.escape, (LOG, *SIDE_FILES)))})"
_NAME = r"(?!\.{1,2}/|\.kolumn-)[^/]+/"
_STAGED = re.compile(rf"(?:files|[0-9a-f]{{32}})/(?:{_NAME})?{_SEGMENT}", re.DOTALL)
_FINAL = re.compile(rf"(?:{_NAME})?{_SEGMENT}", re.DOTALL)
_GONE = re.compile(rf"{_NAME}{_SEGMENT}", re.DOTALL)
OLD_HOURS = 24.0
"""Age from which staged files are leftovers if it is not known whether their run is dead. A live job writes a file more often."""
_VERSION = 1
_BLOCK = 8 << 20

logger = logging.getLogger("kolumn")


def new_folder(root: str, job: str = "") -> str:
    """Name of a new staging folder below a root, for a job of this name. The folder is not made: object stores have no empty folders."""
    return storage.within(root, f".kolumn-{f'{job}.' if job else ''}{uuid.uuid4().hex}.partial")


def commit(root: str, folder: str, moves: list[tuple[str, str]], gone: Iterable[str] = ()) -> None:
    """Rename staged files to their final names, and remove others.

    Parameters
    ----------
    root : str
    folder : str
        The run's staging folder, in the root.
    moves : list of (str, str)
        Names of staged files and their final names, in the order in which they may appear.
    gone : iterable of str
        Files that are removed or replaced.

    Raises
    ------
    ArgumentError
        A file of one of these names exists already. Nothing has changed then.
    KolumnError
        A file cannot be moved or removed. If no file is replaced, nothing has changed; otherwise the journal stays, and the next run
        below the same root continues.
    """
    gone = list(gone)
    replaced = set(gone)
    for place in {storage.parent(final) for _, final in moves}:
        there = storage.look(place)
        if there is not None and not there.is_folder:
            raise StorageError(f"{place}: cannot be written: it is a file, expected a folder")
    for _, final in moves:
        if final not in replaced and storage.look(final) is not None:
            raise ArgumentError(f"{final} already exists: another run has made it")
    content = {
        "version": _VERSION,
        "moves": {_below(folder, staged): _below(root, final) for staged, final in moves},
        "gone": [_below(root, name) for name in gone],
    }
    if not moves and not gone:
        return
    storage.put(storage.within(folder, JOURNAL), json.dumps(content, indent=1).encode())
    try:
        _forward(root, folder, content)
    except BaseException as error:
        withdraw(root, folder)
        if isinstance(error, KolumnError) and gone:
            raise KolumnError(f"{error}. What replaces older files goes on with the next run below {root}, or with kolumn tidy") from error
        raise


def pending(folder: str) -> bool:
    """Whether a staging folder has a journal."""
    forget(storage.file_system(folder)[0])
    return storage.look(storage.within(folder, JOURNAL)) is not None


def complete(root: str, folder: str) -> int:
    """Carry out the journal of a run, dead or not, and return how many files it renames.

    Raises
    ------
    KolumnError
        The journal was not written by a run, or a file cannot be moved or removed.
    """
    try:
        content = read(folder)
        logger.warning("%s: a run was interrupted in its commit; completing it", shown(folder))
        _forward(root, folder, content)
    except KolumnError:
        if pending(folder):
            raise
        # Its run lives, and has finished meanwhile.
        return 0
    return len(content["moves"])


def withdraw(root: str, folder: str) -> None:
    """Move the files of a failed run back to its folder. If it replaces older files, nothing is moved: a later run completes it."""
    with suppress(KolumnError):
        if not pending(folder):
            return
        content = read(folder)
        if content["gone"]:
            return
        # If this process is killed here, the journal is still complete, and the next run carries it out.
        for staged, final in reversed(content["moves"].items()):
            draft, place = storage.within(folder, staged), storage.within(root, final)
            if storage.look(place) is None:
                continue
            if storage.look(draft) is None:
                storage.make_folder(storage.parent(draft))
                storage.move(place, draft)
            elif _same(draft, place):
                storage.remove(place)
        storage.remove(storage.within(folder, JOURNAL))


def discard(folder: str) -> None:
    """Remove a staging folder as far as possible, unless it still has a journal, which a later run needs."""
    with suppress(KolumnError):
        if not pending(folder):
            storage.remove(folder)


def read(folder: str) -> dict[str, Any]:
    """The journal of a run, after a check: anyone with write access to the target could have put it there."""
    name = storage.within(folder, JOURNAL)
    try:
        content = json.loads(storage.read_bytes(name) or b"")
        version, moves, gone = content["version"], dict(content["moves"]), list(content["gone"])
        names = [*((one, _STAGED) for one in moves), *((one, _FINAL) for one in moves.values()), *((one, _GONE) for one in gone)]
        wrong = [one for one, known in names if not known.fullmatch(one)]
        wrong += [one for one, other in moves.items() if storage.base_name(one) != storage.base_name(other)]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        wrong, version = [f"{type(error).__name__}: {error}"], _VERSION
    if version != _VERSION:
        raise KolumnError(f"{name} has version {version}, this Kolumn knows {_VERSION}: update it")
    if wrong:
        raise KolumnError(f"{name}: no run of Kolumn wrote this: {wrong[0]!r}. Nothing was moved. Find out who put it there, and remove it")
    return {"version": version, "moves": moves, "gone": gone}


def _forward(root: str, folder: str, content: dict[str, Any]) -> None:
    """Carry out a journal. Every step may already have been done, or may be done by another run at the same time."""
    moves: dict[str, str] = content["moves"]
    for staged, final in moves.items():
        _name(storage.within(folder, staged), storage.within(root, final), final in content["gone"])
    for name in set(content["gone"]) - set(moves.values()):
        if not pending(folder):
            # Another run has completed this journal, and a file of this name may be newer by now.
            return
        there = storage.look(storage.within(root, name))
        if there is not None and not there.is_folder:
            storage.remove(there.name)
    storage.remove(storage.within(folder, JOURNAL))


def _name(staged: str, final: str, replaces: bool) -> None:
    try:
        there = storage.look(final)
        if storage.look(staged) is None and there is not None:
            return
        if there is not None and not replaces and not _same(staged, final):
            raise KolumnError(f"{final} already exists with other contents than {staged}: another run has made it. Remove one of the two")
        storage.make_folder(storage.parent(final))
        storage.move(staged, final)
    except KolumnError:
        if storage.look(staged) is not None:
            raise
        # Another run may have renamed it meanwhile.
        if storage.look(final) is None:
            raise StorageError(f"{final}: cannot be written: {staged} no longer exists: it was removed") from None


def _same(one: str, other: str) -> bool:
    """Whether two files have the same bytes: if moving means copying and removing, a killed run leaves both."""
    here, there = storage.look(one), storage.look(other)
    if here is None or there is None or here.size != there.size:
        return False
    with storage.open_input(one) as first, storage.open_input(other) as second:
        while data := first.read(_BLOCK):
            if data != second.read(_BLOCK):
                return False
    return True


def _below(root: str, name: str) -> str:
    top, whole = (re.sub(r"(?<=[^:/])/{2,}", "/", one) for one in (root, name))
    assert whole.startswith(f"{top}/")
    return whole[len(top) + 1 :]
