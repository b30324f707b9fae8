"""What text in a column is: which binary values are UTF-8, and names of files as values."""

import os

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.errors import without_secrets

# RE2 matches bytes in a column without an encoding. Unicode's table 3-7: no surrogates, no overlong forms, no code above U+10FFFF.
_UTF8 = (
    r"(?s)\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


def is_utf8(column: pa.Array) -> pa.BooleanArray:
    """Whether each value of a binary column is valid UTF-8; null for a null."""
    return pc.match_substring_regex(column, _UTF8)


def in_column(name: str) -> str:
    """A name as a value of a table, which is UTF-8: other bytes, surrogates in Python, are shown as ``\\xff``, a URL's secrets as ``***``.

    Messages for people have `shown` names.
    """
    return without_secrets(name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace"))
