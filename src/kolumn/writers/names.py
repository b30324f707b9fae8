"""What is refused because a log is one of Redpanda, and the term in a name that is written."""

from collections.abc import Iterable

from kolumn.core.errors import ArgumentError
from kolumn.formats import redpanda
from kolumn.source.redpanda import named
from kolumn.source.segments import Segment

_INSTEAD = "Convert the log first: kolumn.convert(source, target, source_format='redpanda') writes it as a log of Kafka"


def term_in(stem: str) -> int | None:
    """The term in the name of a segment of Redpanda, without its suffix; None for other names."""
    own = named(f"{stem}.log")
    return None if own is None else own.raft.term


def refuse_redpanda(format: str, why: str) -> None:
    """Raise `ArgumentError` if a format is Redpanda's, with the reason, a clause."""
    if format == redpanda.FORMAT.name:
        raise ArgumentError(f"format={format!r}: {why}. {_INSTEAD}")


def refuse_segments(segments: Iterable[Segment], why: str) -> None:
    """Raise `ArgumentError` if one of the segments has a name that Redpanda gives, with the reason, a clause."""
    for segment in segments:
        if segment.raft is not None:
            raise ArgumentError(f"{segment.path}: this is a segment of Redpanda, and {why}. {_INSTEAD}")
