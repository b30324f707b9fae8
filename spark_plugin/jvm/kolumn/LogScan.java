package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** What a query reads. It is planned once, by Python, when Spark first asks for statistics or partitions. */
final class LogScan implements Scan, Batch, SupportsReportStatistics, SupportsReportPartitioning {
  private final LogTable table;
  private final Map<String, String> options;
  private final StructType schema;
  private final String comparisons;
  private final Map<String, Object> question;
  private JsonNode plan;

  LogScan(
      LogTable table, Map<String, String> options, StructType schema, Comparisons comparisons, int limit, List<String> totals) {
    this.table = table;
    this.options = options;
    this.schema = schema;
    this.comparisons = comparisons.toString();
    question = new HashMap<>(Map.of("op", "plan", "options", options, "schema", table.schema().json(), "asked", schema.json()));
    question.putAll(Map.of("filters", comparisons.found, "limit", limit, "totals", totals));
  }

  private synchronized JsonNode plan() {
    if (plan == null) {
      Map<String, Object> asked = new HashMap<>(question);
      boolean hasKey = List.of(schema.fieldNames()).containsAll(List.of("topic", "partition"));
      asked.putAll(Map.of("slots", Settings.slots(), "keyed", hasKey && Settings.isKeyed()));
      plan = Questions.ask(asked);
    }
    return plan;
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    StringBuilder text = new StringBuilder("kolumn ");
    text.append(new TreeMap<>(options)).append(", columns: ").append(String.join(", ", schema.fieldNames()));
    text.append(comparisons.isEmpty() ? "" : ", ranges: " + comparisons);
    text.append((int) question.get("limit") < 0 ? "" : ", limit: " + question.get("limit"));
    return text.append(((List<?>) question.get("totals")).isEmpty() ? "" : ", from headers: " + question.get("totals")).toString();
  }

  @Override
  public Statistics estimateStatistics() {
    JsonNode found = plan();
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(found.get("bytes").asLong());
      }

      @Override
      public OptionalLong numRows() {
        return OptionalLong.of(found.get("rows").asLong());
      }
    };
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    List<InputPartition> found = new ArrayList<>();
    JsonNode keys = plan().path("keys");
    for (JsonNode split : plan().get("splits")) {
      found.add(keys.isArray() ? KeyedSplit.of(split.asText(), keys.get(found.size())) : new LogSplit(split.asText()));
    }
    return found.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new LogReaderFactory(Settings.tasksPython(), Settings.isShared(), plan().get("work").asText());
  }

  /** Without this Spark plans splits once more to look at them. */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    Map<String, Object> asked = new HashMap<>(question);
    asked.putAll(Map.of("op", "stream", "slots", Settings.slots()));
    return new LogStream(description(), checkpoint, asked);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return LogMetrics.all();
  }

  @Override
  public Partitioning outputPartitioning() {
    int count = plan().get("splits").size();
    return plan().path("keys").isArray()
        ? new KeyGroupedPartitioning(new Expression[] {Expressions.identity("topic"), Expressions.identity("partition")}, count)
        : new UnknownPartitioning(count);
  }

  /** Equal scans of one query share an exchange. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LogScan scan && schema.equals(scan.schema) && question.equals(scan.question);
  }

  @Override
  public int hashCode() {
    return question.hashCode();
  }
}
