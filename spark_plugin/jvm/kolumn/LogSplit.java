package kolumn;

import org.apache.spark.sql.connector.read.InputPartition;

/** What a task reads, as text that only Python understands. */
record LogSplit(String data) implements InputPartition {}
