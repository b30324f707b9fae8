"""Types of NumPy arrays by their contents. All are in host memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]  # bytes of a segment, or of payloads
Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]  # rows of the batch table, of shape (n, `kolumn.formats.table.WIDTH`)
Row = NDArray[np.int64]  # one row of the batch table
AnyArray = NDArray[Any]  # an array of any type, including structured ones
