"""What a task gets from the plan, as text: what all tasks of a scan share, and what is its own."""

import base64
import pickle
import zlib
from dataclasses import dataclass
from typing import TypeVar, cast

from pyspark.sql.types import StructType

from kolumn.spark_plugin.options.read import LoadOptions

_T = TypeVar("_T")


@dataclass(frozen=True)
class Work:
    """What the tasks of a scan share.

    Attributes
    ----------
    options : LoadOptions
    schema : StructType
        The columns that Spark asked for, in its order; of `totals` those of the results.
    limit : int
        As many rows are enough of each task; negative for all.
    totals : tuple of str
        What is asked for of the headers (`totals.py`); empty for rows.
    live : bool
        Whether the log is being written: the files have to be those that the split was planned from.
    ordered : bool
        Whether Spark was told that offsets ascend in each split.
    """

    options: LoadOptions
    schema: StructType
    limit: int = -1
    totals: tuple[str, ...] = ()
    live: bool = False
    ordered: bool = False


def packed(one: object) -> str:
    """An object as text, compressed: the paths of many segments are much the same."""
    return base64.b64encode(zlib.compress(pickle.dumps(one, pickle.HIGHEST_PROTOCOL), 1)).decode()


def unpacked(text: object, kind: type[_T]) -> _T:
    """The object of a text that `packed` made, in this process or in the driver's."""
    found = pickle.loads(zlib.decompress(base64.b64decode(cast(str, text))))
    assert isinstance(found, kind)
    return found
