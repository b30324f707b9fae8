"""Planning by a Spark job, where the headers of many segments have to be read to cut them.

Only the JVM can start one. So the plan stops with the pieces of the job, tasks do them in their workers, and the plan is asked for once
more, with what they found.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from kolumn.spark_plugin.connector.wire import Json
from kolumn.spark_plugin.connector.work import packed, unpacked
from kolumn.spark_plugin.session.session import MANY, Run, by_threads

_PIECE = 100
"""Segments of one piece: enough of them for a task, and few enough for all slots to be busy."""


class Job(Exception):  # noqa: N818 (it is no error)
    """A plan needs a job first.

    Attributes
    ----------
    pieces : list of str
        What its tasks do.
    """

    def __init__(self, pieces: list[str]) -> None:
        super().__init__(f"{len(pieces)} pieces")
        self.pieces = pieces


def by_tasks(question: Json) -> Run:
    """Applies functions in this process if there are few items; raises `Job` if there are many and no job has been done yet."""

    def run(function: Callable[[Any], Any], items: list[Any]) -> Iterable[Any]:
        told = question.get("pieces")
        if told is None and len(items) >= MANY:
            raise Job([packed((function, items[at : at + _PIECE])) for at in range(0, len(items), _PIECE)])
        known = dict(pair for text in cast(list[str], told or []) for pair in unpacked(text, list))
        # A segment may have grown meanwhile.
        rest = [one for one in items if one not in known]
        known |= zip(rest, by_threads(function, rest), strict=True)
        return [known[one] for one in items]

    return run


def done(question: Json) -> Json:
    """What a task of the job finds."""
    function, items = unpacked(question["piece"], tuple)
    return {"found": packed(list(zip(items, by_threads(function, items), strict=True)))}
