"""A process that plans and decodes for the connector, for one caller at a time.

The JVM starts it as ``python -P -m kolumn.spark_plugin.connector.worker SOCKET``, and keeps it for the next task. It ends when its
standard input does, that is with the JVM, however that ends.
"""

import logging
import os
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import cast

import pyarrow as pa
from pyspark.worker_util import setup_memory_limits

from kolumn.spark_plugin.connector.questions import answer, in_words
from kolumn.spark_plugin.connector.shared import SharedBlocks, can_describe, from_start, probe
from kolumn.spark_plugin.connector.task import CONSTANT, Task
from kolumn.spark_plugin.connector.wire import NEXT, Gone, Json, frame, read_command, read_question, send, send_all
from kolumn.spark_plugin.connector.work import Work, unpacked
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.session.gpu_task import assign


class Worker:
    """One connection to the JVM."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.blocks: SharedBlocks | None = None

    def serve(self) -> None:
        """Answer questions and read until the JVM is gone."""
        while True:
            question = read_question(self.connection)
            if question["op"] == "read":
                self._read(question)
            else:
                send(self.connection, answer(question))

    def _read(self, question: Json) -> None:
        """Decode a split; one batch is decoded ahead while Spark works on the last."""
        asked = True
        try:
            assign(cast(list[str], question["gpus"]), cast(int, question["partition"]))
            task = Task(unpacked(question["split"], Split), unpacked(question["work"], Work))
            in_memory = self._in_memory(bool(question["shared"]), task.schema)
            send_all(self.connection, (b"M" if in_memory else b"S") + task.schema.serialize().to_pybytes())
            asked = False
            waiting = task.next()
            while self._told() == NEXT:
                asked = True
                if waiting is None:
                    break
                self._hand_over(waiting, in_memory)
                asked = False
                waiting = task.next()
        except Gone:
            raise
        except Exception as error:
            # The JVM hears of it when it asks for the next batch, and not at all if it stops.
            if asked or self._told() == NEXT:
                send(self.connection, {"error": in_words(error)}, b"X")
                return
        send(self.connection, asdict(task.counted) | {"decodeMs": round(task.counted.decodeMs)}, b"E")

    def _in_memory(self, shared: bool, schema: pa.Schema) -> bool:
        if not shared or not can_describe(schema):
            return False
        if self.blocks is None:
            self.blocks = SharedBlocks()
            self.blocks.use()
        return True

    def _told(self) -> bytes:
        command, released = read_command(self.connection)
        if self.blocks is not None:
            self.blocks.release(released)
        return command

    def _hand_over(self, batch: pa.RecordBatch, in_memory: bool) -> None:
        if in_memory:
            assert self.blocks is not None
            send_all(self.connection, b"B" + frame(self.blocks.describe(from_start(batch), CONSTANT)))
        else:
            send_all(self.connection, b"B" + batch.serialize().to_pybytes())


def _until_orphaned() -> None:
    """Standard input ends when the JVM does."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def main(path: str) -> None:
    """Serve the JVM that listens at a path."""
    # Ctrl-C in a terminal reaches the JVM as well, which decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_until_orphaned, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr, level=logging.WARNING)
    setup_memory_limits(int(os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "-1")))
    with socket.socket(socket.AF_UNIX) as connection, suppress(Gone, ConnectionError):
        connection.connect(path)
        send_all(connection, struct.pack(">i", probe()))
        Worker(connection).serve()


if __name__ == "__main__":
    main(sys.argv[1])
