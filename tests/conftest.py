"""What holds for all tests."""

import importlib
import os
import signal
from contextlib import suppress
from pathlib import Path

# Under nohup, and in the background of a shell, processes ignore these from their start, and so would all that the tests start.
with suppress(ValueError):
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)

# No test switches the power off: tests of steps say whether files are flushed, and none has to wait for a disk.
os.fsync = lambda file: None

# Tests read what people see on a terminal; those of pipes remove this.
os.environ["KOLUMN_OUTPUT"] = "text"
# GNU readline, which a debugger loads, tells new processes the width of the terminal, though `os.environ` does not have it.
with suppress(ImportError):
    importlib.import_module("readline")
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

# Processes that tests start, Spark's workers among them, import the test kit too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
