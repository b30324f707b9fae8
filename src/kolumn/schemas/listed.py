"""A collection of schemas that are all in memory."""

import re
from collections.abc import Iterable, Iterator
from uuid import UUID

from kolumn.errors import ArgumentError
from kolumn.schemas.fingerprint import fingerprint_of
from kolumn.schemas.guid import guid_of
from kolumn.schemas.schema import Registered, Schema

_QUALIFIED = re.compile(r":\.([^:]*):(.*)", re.DOTALL)


def context_of(subject: str) -> tuple[str, str]:
    """Context and name of a subject: ``:.context:name``; the default context is ""."""
    match = _QUALIFIED.fullmatch(subject)
    return ("", subject) if match is None else (match[1], match[2])


class ListedSchemas:
    """Schemas by id, GUID, fingerprint, and version of a subject.

    Ids count within a context of a registry, and the prefixes of values name no context: an id means the schema of the default context,
    or else the schema that all other contexts with the id agree on. A subject that is in one other context alone is found without it.

    Parameters
    ----------
    registered : iterable of Registered
        If a context has several schemas with an id, the first one counts.
    """

    def __init__(self, registered: Iterable[Registered]) -> None:
        self._all = tuple(registered)
        self._by_id: dict[int, dict[str, Schema]] = {}
        self._by_guid: dict[UUID, Schema] = {}
        self._subjects: dict[str, dict[int, Registered]] = {}
        self._elsewhere: dict[str, set[str]] = {}
        self._by_fingerprint: dict[int, Schema] | None = None
        for one in self._all:
            context, name = context_of(one.subject or "")
            if one.schema.id is not None:
                self._by_id.setdefault(one.schema.id, {}).setdefault(context, one.schema)
            for guid in (one.schema.guid, guid_of(one.schema.text, one.schema.references)):
                if guid is not None:
                    self._by_guid.setdefault(guid, one.schema)
            if one.subject is not None and one.version is not None:
                self._subjects.setdefault(one.subject, {})[one.version] = one
                self._elsewhere.setdefault(name, set()).add(one.subject)

    def by_id(self, id: int) -> Schema | None:
        """The schema with a registry's number."""
        found = self._by_id.get(id, {})
        if "" in found:
            return found[""]
        same = len({(one.text, one.references) for one in found.values()}) == 1
        return next(iter(found.values())) if same else None

    def by_guid(self, guid: UUID) -> Schema | None:
        """The schema with that GUID, noted or computed from its text."""
        return self._by_guid.get(guid)

    def by_fingerprint(self, fingerprint: int) -> Schema | None:
        """The Avro schema with that fingerprint; those of all schemas are computed at the first call."""
        if self._by_fingerprint is None:
            found: dict[int, Schema] = {}
            for one in self._all:
                if one.schema.kind == "AVRO":
                    try:
                        found.setdefault(fingerprint_of(one.schema, self), one.schema)
                    except ArgumentError:
                        # Values of other schemas can be read all the same.
                        continue
            self._by_fingerprint = found
        return self._by_fingerprint.get(fingerprint)

    def version(self, subject: str, version: int) -> Schema | None:
        """One version of a subject, deleted or not; the newest one if ``version`` is negative."""
        if version < 0:
            return self.newest(subject)
        found = self._versions(subject).get(version)
        return None if found is None else found.schema

    def newest(self, subject: str) -> Schema | None:
        """The highest version of a subject that is not deleted."""
        there = [one for _, one in sorted(self._versions(subject).items()) if not one.is_deleted]
        return there[-1].schema if there else None

    def only(self) -> Schema | None:
        """The schema with the highest id, or the only one; None if there are subjects, or several schemas without an id."""
        if self._subjects or not self._all:
            return None
        schemas = [one.schema for one in self._all]
        numbered = [one for one in schemas if one.id is not None]
        return max(numbered, key=lambda one: one.id or 0) if numbered else schemas[0] if len(schemas) == 1 else None

    def registered(self) -> Iterator[Registered]:
        """All schemas, by subject and version; those without a subject by id."""
        return iter(sorted(self._all, key=lambda one: (one.subject or "", one.version or 0, one.schema.id or 0)))

    def _versions(self, subject: str) -> dict[int, Registered]:
        if subject in self._subjects:
            return self._subjects[subject]
        elsewhere = self._elsewhere.get(subject, set())
        return self._subjects[next(iter(elsewhere))] if len(elsewhere) == 1 else {}
