"""Kolumn in Spark: after ``register(spark)``, ``spark.read.format("kolumn").load(path)`` is a DataFrame of records.

Columns and types are those of Spark's own Kafka source. ``option("table", "damage")`` with the same options
is the table of what ``errors=skip`` leaves out. ``configure(builder)`` gives a session the columnar connector. ``read_segments(spark,
source)`` returns the same rows by a route that RAPIDS can accelerate, ``export`` is a name of version 0.1,
``convert``, ``compact`` and ``erase`` are those of `kolumn` as Spark jobs. The driver and every worker need Kolumn, pyspark and pandas.

Decisions:

* A micro-batch is a range of offsets, never of files: segments come and go between its tries. Positions in files live as long as one
  plan does.
* The connector knows nothing of logs. The jar (`spark_plugin/jvm/`) answers Spark's public interfaces of data sources version 2. What
  it does not know it asks Python (`spark_plugin/connector/questions.py`); a task sends an opaque split and gets batches. Options, paths,
  splits and decoding are the functions of the source written in Python, so the two cannot differ.
* The jar takes the name by its class, not by a services file: Spark looks for the class `kolumn.DefaultSource` before it looks for
  sources written in Python, and two services files with one name would be an error. What the connector does not do itself (writes,
  tables of batches and remarks) it passes to Spark's class for sources written in Python, which is not public, by reflection.
* A stream's memory is in the JVM, since a worker may end between two questions. Offsets are the texts of `spark_plugin/read/stream.py`, so
  either reader goes on from a checkpoint of the other. Spark asks for the first offset more than once; the answer is kept with the
  checkpoint.
* Memory is used again when the JVM's count of references is zero, not when the next batch is asked for: RAPIDS keeps buffers of many
  batches. Each buffer that the JVM maps counts itself; the number of a batch whose last buffer is gone goes out with the next command
  (`spark_plugin/connector/shared.py`). From 256 MiB on, blocks that wait to be used again go: a small buffer keeps a whole one. Where
  the JVM cannot open memfds, batches go through the pipe.
* JVM and worker talk over the worker's standard input and output. A socket has a path of at most 107 bytes, and on YARN the folder for
  temporary files has a longer one; whoever can reach a path has to be kept out, while a pipe that is inherited has no name. Java cannot
  interrupt a wait for a pipe, so a thread looks at those who wait, and kills the worker of one who is interrupted or has waited too long
  (`Pipes.java`).
* Programs and limits come from the configuration of the SparkContext, never from a session, which SQL may change (`Settings.java`).
* Headers are believed in counts, first and last offsets and last timestamps that are set, as Spark believes the statistics of a Parquet
  file: no checksum covers a header alone. Reads with ranges, `errors=skip`, `read_committed`, drafts, or `checkCrcs=true` decode.
  Batches that compaction has thinned, and formats 0 and 1, are decoded one by one (`spark_plugin/connector/statistics.py`).
* With the RAPIDS Accelerator a planner strategy makes a projection, a generator and a range of a scan (`GpuStrategy.java`), found by a
  services file. It is not a function that returns another frame, because what is pushed down, statistics and the logical plan stay those
  of the scan, and SQL, catalogs and tables go the same way. It is no rule over physical plans, because the accelerator tags plans before
  such a rule would be seen by adaptive execution. These operators have no runtime filters and report no partitioning. What the
  accelerator leaves on the CPU is put back to a BatchScanExec (`LeftOnCpu.java`): the function would make all rows of a split at a time.
* Conditions widen. A condition on offsets or times becomes a range of each topic partition that may hold more, and Spark compares
  again; so nothing depends on how Spark rounds. Conditions on topic and partition alone are decided by the plan, so that headers can
  count what they leave (`spark_plugin/connector/conditions.py`).
* Fields are pruned where that changes no row. An Avro, Protobuf or fixed value is valid or not as a whole, whichever fields are
  decoded, so Spark's pruning decides what is. A JSON value is valid if its wanted members are: all fields of the table are decoded, and
  those that a query does not use are dropped before the batch is handed over.
* An order is promised only where it was seen, since Spark may skip a sort for it: for splits that are whole topic partitions, after a
  look at all their headers, and the task compares offsets (`spark_plugin/connector/work.py`).
* The jar is in the repository, and a test builds it again, byte by byte (`spark_plugin/session/build.py`). The manifest has a digest of
  the sources, so an outdated jar is found without a compiler.
* RAPIDS' Java can neither load nor launch a kernel. A library in the jar does, 200 lines of C between `kolumn.Driver` and CUDA's driver
  (`spark_plugin/jvm/native/`). It finds CUDA and nvCOMP when it is first used, so the jar is the same with and without a GPU. RAPIDS' own
  nvCOMP is inside its libcudf, which shows it to nobody, so the file of Python's package is named to it.
* A Python task has a fixed price in Spark, whatever it decodes. So splits are even where the slots are known, and transforms get larger
  ones. After its first task a worker freezes the objects that its garbage collector would otherwise walk after every task.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kolumn.core.packages import missing_package

if find_spec("pyspark") is None:
    raise missing_package("kolumn.spark_plugin needs pyspark", "pyspark", "pandas")

from pyspark.errors import PySparkException

from kolumn.spark_plugin.read.frames import read_segments
from kolumn.spark_plugin.session.java import configure, connector_jar
from kolumn.spark_plugin.session.session import use_this_python, use_this_python_to_find_formats
from kolumn.spark_plugin.source import DamageSource, RecordSource
from kolumn.spark_plugin.write.export import export
from kolumn.spark_plugin.write.rewrite import compact, convert, erase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DamageSource",
    "RecordSource",
    "compact",
    "configure",
    "connector_jar",
    "convert",
    "erase",
    "export",
    "read_segments",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Register ``format("kolumn")`` in a session.

    Parameters
    ----------
    spark : SparkSession
        The formats stay registered until the session ends; a second call changes nothing. Workers of a local session run this
        Python, unless ``spark.pyspark.python`` or PYSPARK_PYTHON names another one.

    Raises
    ------
    MissingError
        That is a Python without Kolumn.
    ArgumentError
        The session has a setting ``spark.kolumn.*`` that is not known, or whose value means nothing.
    """
    use_this_python(spark)
    for source in (RecordSource, DamageSource):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:
            # Spark 4.0 refuses a name that it finds by itself, and that is this package's. Later ones do so if they find the jar alone.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS" or not spark.version.startswith("4.0."):
                raise


use_this_python_to_find_formats()
