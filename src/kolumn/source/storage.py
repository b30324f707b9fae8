"""Files by name: on this machine, or at a URL on a file system that pyarrow or fsspec supports (s3://, gs://, hdfs://, memory://, …).

Names are strings with ``/`` between folders. A URL stays one: files below ``s3://bucket/data`` have names ``s3://bucket/data/…``. fsspec's
file systems are asked without pyarrow, which makes more requests and leaves properties out.
"""

import glob
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow import ArrowException

from kolumn.core.errors import ArgumentError, KolumnError, MissingPackageError, StorageError, shown
from kolumn.core.packages import missing_package
from kolumn.core.threads import FOLDER, LIST, workers
from kolumn.source import identity
from kolumn.source.identity import FolderEntry as FolderEntry
from kolumn.source.identity import looked_at_files

if TYPE_CHECKING:
    from pyarrow import fs


def fsspec_of(system: "fs.FileSystem") -> Any:
    """The fsspec file system that pyarrow calls; None if pyarrow uses its own."""
    return getattr(getattr(system, "handler", None), "fs", None)


def forget(system: "fs.FileSystem") -> None:
    """Clear the cache of a file system, since another process may have changed it."""
    if (inner := fsspec_of(system)) is not None:
        inner.invalidate_cache()


logger = logging.getLogger("kolumn.storage")
_PAUSES = (0.1, 0.4, 1.6, 6.4)  # seconds before a request is repeated; the file systems have repeated it by then as they do
_FINAL = re.compile(r"AWS Error (ACCESS_DENIED|NO_SUCH_\w+|INVALID_\w+|SIGNATURE_\w+|UNRECOGNIZED_\w+)|HTTP status 4(?!08|29)\d\d")
"""In pyarrow's errors, of a store of S3's kind that would answer the same again."""
_GONE = KolumnError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError
T = TypeVar("T")


def repeated(request: Callable[[], T]) -> T:
    """The result of a request. If it fails it is made again, each time after a longer pause; errors are those of the last one. What does
    not exist, or may not be read, is an error at once. What fails twice is logged: a file system may take long to give up."""
    for number, pause in enumerate(_PAUSES):
        try:
            return request()
        except (OSError, ArrowException) as error:
            if is_final(error):
                raise
            if number == 1:
                logger.warning("still no answer, trying again: %s", shown(str(error)))
            time.sleep(pause)
    return request()


def is_final(error: Exception) -> bool:
    """Whether the file system has answered: the file does not exist, or may not be read. Errors of this package were repeated before."""
    return isinstance(error, _GONE) or _FINAL.search(str(error)) is not None


Identity = identity.Identity
_COPIED = 8 << 20
_URL = re.compile(r"(?P<root>[a-z][a-z0-9+.-]+://[^/]*)(?P<path>.*)", re.DOTALL)
_OPTION = r"\w+=(?:\w+://[^?&]*|[^?&/]*)"
_QUERY = re.compile(rf"(?P<root>[a-z][a-z0-9+.-]+://[^/?]*)(?P<path>/.*)?\?(?P<query>{_OPTION}(&{_OPTION})*)", re.DOTALL)
"""A URL with a query, in which values may be URLs; in a glob a question mark stands for a character."""
_WILD = re.compile(r"[*?\[]")


def is_url(name: str) -> bool:
    """Whether a name is not one of this machine's files."""
    return "://" in name and _URL.match(name) is not None


def is_pattern(name: str) -> bool:
    """Whether a name is a glob; what is after a URL's host."""
    return _WILD.search(_URL.sub(r"\g<path>", name)) is not None


def plain(name: str) -> str:
    """A name without ``file:``, which is one of this machine's files, and with a URL's query after its host. Names of files below a URL
    begin with the URL: ``s3://bucket/data?region=eu-north-1`` becomes ``s3://bucket?region=eu-north-1/data``."""
    if (match := _QUERY.fullmatch(name)) is not None:
        return f"{match['root']}?{match['query'].replace('/', '%2F')}{match['path'] or ''}"
    return re.sub(r"^file:(//)?(?=/)", "", name) if name.startswith("file:") else name


def as_typed(name: str) -> str:
    """What `plain` makes this name of: a URL whose query is at its end."""
    match = re.fullmatch(r"(?P<root>[a-z][a-z0-9+.-]+://[^/?]*)(?P<query>\?\w+=[^/]*)(?P<path>/.*)", name, re.DOTALL)
    if match is None:
        return name
    query = match["query"].replace("%2F", "/") if ":%2F%2F" in match["query"] else match["query"]
    return f"{match['root']}{match['path']}{query}"


