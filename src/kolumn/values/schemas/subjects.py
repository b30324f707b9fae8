"""Names of subjects: the context that they count in, and which subjects the values of a read have by Confluent's strategies.

    TopicNameStrategy        <topic>-value, <topic>-key
    RecordNameStrategy       full name of the Avro record or the Protobuf message, title of the JSON Schema
    TopicRecordNameStrategy  <topic>-<that name>

Sources: ``QualifiedSubject``, ``ParsedSchema.name`` and the classes of those names in confluentinc/schema-registry.
"""

import json
import re
from dataclasses import dataclass

from kolumn.values.schemas.schema import Schema, full_name

_QUALIFIED = re.compile(r":\.([^:]*):(.*)", re.DOTALL)


def context_of(subject: str | None) -> tuple[str, str]:
    """Context and name of a subject: ``:.context:name``; the default context is ""."""
    match = _QUALIFIED.fullmatch(subject or "")
    return ("", subject or "") if match is None else (match[1], match[2])


def qualified(context: str, name: str) -> str:
    """The subject with a name in a context."""
    return f":.{context}:{name}" if context else name


@dataclass(frozen=True)
class Naming:
    """How the subjects of the values, or of the keys, of some topics are named. ``strategy`` is "topic", "record" or "topic-record",
    ``column`` "value" or "key".
    """

    strategy: str
    column: str
    topics: tuple[str, ...]

    def by_topic(self) -> tuple[str, ...]:
        """The subjects that the names of the topics tell."""
        return tuple(f"{topic}-{self.column}" for topic in self.topics) if self.strategy == "topic" else ()

    def by_record(self, name: str) -> tuple[str, ...]:
        """The subjects of a record with that name."""
        return (name,) if self.strategy == "record" else tuple(f"{topic}-{name}" for topic in self.topics)

    def may_name(self, name: str) -> bool:
        """Whether a subject, without its context, may be one of these topics."""
        if self.strategy == "topic-record":
            return any(name.startswith(f"{topic}-") for topic in self.topics)
        return name in self.by_topic()


def record_name(schema: Schema) -> str | None:
    """Full name of the record of an Avro schema, or title of a JSON Schema; None without one."""
    try:
        root = json.loads(schema.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(root, dict):
        return None
    is_avro = schema.kind == "AVRO"
    if is_avro and root.get("type") not in ("record", "error"):
        return None
    found = root.get("name" if is_avro else "title")
    if not isinstance(found, str) or not found:
        return None
    return full_name(root, "") if is_avro else found
