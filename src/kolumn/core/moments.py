"""Times and durations as people say them: ``yesterday``, ``last-tuesday``, ``7d``."""

import re
import time

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DAY_MS = UNITS_MS["d"]
_DURATION = re.compile(rf"(\d{{1,9}}) ?({'|'.join(UNITS_MS)})")
_WEEKDAYS = ("thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday")
"""From the day on which 1970 began."""


def now_ms() -> int:
    return int(time.time() * 1000)


def duration_ms(text: str) -> int | None:
    """Milliseconds of a text such as ``7d``; None if it is no duration."""
    match = _DURATION.fullmatch(text.strip().lower())
    return None if match is None else int(match[1]) * UNITS_MS[match[2]]


def moment_ms(text: str, now: int) -> int | None:
    """Milliseconds since 1970 of a time before ``now``; None if the text is none. Days begin at midnight, UTC.

    A duration is that long ago. A weekday, with or without ``last``, is the latest one before today.
    """
    ago = duration_ms(text)
    if ago is not None:
        return now - ago
    words = re.split(r"[-_\s]+", text.strip().lower())
    day = now // _DAY_MS
    match words:
        case ["now"]:
            return now
        case ["today"]:
            return day * _DAY_MS
        case ["yesterday"]:
            return (day - 1) * _DAY_MS
        case [name] | ["last", name] if name in _WEEKDAYS:
            return (day - 1 - (day - 1 - _WEEKDAYS.index(name)) % 7) * _DAY_MS
    return None
