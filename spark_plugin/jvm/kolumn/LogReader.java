package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.NullVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.TaskContext;
import org.apache.spark.resource.ResourceInformation;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** One task: its worker decodes a batch ahead while Spark works on the one before. */
final class LogReader implements PartitionReader<ColumnarBatch> {
  private Worker worker;
  private boolean inMemory;
  private ReadChannel messages;
  private VectorSchemaRoot root;
  private VectorLoader loader;
  private final List<ColumnVector> columns = new ArrayList<>();
  private ColumnarBatch batch;
  private boolean hasEnded;
  private JsonNode counted;
  private JsonNode error;
  private long waitedNs;
  private long arrowBytes;

  LogReader(String python, boolean isShared, String work, String split, int unnamed) {
    long start = System.nanoTime();
    try {
      begin(python, isShared, work, split);
      messages = new ReadChannel(worker.channel);
      root = VectorSchemaRoot.create(MessageSerializer.deserializeSchema(messages), worker.allocator);
      loader = new VectorLoader(root);
      for (FieldVector vector : root.getFieldVectors()) {
        columns.add(LogColumn.of(vector));
      }
      for (int i = 0; i < unnamed; i++) {
        columns.add(new Unnamed());
      }
      batch = new ColumnarBatch(columns.toArray(new ColumnVector[0]));
    } catch (IOException e) {
      String told = worker == null ? e.getMessage() : worker.fate();
      drop();
      throw new UncheckedIOException(told, e);
    } catch (RuntimeException | Error e) {
      drop();
      throw e;
    } finally {
      waitedNs += System.nanoTime() - start;
    }
  }

  private void begin(String python, boolean isShared, String work, String split) throws IOException {
    Worker found = Workers.begin(python, one -> {
      one.send(question("read", isShared && one.isShared(), work, split));
      char status = one.status();
      inMemory = status == 'M';
      error = status == 'X' ? one.json() : null;
    });
    if (error != null) {
      Workers.give(found);
      hasEnded = true;
      throw Errors.ofTask(error.get("error").asText());
    }
    worker = found;
  }

  static Map<String, Object> question(String op, boolean isShared, String work, String split) {
    TaskContext task = TaskContext.get();
    ResourceInformation gpus = task == null ? null : task.resourcesJMap().get("gpu");
    Map<String, Object> found = new HashMap<>(Map.of("op", op, "shared", isShared, "work", work, "split", split));
    found.put("gpus", gpus == null ? new String[0] : gpus.addresses());
    found.put("partition", task == null ? 0 : task.partitionId());
    return found;
  }

  @Override
  public boolean next() throws IOException {
    if (hasEnded) {
      return false;
    }
    long start = System.nanoTime();
    try {
      root.clear();
      worker.send('N');
      char status = worker.status();
      JsonNode told = worker.json();
      if (status == 'X') {
        hasEnded = true;
        throw Errors.ofTask(told.get("error").asText());
      }
      count(told);
      if (status != 'B') {
        hasEnded = true;
        return false;
      }
      try (ArrowRecordBatch found = inMemory ? worker.described() : MessageSerializer.deserializeRecordBatch(messages, worker.allocator)) {
        arrowBytes += found.computeBodyLength();
        loader.load(found);
      }
      columns.forEach(LogColumn::load);
      batch.setNumRows(root.getRowCount());
      return true;
    } catch (ClosedByInterruptException e) {
      drop();
      throw e;
    } catch (IOException e) {
      String told = worker.fate();
      drop();
      throw new IOException(told, e);
    } catch (RuntimeException e) {
      if (!hasEnded) {
        // What the worker says was not understood, so it cannot be asked again.
        drop();
      }
      throw e;
    } finally {
      waitedNs += System.nanoTime() - start;
    }
  }

  /** Spark's "Input Size" is what file systems of Hadoop say that they have read in this thread. */
  private void count(JsonNode told) {
    long before = counted == null ? 0 : counted.path("logBytes").asLong();
    counted = told;
    FileSystem.getStatistics("kolumn", FileSystem.class).incrementBytesRead(told.path("logBytes").asLong() - before);
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return LogMetrics.of(counted, arrowBytes, waitedNs / 1_000_000);
  }

  @Override
  public void close() {
    if (worker == null) {
      return;
    }
    if (root != null) {
      root.close();
    }
    Worker done = worker;
    worker = null;
    try {
      if (!hasEnded) {
        if (Thread.currentThread().isInterrupted()) {
          done.close();
          return;
        }
        done.stop();
      }
      Workers.give(done);
    } catch (IOException e) {
      done.close();
    }
  }

  private void drop() {
    hasEnded = true;
    if (root != null) {
      root.close();
    }
    if (worker != null) {
      worker.close();
      worker = null;
    }
  }

  /** A column that a query names, and Spark before 4.2 does not tell the source of a stream. */
  private static final class Unnamed extends ArrowColumnVector {
    Unnamed() {
      super(new NullVector("unnamed"));
    }

    @Override
    public boolean isNullAt(int row) {
      throw Errors.ofTask(
          "ArgumentError: Spark before 4.2 does not tell a stream which columns beside the table's it wants: name them in option columns");
    }
  }
}
