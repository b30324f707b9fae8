package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportOrdering;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** What a query reads. It is planned once, by Python, when Spark first asks for statistics or partitions. */
final class LogScan
    implements Scan, Batch, SupportsReportStatistics, SupportsReportPartitioning, SupportsReportOrdering, SupportsRuntimeV2Filtering {
  private static final List<String> IN_RANGES = List.of("topic", "partition", "offset", "timestamp");

  private final Map<String, String> options;
  private final StructType schema;
  private final String conditions;
  private final Map<String, Object> question;
  private final List<Object> found = new ArrayList<>();
  private final Top top;
  private final boolean isAccelerated;
  private String obstacle;
  private boolean isStream;
  private JsonNode plan;
  private DecodeSplit decode;

  LogScan(
      LogTable table, Map<String, String> options, StructType schema, List<Predicate> conditions, int limit, List<String> totals,
      Top top) {
    this.options = options;
    this.schema = schema;
    this.conditions = conditions.stream().map(Predicate::toString).collect(Collectors.joining(" AND "));
    question = new HashMap<>(Map.of("op", "plan", "options", options, "schema", table.schema().json(), "asked", schema.json()));
    question.putAll(Map.of("conditions", Conditions.of(conditions.toArray(new Predicate[0])), "limit", limit, "totals", totals));
    this.top = top;
    question.put("top", top);
    isAccelerated = Accelerator.plans();
    obstacle = isAccelerated ? Accelerator.obstacle(options, schema, totals) : null;
  }

  /** Whether the accelerator's operators decode this scan. */
  boolean goesToGpu() {
    return isAccelerated && obstacle == null;
  }

  /** Why not, in a session with the accelerator; else null. */
  String obstacle() {
    return obstacle;
  }

  void stayOnCpu(String why) {
    obstacle = why;
  }

  /** The function that decodes the splits: the same one however often Spark plans the query. */
  synchronized DecodeSplit decode() {
    if (decode == null) {
      List<String> splits = new ArrayList<>();
      plan().get("splits").forEach(one -> splits.add(one.asText()));
      decode = new DecodeSplit(SparkSession.active().sparkContext(), this, splits, plan().get("work").asText());
    }
    return decode;
  }

  private synchronized JsonNode plan() {
    if (plan == null) {
      boolean hasKey = List.of(schema.fieldNames()).containsAll(List.of("topic", "partition"));
      // Operators of the accelerator know nothing of how a scan is partitioned.
      plan = Questions.plan(asked(hasKey && Settings.isKeyed() && !goesToGpu(), false));
    }
    return plan;
  }

  private Map<String, Object> asked(boolean isKeyed, boolean mustBeKeyed) {
    Map<String, Object> asked = new HashMap<>(question);
    asked.putAll(Map.of("slots", Settings.slots(), "keyed", isKeyed, "mustBeKeyed", mustBeKeyed, "found", found));
    // On the GPU a split is one array.
    asked.put("most", goesToGpu() ? Accelerator.splitBytes() : 0);
    return asked;
  }

  @Override
  public NamedReference[] filterAttributes() {
    // Rows that a later filter takes would be among the first.
    boolean hasRows = ((List<?>) question.get("totals")).isEmpty() && top == null;
    List<String> names = List.of(schema.fieldNames());
    return IN_RANGES.stream().filter(name -> hasRows && names.contains(name)).map(Expressions::column).toArray(NamedReference[]::new);
  }

  /** What Spark finds out while the query runs, as keys of the other side of a join. */
  @Override
  public synchronized void filter(Predicate[] predicates) {
    boolean isKeyed = plan().path("keys").isArray();
    found.addAll(Conditions.of(predicates));
    plan = Questions.plan(asked(isKeyed, isKeyed));
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    StringBuilder text = new StringBuilder("kolumn ");
    text.append(Given.withoutSecrets(new TreeMap<>(options).toString())).append(", columns: ").append(String.join(", ", schema.fieldNames()));
    text.append(conditions.isEmpty() ? "" : ", where: " + conditions);
    text.append((int) question.get("limit") < 0 ? "" : ", limit: " + question.get("limit"));
    text.append(top == null ? "" : ", top by headers: " + top);
    text.append(((List<?>) question.get("totals")).isEmpty() ? "" : ", from headers: " + question.get("totals"));
    return text.append(obstacle == null ? "" : ", decoded on the CPU: " + obstacle).toString();
  }

  /** What EXPLAIN shows of a scan that goes to the GPU: as much as of any other. */
  String function() {
    return description().replaceFirst("kolumn", "kolumn_decode");
  }

  /** Of a stream nothing is known, as of Spark's Kafka source: what a batch would read may be much more, or no batch. */
  @Override
  public Statistics estimateStatistics() {
    JsonNode found = isStream ? MissingNode.getInstance() : plan();
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return told("bytes");
      }

      @Override
      public OptionalLong numRows() {
        return told("rows");
      }

      private OptionalLong told(String name) {
        return found.has(name) ? OptionalLong.of(found.get(name).asLong()) : OptionalLong.empty();
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
    Places places = new Places(plan(), SparkSession.active().sparkContext().hadoopConfiguration());
    for (JsonNode split : plan().get("splits")) {
      String[] hosts = places.of(found.size());
      found.add(keys.isArray() ? KeyedSplit.of(split.asText(), keys.get(found.size()), hosts) : new LogSplit(split.asText(), hosts));
    }
    return found.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new LogReaderFactory(Settings.tasksPython(), Settings.isShared(), plan().get("work").asText(), 0);
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
    isStream = true;
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

  /** Topic and partition are the same in a split that names them; offsets ascend in one that is a whole topic partition. */
  @Override
  public SortOrder[] outputOrdering() {
    long names = plan().path("ordered").asBoolean() ? 3 : plan().path("keys").isArray() ? 2 : 0;
    return Stream.of("topic", "partition", "offset")
        .limit(names)
        .map(name -> Expressions.sort(Expressions.column(name), SortDirection.ASCENDING))
        .toArray(SortOrder[]::new);
  }

  /** Equal scans of one query share an exchange. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LogScan scan && schema.equals(scan.schema) && question.equals(scan.question) && found.equals(scan.found);
  }

  @Override
  public int hashCode() {
    return question.hashCode();
  }
}
