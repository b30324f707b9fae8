package kolumn;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Goes to the executors with what all tasks of a scan share, and how many columns may be asked for that Spark has not named. */
record LogReaderFactory(String python, boolean isShared, String work, int unnamed) implements PartitionReaderFactory {
  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("the connector returns columns, and no rows");
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    String split = partition instanceof KeyedSplit keyed ? keyed.data() : ((LogSplit) partition).data();
    return new LogReader(python, isShared, work, split, unnamed);
  }
}
