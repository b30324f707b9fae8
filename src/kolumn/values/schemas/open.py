"""Which collection of schemas a read uses, from what its caller names."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from kolumn.core import keywords
from kolumn.core.errors import ArgumentError, MissingPathError
from kolumn.source import storage
from kolumn.source.names import LOG
from kolumn.source.segments import named_parts
from kolumn.values.schemas.given import SUFFIXES, AskedSchemas, ListedSchemas, Text, given_schemas, named_schemas
from kolumn.values.schemas.schema import Collection, Kind
from kolumn.values.schemas.service import Client, ServiceSchemas
from kolumn.values.schemas.topic import TOPIC, topic_schemas

Given = str | os.PathLike[str] | Mapping[Any, Any] | Callable[[Any], Text | None] | Collection | Client
"""What `schemas_of` takes: a path, a URL, a dict, a function, a collection, a client of confluent-kafka."""

_SERVICE = re.compile(r"(https?|mock)://")
_METHODS = ("by_id", "by_guid", "by_fingerprint", "version", "newest", "only")


def schemas_of(given: Given | None, source: keywords.Source | None = None, kind: Kind | None = None) -> Collection:
    """The collection of schemas that a caller names, or the topic `_schemas` beside what is read.

    Parameters
    ----------
    given : optional
        None: the topic `_schemas` that lies beside ``source``, or in it. A path (or a URL of storage): a directory `_schemas-0`, one of
        its segments, a log directory that has one, a folder of files `<id>.avsc`, `<subject>.avsc`, `.proto` or `.json`, or one such
        file. A URL of a registry (http://, https://, mock://), a dict with its configuration (``url``), or a client of
        confluent-kafka. A dict of schemas by id, GUID or subject (`kolumn.values.schemas.given.given_schemas`), a function that returns
        them (`kolumn.values.schemas.given.AskedSchemas`), or a collection, which is returned.
    source : str, PathLike or iterable of those, optional
        What is read: log directories, topic-partition directories, segments, globs. Used only if ``given`` is None.
    kind : str, optional
        "AVRO", "PROTOBUF" or "JSON": type of schemas in a dict or from a function that are text; found by their text if not given.

    Returns
    -------
    Collection
        `kolumn.values.schemas.schema.Schemas` that can be listed. Threads may use it at the same time; processes get it by pickle unless it
        has a function or a client that can't be.

    Raises
    ------
    ArgumentError
        There are no schemas there; the text names what was looked at.
    MissingError
        A package is missing for the registry or the URL.
    """
    if given is None:
        return _beside(source)
    if isinstance(given, str | os.PathLike):
        name = storage.plain(os.fspath(given))
        return ServiceSchemas(name) if _SERVICE.match(name) else _at(name)
    if isinstance(given, Mapping):
        return ServiceSchemas(given) if "url" in given else given_schemas(given, kind)
    if all(hasattr(given, method) for method in _METHODS):
        return cast(Collection, given)
    if hasattr(given, "get_schema"):
        return ServiceSchemas(cast(Client, given))
    if callable(given):
        return AskedSchemas(given, kind)
    raise ArgumentError(f"value_schemas={given!r}: expected a path, a URL, a dict or a function")


def _beside(source: keywords.Source | None) -> Collection:
    """The topic `_schemas` in or beside the directories of a source."""
    looked_at: dict[str, bool] = {}
    for part in named_parts(source):
        for place in _places(storage.plain(os.fspath(part))):
            if place not in looked_at:
                found = storage.look(place)
                looked_at[place] = found is not None and found.is_folder
    folders = [place for place, there in looked_at.items() if there]
    if not folders:
        seen = f"there is no {', no '.join(looked_at)}" if looked_at else f"nothing is at {source!r}" if source else "no source is given"
        raise ArgumentError(f"no schemas: {seen}; name them by value_schemas: a path, a URL, a dict or a function")
    return topic_schemas(folders)


def _places(name: str) -> Iterable[str]:
    """Where the topic could be for one part of a source: in a log directory, beside a partition's directory, beside a segment's."""
    found = storage.look(name)
    for entry in storage.matches(name) if found is None else [found]:
        own = entry.name if storage.is_url(entry.name) else os.path.abspath(entry.name)
        folder = own.rstrip("/") if entry.is_folder else storage.parent(own)
        yield storage.within(folder, TOPIC)
        if storage.base_name(folder) == TOPIC:
            yield folder
        yield storage.within(storage.parent(folder), TOPIC)


def _at(name: str) -> Collection:
    """The schemas at a path."""
    found = storage.look(name)
    if found is None:
        raise MissingPathError(f"{name}: no such file or directory")
    if not found.is_folder:
        suffix = os.path.splitext(name)[1]
        return _files([found]) if suffix in SUFFIXES else topic_schemas([name])
    entries = storage.listing(found.name)
    if any(one.is_folder and storage.base_name(one.name) == TOPIC for one in entries):
        return topic_schemas([storage.within(found.name, TOPIC)])
    if any(one.name.endswith(LOG) for one in entries if not one.is_folder):
        return topic_schemas([name])
    files = [one for one in entries if not one.is_folder and os.path.splitext(one.name)[1] in SUFFIXES]
    if not files:
        raise ArgumentError(
            f"{name}: no schemas: there is no {storage.within(name, TOPIC)}, and {name} has no segments (*.log) of a topic _schemas "
            f"and no files *{', *'.join(SUFFIXES)}"
        )
    return _files(files)


def _files(files: list[storage.FolderEntry]) -> ListedSchemas:
    texts: dict[str, bytes] = {}
    for one in files:
        data = storage.read_bytes(one.name)
        if data is None:
            raise ArgumentError(f"{one.name}: cannot be read")
        texts[storage.base_name(one.name)] = data
    return named_schemas(texts)
