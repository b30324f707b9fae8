"""What the connector and its worker say to each other over their socket. Numbers are big-endian.

    at first                                      int32 descriptor of a block to try, -1 without shared memory
    question  int32 length, JSON                  answer  int32 length, JSON
    read      the same, then one of               answer  "R", "M" or "S", the schema as an Arrow IPC message
              "N" next, "S" stop;                         "B" and a batch, "E" and a JSON of metrics, "X" and a JSON with the error
              each with the numbers of batches
              that the JVM no longer refers to

With "M" a batch is the description of buffers that lie in memory the JVM maps (`shared.py`), with "S" an Arrow IPC message.
"""

import json
import socket
import struct
from collections.abc import Mapping

Json = dict[str, object]
NEXT = b"N"
LARGEST = 1 << 30
"""The largest frame in bytes: a longer one is not from the connector."""


class Gone(Exception):  # noqa: N818 (it is no error that the JVM ends)
    """The JVM has closed its end."""


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes; raises `Gone` at the end of the stream."""
    found = bytearray()
    while len(found) < size:
        try:
            part = connection.recv(size - len(found))
        except OSError as error:
            raise Gone from error
        if not part:
            raise Gone
        found += part
    return bytes(found)


def read_question(connection: socket.socket) -> Json:
    """The next question."""
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    if not 0 <= size <= LARGEST:
        raise Gone
    found: Json = json.loads(read_exactly(connection, size))
    return found


def read_command(connection: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    """The next command of a read, and the numbers of the batches whose memory may be used again."""
    command, count = struct.unpack(">ci", read_exactly(connection, 5))
    return command, struct.unpack(f">{count}i", read_exactly(connection, 4 * count))


def frame(text: bytes) -> bytes:
    """A text with its length."""
    return struct.pack(">i", len(text)) + text


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send bytes; raises `Gone` if nobody reads them any more."""
    try:
        connection.sendall(data)
    except OSError as error:
        raise Gone from error


def send(connection: socket.socket, found: Mapping[str, object], status: bytes = b"") -> None:
    """An answer, as the end of a read after its status."""
    send_all(connection, status + frame(json.dumps(found).encode()))