def parent(name: str) -> str:
    end = name.rfind("/")
    if end > 0 and name[end - 1] != "/":
        return name[:end]
    return name.rpartition("/")[0] if is_url(name) else os.path.dirname(name)


def base_name(name: str) -> str:
    return name.rpartition("/")[2]


def beside(name: str, other: str) -> str:
    return within(parent(name), other)


def within(folder: str, *names: str) -> str:
    return "/".join((folder, *names)) if is_url(folder) else os.path.join(folder, *names)


def logs_last(name: str) -> tuple[int, str]:
    """Sort key for files of segments, in the order in which they may appear: logs after indexes, since an index without its log is ignored,
    and manifests of a tier last, since a log without the one beside it is."""
    return name.endswith(".log") + 2 * name.endswith(".rsm-manifest"), name


def with_suffix(name: str, suffix: str) -> str:
    dot = name.rfind(".")
    return name[:dot] + suffix if dot > name.rfind("/") and "//" not in name else beside(name, base_name(name).rpartition(".")[0] + suffix)


def _arrow() -> Any:
    """The module with pyarrow's file systems. It takes a while to import, and what reads this machine's files needs none of it."""
    from pyarrow import fs

    return fs


@lru_cache(maxsize=32)
def _file_system(root: str) -> "tuple[fs.FileSystem, str]":
    """File system of a URL's beginning, and the path of that beginning there."""
    fs = _arrow()
    host, mark, query = root.partition("?")
    try:
        return fs.FileSystem.from_uri(f"{host}/{mark}{query}")
    except OSError as error:
        is_amazon = root.startswith("s3:") and "endpoint_override=" not in query and "AWS_ENDPOINT_URL" not in os.environ
        advice = "; for another store than Amazon's, set AWS_ENDPOINT_URL" if is_amazon else ""
        raise StorageError(f"{root}: {error}{advice}") from error
    except (ArrowException, ValueError) as error:
        reason = f"pyarrow: {error}"
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(f"{root}/")
    except ImportError as error:
        if "Unrecognized filesystem" not in reason:
            raise ArgumentError(f"{root}: {reason}") from error
        if isinstance(error, ModuleNotFoundError):
            raise missing_package(f"{root}: {reason}; fsspec may know it", "fsspec") from error
        raise MissingPackageError(f"{root}: {reason}; fsspec: {error}") from error
    except ValueError as error:
        raise ArgumentError(f"{root}: {reason}; fsspec: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def _at(url: str) -> "tuple[fs.FileSystem, str, str, str]":
    """File system, path there, and the beginnings of the URL and of the path that correspond."""
    match = _URL.match(url)
    assert match is not None
    system, top = _file_system(match["root"])
    top = top.rstrip("/")
    return system, f"{top}/{match['path'].strip('/')}".rstrip("/") or "/", match["root"], top


def _entry(info: "fs.FileInfo", system: "fs.FileSystem", root: str, top: str, details: dict[str, Any]) -> FolderEntry:
    path = info.path if not top or info.path.startswith(top) else f"/{info.path}"
    name = f"{root}/{(path[len(top) :] if top else path).lstrip('/')}"
    if info.type == _arrow().FileType.Directory:
        return FolderEntry(name, 0, True)
    if _here(name) is not None and (status := _stat(path)) is not None:
        return FolderEntry(name, info.size or 0, False, identity=identity.seen(path, status=status)[1])
    return FolderEntry(name, info.size or 0, False, identity=identity.of_object(info, system.type_name, details))


def _from_fsspec(path: str, details: dict[str, Any], system: "fs.FileSystem", root: str, top: str) -> FolderEntry:
    """As `_entry`, from what fsspec tells of a file; its names for what tells versions of an object apart are not always the same."""
    fs = _arrow()
    if details["type"] == "directory":
        return _entry(fs.FileInfo(path, fs.FileType.Directory), system, root, top, {})
    info = fs.FileInfo(path, fs.FileType.File, size=details["size"], mtime=details.get("mtime"))
    return _entry(info, system, root, top, details)


def _here(name: str) -> str | None:
    """Path of a file of this machine; None for other names."""
    if not is_url(name):
        return name
    return name.removeprefix("local://") if name.startswith("local:///") else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def look(name: str) -> FolderEntry | None:
    """The file or folder of this name; None if there is none."""
    try:
        if "://" not in name or not is_url(name):
            mode, now = identity.seen(name)
            return FolderEntry(name, now.size, stat.S_ISDIR(mode), stat.S_ISREG(mode), now)
        return repeated(lambda: _look_at(name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ArrowException) as error:
        raise StorageError(f"{name}: cannot be inspected: {error}") from error


def _look_at(url: str) -> FolderEntry | None:
    system, path, root, top = _at(url)
    if (inner := fsspec_of(system)) is not None:
        return _from_fsspec(path, inner.info(path), system, root, top)
    info = system.get_file_info(path)
    return None if info.type == _arrow().FileType.NotFound else _entry(info, system, root, top, {})


def look_into(name: str) -> tuple[FolderEntry | None, list[FolderEntry] | None]:
    """As `look`, and at a URL what is in the folder, if the name may be that of one; both are asked for at the same time."""
    if "://" not in name:
        return look(name), None
    last = base_name(name)
    if not is_url(name) or name.startswith("http") or "." in last or _WILD.search(last):
        # A web server would send the file.
        return look(name), None
    with workers(FOLDER) as thread:
        below = thread.submit(listing, name)
        entry = look(name)
        return entry, below.result() if entry is not None and entry.is_folder else None


def listings(folders: list[str]) -> Iterator[list[FolderEntry] | None]:
    """What is in each of some folders of one folder; some at a time at URLs, and None on this machine, where nobody waits for an answer."""
    return _listings(folders) if is_url(folders[0]) else repeat(None, len(folders))


def _listings(folders: list[str]) -> Iterator[list[FolderEntry]]:
    with workers(LIST) as pool:
        yield from pool.map(listing, folders)


def listing(folder: str, unusable: list[str] | None = None) -> list[FolderEntry]:
    """Files and folders in a folder, sorted by name; ``unusable`` takes the names of broken links, devices, sockets and FIFOs."""
    try:
        if "://" not in folder or not is_url(folder):
            return looked_at_files(folder, unusable)
        system, path, root, top = _at(folder)
        if (inner := fsspec_of(system)) is not None:
            below = repeated(lambda: inner.ls(path, detail=True))
            others = [details for details in below if details["name"].strip("/") != path.strip("/")]
            entries = [_from_fsspec(details["name"].rstrip("/"), details, system, root, top) for details in others]
        else:
            infos = repeated(lambda: system.get_file_info(_arrow().FileSelector(path)))
            entries = [_entry(info, system, root, top, {}) for info in infos]
        return sorted(entries, key=attrgetter("name"))
    except (OSError, ArrowException) as error:
        raise StorageError(f"{folder}: cannot be listed: {error}") from error


def missing_bucket(name: str) -> str | None:
    """The bucket of an S3 URL if it does not exist; None also if it may not be asked for."""
    match = _URL.match(name) if name.startswith("s3://") else None
    with suppress(StorageError):
        return match["root"] if match is not None and look(match["root"]) is None else None
    return None


def matches(pattern: str) -> list[FolderEntry]:
    """Files and folders that match a glob, sorted by name; ``*`` matches within one folder."""
    if not is_url(pattern):
        return [entry for name in sorted(glob.glob(pattern)) if (entry := look(name)) is not None]
    match = _URL.match(pattern)
    assert match is not None
    entries = [FolderEntry(match["root"], 0, True)]
    for part in filter(None, match["path"].split("/")):
        if _WILD.search(part):
            below = (entry for folder in entries if folder.is_folder for entry in listing(folder.name))
            entries = [entry for entry in below if fnmatchcase(base_name(entry.name), part)]
        else:
            entries = [entry for folder in entries if (entry := look(f"{folder.name}/{part}")) is not None]
    return entries


def read_bytes(name: str) -> bytes | None:
    """All bytes of a small file; None if it is missing or must not be read, on this machine also if it cannot be read. An error if a file
    system far away failed again and again: the file may be there, and without it other bytes may be taken for the right ones."""
    if not is_url(name):
        try:
            with open(name, "rb") as file:
                return file.read()
        except OSError:
            return None
    try:
        return repeated(lambda: _read_at(name))
    except (OSError, ArrowException) as error:
        if is_final(error):
            return None
        raise StorageError(f"{name}: cannot be read: {error}") from error


def _read_at(url: str) -> bytes:
    system, path, _, _ = _at(url)
    if (inner := fsspec_of(system)) is not None:
        return bytes(inner.cat_file(path))
    with system.open_input_file(path) as file:
        return bytes(file.read())


def modified_ms(name: str) -> int:
    """When a file was modified, ms since 1970."""
    if not is_url(name):
        try:
            return os.stat(name).st_mtime_ns // 1_000_000
        except OSError as error:
            raise StorageError(f"{name}: cannot be inspected: {error.strerror}") from error
    system, path, _, _ = _at(name)
    return (system.get_file_info(path).mtime_ns or 0) // 1_000_000


def current(name: str) -> Identity | None:
    """Identity of the file that has this name now; None if there is no file."""
    if is_url(name):
        system, path, _, _ = _at(name)
        if (inner := fsspec_of(system)) is not None:
            inner.invalidate_cache(parent(path))
    entry = look(name)
    return None if entry is None else entry.identity


def real_folder(name: str) -> tuple[int, int] | None:
    """Device and inode of a folder of this machine, which are the same for all links to it; None at a URL."""
    path = _here(name)
    status = None if path is None else _stat(path or ".")
    return None if status is None else (status.st_dev, status.st_ino)


def holds_nothing(name: str) -> bool:
    """Whether a file of this machine with size 0 is really empty: files in ``/proc`` have size 0, but may have bytes or be unreadable."""
    try:
        with open(name, "rb", buffering=0) as file:
            return not file.read(1) or os.fstat(file.fileno()).st_size > 0
    except PermissionError:
        return True
    except OSError:
        return False


def open_input(url: str) -> Any:
    """Open a file, at a URL or of this machine, for random access; a ``pyarrow.NativeFile``."""
    try:
        system, path = file_system(url)
        return repeated(lambda: system.open_input_file(path))
    except (OSError, ArrowException) as error:
        raise StorageError(f"{url}: cannot be opened: {error}") from error


@contextmanager
def _reported(text: str) -> Iterator[None]:
    """A block in which errors of a file system become a StorageError with a text."""
    try:
        yield
    except (OSError, ArrowException) as error:
        raise StorageError(f"{text}: {getattr(error, 'strerror', None) or error}") from error


def make_folder(name: str) -> None:
    with _reported(f"{name}: cannot be written"):
        if not is_url(name):
            os.makedirs(name or ".", exist_ok=True)
            return
        system, path, _, _ = _at(name)
        system.create_dir(path, recursive=True)


def send(path: str, url: str, is_second: bool = False) -> None:
    """Copy a file of this machine to a URL. If that fails, an incomplete file may be left there."""
    make_folder(parent(url))
    system, target, _, _ = _at(url)
    try:
        with _reported(f"{url}: cannot be written"), open(path, "rb") as source, system.open_output_stream(target) as out:
            shutil.copyfileobj(source, out, _COPIED)
    except StorageError as error:
        # If the first answer to it is lost, S3 completes an upload again. Other stores of its kind do not know its parts then.
        if is_second or "CompleteMultipartUpload" not in str(error.__cause__):
            raise
        send(path, url, is_second=True)


def move(name: str, place: str) -> None:
    """Rename a file within its file system, in an existing folder, or rename a folder of this machine; object stores copy."""
    with _reported(f"{name}: cannot be moved to {place}"):
        if not is_url(name):
            os.rename(name, place)
            return
        system, path, _, _ = _at(name)
        system.move(path, _at(place)[1])


def remove(name: str) -> None:
    """Remove a file, or at a URL a folder with its contents; no error if it does not exist."""
    with _reported(f"{name}: cannot be removed"), suppress(FileNotFoundError):
        if not is_url(name):
            os.unlink(name)
        elif (entry := look(name)) is not None:
            system, path, _, _ = _at(name)
            (system.delete_dir if entry.is_folder else system.delete_file)(path)


def put(url: str, data: bytes) -> None:
    """Write a small file at a URL; under this name it is complete or does not exist, even if the writer is killed."""
    draft = f"{url}.partial"
    make_folder(parent(url))
    system, path, _, _ = _at(draft)
    with _reported(f"{url}: cannot be written"), system.open_output_stream(path) as out:
        out.write(data)
    move(draft, url)


def file_system(name: str) -> "tuple[fs.FileSystem, str]":
    """The file system of a name, and the path there."""
    return _at(name)[:2] if is_url(name) else (_arrow().LocalFileSystem(), os.path.abspath(name))
