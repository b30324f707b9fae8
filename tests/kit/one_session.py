"""Files of tests that need a Spark session go to one of the processes that share the tests, and go first.

A session takes some seconds to start, as long again until its Java is warm, and 2 GiB.
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]


@cache
def needs_session(file: str) -> bool:
    """Whether a file of tests, by its path from the root, asks for the fixture."""
    text = (ROOT / file).read_text()
    return "spark: SparkSession" in text or 'getfixturevalue("spark")' in text


class OneSession(LoadFileScheduling):
    """Hands out a file at a time, and those that `needs_session` together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "with a session" if needs_session(file) else file
