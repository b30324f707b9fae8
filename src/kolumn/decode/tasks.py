"""Which ranges a thread decodes together."""

from collections.abc import Iterator

from kolumn.decode.small_segments import MOST_SEGMENTS, SMALL
from kolumn.source.segments import Range


def tasks_of(source: Iterator[Range], chunk_bytes: int, more_bytes: int = 0, after: int = 0) -> Iterator[list[Range]]:
    """Ranges for a thread each: one, or several small ones. If the source fails, those that it named before come first.

    Several have about ``chunk_bytes``. If that is little, so that threads share the small ranges of a short source too, ``more_bytes``
    are for those of a long one, after so many of the first ones: each task costs waits for Python's lock.
    """
    held: list[Range] = []
    size, begun, failed = 0, 0, None
    while True:
        try:
            one = next(source)
        except StopIteration:
            break
        except BaseException as error:
            failed = error
            break
        own = one.end - one.start
        if held and (own > SMALL or size + own > chunk_bytes or len(held) == MOST_SEGMENTS):
            yield held
            held, size, begun = [], 0, begun + 1
            if begun >= after:
                chunk_bytes = max(chunk_bytes, more_bytes)
        if own > SMALL:
            yield [one]
        else:
            held.append(one)
            size += own
    if held:
        yield held
    if failed is not None:
        try:
            raise failed
        finally:
            del failed
