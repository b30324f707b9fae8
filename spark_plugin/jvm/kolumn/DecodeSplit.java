package kolumn;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import com.nvidia.spark.RapidsUDF;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.LongAccumulator;
import scala.runtime.AbstractFunction1;

/**
 * From the number of a split to its records, as an array of structs: a function that the accelerator calls with memory of the GPU, and
 * Spark where the operator stays on the CPU. Then all rows of a split are in the heap at a time.
 */
final class DecodeSplit extends AbstractFunction1<Object, Object> implements RapidsUDF, Serializable {
  private static final long serialVersionUID = 1;

  private final Broadcast<String[]> splits;
  private final String work;
  private final String python;
  private final boolean isShared;
  private final StructType schema;
  private final int count;
  private final Map<String, LongAccumulator> counters = new LinkedHashMap<>();

  /** On the driver alone. */
  private final transient LogScan scan;

  DecodeSplit(SparkContext context, LogScan scan, List<String> splits, String work) {
    this.splits = JavaSparkContext.fromSparkContext(context).broadcast(splits.toArray(new String[0]));
    this.count = splits.size();
    this.work = work;
    this.python = Settings.tasksPython();
    this.isShared = Settings.isShared();
    this.schema = scan.readSchema();
    this.scan = scan;
    for (CustomMetric one : LogMetrics.all()) {
      if (one instanceof LogMetrics.Sum) {
        counters.put(one.name(), context.longAccumulator("kolumn: " + one.description()));
      }
    }
  }

  /** Of splits. */
  int count() {
    return count;
  }

  String split(long id) {
    return splits.value()[Math.toIntExact(id)];
  }

  StructType schema() {
    return schema;
  }

  /** What a split has counted goes to the page of the stage in Spark's UI. */
  void count(CustomTaskMetric[] found) {
    for (CustomTaskMetric one : found) {
      if (counters.containsKey(one.name())) {
        counters.get(one.name()).add(one.value());
      }
    }
  }

  @Override
  public ColumnVector evaluateColumnar(int rows, ColumnVector... args) {
    String[] asked = new String[rows];
    try (HostColumnVector ids = args[0].copyToHost()) {
      for (int i = 0; i < rows; i++) {
        asked[i] = split(ids.getLong(i));
      }
    }
    return DeviceDecoder.decode(python, isShared, work, asked, counted -> count(LogMetrics.of(counted, 0, 0)));
  }

  @Override
  public Object apply(Object id) {
    Objects.Fields fields = Objects.Fields.of(schema);
    List<Row> rows = new ArrayList<>();
    TaskContext task = TaskContext.get();
    try (LogReader reader = new LogReader(python, isShared, work, split((Long) id), 0)) {
      while (reader.next()) {
        for (Iterator<InternalRow> found = reader.get().rowIterator(); found.hasNext(); ) {
          rows.add(fields.row(found.next()));
        }
        if (task != null && task.isInterrupted()) {
          // Spark looks at that between rows, and there are none before all are here.
          throw new TaskKilledException();
        }
      }
      count(reader.currentMetricsValues());
      return rows;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Equal scans of one query share an exchange. */
  @Override
  public boolean equals(Object other) {
    return this == other || (other instanceof DecodeSplit split && scan != null && scan.equals(split.scan));
  }

  @Override
  public int hashCode() {
    return schema.hashCode();
  }
}
