"""Which small ranges threads get together."""

from collections.abc import Iterator

import pytest

from kolumn.core.errors import KolumnError
from kolumn.decode.small_segments import MOST_SEGMENTS, SMALL, tasks_of
from kolumn.source.segments import Range, Segment

EACH = 100


def ranges(count: int, size: int = EACH) -> Iterator[Range]:
    for i in range(count):
        yield Range.whole(Segment(f"{i}.log", "t", 0, i, size))


def sizes(tasks: Iterator[list[Range]]) -> list[int]:
    return [sum(one.end for one in task) for task in tasks]


def test_tasks_are_short_at_first() -> None:
    """A short source is shared by all threads, and a long one costs few tasks."""
    assert sizes(tasks_of(ranges(45), 4 * EACH, 10 * EACH, 3)) == [400] * 3 + [1000] * 3 + [300]
    assert sizes(tasks_of(ranges(12), 4 * EACH, 10 * EACH, 3)) == [400] * 3
    assert sizes(tasks_of(ranges(9), 4 * EACH)) == [400, 400, 100]


def test_large_ranges_are_alone() -> None:
    mixed = iter([*ranges(2), *ranges(1, SMALL + 1), *ranges(3)])
    assert sizes(tasks_of(mixed, 10 * EACH, 20 * EACH, 0)) == [200, SMALL + 1, 300]
    assert [len(task) for task in tasks_of(ranges(MOST_SEGMENTS + 1, 1), 1000, 2000)] == [MOST_SEGMENTS, 1]


def test_what_was_named_before_an_error_comes_first() -> None:
    def failing() -> Iterator[Range]:
        yield from ranges(3)
        raise KolumnError("not listed")

    tasks = tasks_of(failing(), 10 * EACH)
    assert len(next(tasks)) == 3
    with pytest.raises(KolumnError, match="not listed"):
        next(tasks)
