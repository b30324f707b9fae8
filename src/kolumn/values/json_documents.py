"""The texts of a JSON Schema: its own and those that it refers to, and what a reference names in them. Base URIs, anchors and pointers as
the drafts 4 to 2020-12 have them. More is found than they allow: a pointer that a resource lacks is looked for in its whole document, and a
reference by the name with which it is registered.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote, urldefrag, urljoin

from kolumn.core.errors import ArgumentError, shown
from kolumn.values.schemas.schema import Schema

logger = logging.getLogger("kolumn.values")
LookUp = Callable[[str, int], Schema | None]  # The schema of a subject and version.
_SINGLE = (
    *("items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else", "unevaluatedItems"),
    *("unevaluatedProperties", "contentSchema"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_OLD = ("draft-03", "draft-04", "draft-06", "draft-07")


@dataclass(frozen=True)
class SchemaPlace:
    """A schema within a text: its node, the base URI there, the node that has that URI, and the whole text. ``is_old``: what is beside a
    ``$ref`` does not count, as before 2019-09.
    """

    node: object
    base: str
    resource: object
    document: object
    is_old: bool = False

    @property
    def keywords(self) -> Mapping[str, object]:
        """The keywords of the schema; none of true, of false, and of what is no schema."""
        return self.node if isinstance(self.node, Mapping) else {}

    def at(self, node: object) -> "SchemaPlace":
        """A schema directly within this one."""
        own = _id(node)
        if not isinstance(node, Mapping) or (own is None and "$schema" not in node):
            return replace(self, node=node)
        draft = node.get("$schema")
        is_old = any(name in draft for name in _OLD) if isinstance(draft, str) else self.is_old
        if own is None or own.startswith("#") or (is_old and "$ref" in node):
            return replace(self, node=node, is_old=is_old)
        return SchemaPlace(node, joined(self.base, own), node, self.document, is_old)

    def inner(self) -> Iterator["SchemaPlace"]:
        """The schemas directly within this one."""
        node = self.keywords
        found = [one for name in _SINGLE if isinstance(one := node.get(name), Mapping)]
        found += [one for name in _LISTS if isinstance(some := node.get(name), list) for one in some]
        found += [one for name in _MAPS if isinstance(some := node.get(name), Mapping) for one in some.values()]
        yield from map(self.at, found)


def _id(node: object) -> str | None:
    """The URI that a schema gives itself; drafts 3 and 4 call it ``id``."""
    found = [node[name] for name in ("$id", "id") if isinstance(node.get(name), str)] if isinstance(node, Mapping) else []
    return found[0] if found else None


def joined(base: str, uri: str) -> str:
    """A URI without its fragment, from the base that it is relative to."""
    try:
        return urldefrag(urljoin(base, uri))[0]
    except ValueError:
        return uri.partition("#")[0]


class Documents:
    """The text of a schema, and those of its references, which are looked up when the first ``$ref`` leads out of the text. `ArgumentError`
    if the text is not JSON; ``where`` is what the schema is.
    """

    def __init__(self, schema: Schema, where: str, look_up: LookUp | None) -> None:
        self._where, self._look_up = where, look_up
        self._waiting, self._resources = list(schema.references), dict[str, SchemaPlace]()
        self._anchors: dict[tuple[int, str], SchemaPlace] = {}
        self._tops: dict[int, SchemaPlace] = {}  # The whole text, by its node.
        self._loaded, self._told = set[tuple[str, int]](), set[str]()
        try:
            root = json.loads(schema.text)
        except ValueError as error:
            raise ArgumentError(f"{where}: not a JSON Schema: {error}") from error
        self.root = self._add(root, "")

    def target(self, place: SchemaPlace, ref: str) -> SchemaPlace | None:
        """What a reference names; None if it is nowhere, which a warning says once."""
        uri, _, fragment = ref.partition("#")
        resource = place if not uri else self._resource(joined(place.base, uri), uri)
        found = None if resource is None else self._within(resource, unquote(fragment))
        if found is None and ref not in self._told:
            self._told.add(ref)
            logger.warning("%s: %s", self._where, shown(f"$ref {ref!r} leads nowhere: what it stands for is JSON text"))
        return found

    def _resource(self, *uris: str) -> SchemaPlace | None:
        while True:
            for uri in uris:
                if uri in self._resources:
                    return self._resources[uri]
            if not self._waiting:
                return None
            self._load()

    def _load(self) -> None:
        """Add the references that are known by now."""
        waiting, self._waiting = self._waiting, []
        for reference in waiting:
            version = reference.subject, reference.version
            found = self._look_up(*version) if self._look_up is not None and version not in self._loaded else None
            self._loaded.add(version)
            if found is None or found.kind != "JSON":
                continue
            self._waiting += found.references
            try:
                root = json.loads(found.text)
            except (ValueError, RecursionError) as error:
                logger.warning("%s: %s", self._where, shown(f"the reference {reference.name!r} is not a JSON Schema: {error}"))
                continue
            place = self._add(root, joined(self.root.base, reference.name))
            self._resources.setdefault(urldefrag(reference.name)[0], place)

    def _add(self, root: object, base: str) -> SchemaPlace:
        """Note the URIs and anchors in a text that is known by ``base``."""
        first = SchemaPlace(root, base, root, root).at(root)
        self._resources.setdefault(base, first)
        self._tops[id(root)] = first
        waiting = [first]
        while waiting:
            place = waiting.pop()
            waiting += place.inner()
            if place.node is place.resource:
                self._resources.setdefault(place.base, place)
            own = _id(place.node)
            names = [place.keywords.get(name) for name in ("$anchor", "$dynamicAnchor")]
            for name in [*names, own[1:]] if own is not None and own.startswith("#") else names:
                if isinstance(name, str):
                    self._anchors.setdefault((id(place.resource), name), place)
        return first

    def _within(self, place: SchemaPlace, fragment: str) -> SchemaPlace | None:
        """What a fragment names in the resource of a place: a pointer or an anchor."""
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((id(place.resource), fragment)) or self._anchors.get((id(place.document), fragment))
        for root in (replace(place, node=place.resource), self._tops[id(place.document)]):
            at: SchemaPlace | None = root
            for step in fragment.split("/")[1:]:
                at = None if at is None else _stepped(at, step.replace("~1", "/").replace("~0", "~"))
            if at is not None:
                return at
        return None


def _stepped(place: SchemaPlace, name: str) -> SchemaPlace | None:
    node = place.node
    if isinstance(node, list) and name.isdecimal() and len(name) < 10 and int(name) < len(node):
        return place.at(node[int(name)])
    return place.at(node[name]) if isinstance(node, Mapping) and name in node else None
