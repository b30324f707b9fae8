"""In the daemons of Spark's Pythons: what their workers import, each for a second, is there before they are forked.

Python runs this when it starts, if its folder is on the path. Spark forks a worker for each kind of question, and again after each error.
"""

import importlib
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    for name in (*sys.orig_argv[3:4], "pandas", "pyarrow", "pyspark.worker", "kolumn.spark_plugin.source"):
        importlib.import_module(name)
