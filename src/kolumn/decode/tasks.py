"""Which ranges a thread decodes together."""

from collections.abc import Iterator

from kolumn.decode.small_segments import MOST_SEGMENTS, SMALL
from kolumn.source.segments import Range


def tasks_of(source: Iterator[Range], chunk_bytes: int) -> Iterator[list[Range]]:
    """Ranges for a thread each: one, or several small ones. If the source fails, those that it named before come first."""
    held: list[Range] = []
    size, failed = 0, None
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
            held, size = [], 0
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
