"""What is refused because a log is one of Redpanda, and the term in a name that is written."""

from collections.abc import Iterable

from kolumn.core.errors import ArgumentError, shown
from kolumn.formats import redpanda
from kolumn.source.redpanda import named
from kolumn.source.segments import Segment


def term_in(stem: str) -> int | None:
    """The term in the name of a segment of Redpanda, without its suffix; None for other names."""
    own = named(f"{stem}.log")
    return None if own is None else own.raft.term


def refuse_redpanda(segments: Iterable[Segment], why: str) -> None:
    """Raise `ArgumentError` if one of the segments is Redpanda's, with the reason, a clause."""
    for segment in segments:
        if segment.raft is not None or segment.format == redpanda.FORMAT.name:
            raise ArgumentError(
                f"{shown(segment.path)}: this is a segment of Redpanda, and {why}. Convert the log to Kafka's format first: "
                "kolumn.convert(source, target, source_format='redpanda')"
            )
