"""Fast paths, each beside a general path that returns the same, and the switch that turns them off: the environment variable KOLUMN_PATHS.

"general" turns all of them off, "-short,-streamed" those two. It is for tests, which compare the paths, and for a look at a suspect result.
It is read when a path is first asked for, and holds for the CPU; GPU kernels have no second path.
"""

import os
from functools import cache

from kolumn.core.errors import ArgumentError

STREAMED, MESSAGES, SHORT, TOGETHER = "streamed", "messages", "short", "together"
FILTER, DOWN_CONVERSION, JSON = "filter", "down-conversion", "json"

FAST = {
    STREAMED: "batches of format 2 block by block from the file (`decode/host/streamed.py`)",
    MESSAGES: "messages of formats 0 and 1 likewise (`decode/host/streamed.py`)",
    SHORT: "records with short numbers, and few short headers (`cpu_fallback/fields/records.py`)",
    TOGETHER: "small segments in one call (`decode/small_segments.py`)",
    FILTER: "batches of format 2 that are compacted, without columns (`cpu_fallback/encode/rewrite.py`)",
    DOWN_CONVERSION: "batches of format 2 to messages, without columns (`writers/regroup.py`)",
    JSON: "JSON by a loop, and not by the plain reader (`cpu_fallback/values/json.py`)",
}
"""Each fast path, and what it is for. `bench/results/fast_paths.json` has what each brings to a whole operation, on several kinds of data:
1.3 or more in some of its rows, or it would go."""


@cache
def turned_off() -> frozenset[str]:
    """The paths that KOLUMN_PATHS turns off, an ArgumentError if it has an unknown value; `turned_off.cache_clear` has it read again."""
    chosen = os.environ.get("KOLUMN_PATHS")
    if not chosen:
        return frozenset()
    if chosen == "general":
        return frozenset(FAST)
    off = {path.strip() for path in chosen.split(",")}
    if not off <= {f"-{path}" for path in FAST}:
        raise ArgumentError(f"KOLUMN_PATHS={chosen!r}: expected general, or some of {','.join(f'-{path}' for path in FAST)}")
    return frozenset(path[1:] for path in off)
