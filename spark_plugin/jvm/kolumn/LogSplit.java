package kolumn;

import org.apache.spark.sql.connector.read.InputPartition;

/** What a task reads, as text that only Python understands, and the hosts that have it. */
record LogSplit(String data, String[] preferredLocations) implements InputPartition {}
