package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * A stream of a log that grows. Offsets are texts of Python, the same as those of the source written in Python, so either goes on from a
 * checkpoint of the other. What has to be remembered between two questions is here, since a worker may end at any time.
 */
final class LogStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final String description;
  private final String checkpoint;
  private final JsonNode begun;
  private String target;
  private Double triggered;
  private String end;

  LogStream(String description, String checkpoint, Map<String, Object> question) {
    this.description = description;
    this.checkpoint = checkpoint;
    begun = Questions.ask(question);
  }

  /**
   * Where the first micro-batch starts. Spark asks more than once, and again after a crash in that micro-batch; the end of the log has
   * moved on by then. So the first answer is kept with the checkpoint, as that of Spark's Kafka source.
   */
  @Override
  public Offset initialOffset() {
    try {
      return new LogOffset(FirstAnswer.of(checkpoint, "initialOffset", () -> ask("initial", Map.of()).get("offset").asText()));
    } catch (IOException e) {
      throw new UncheckedIOException("the start of the stream cannot be kept in " + checkpoint + ": " + e.getMessage(), e);
    }
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new LogOffset(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    List<ReadLimit> limits = new ArrayList<>();
    for (JsonNode one : begun.get("limits")) {
      long most = one.get(1).asLong();
      limits.add(
          switch (one.get(0).asText()) {
            case "offsets" -> ReadLimit.maxRows(most);
            case "bytes" -> ReadLimit.maxBytes(most);
            default -> ReadLimit.maxFiles((int) Math.min(most, Integer.MAX_VALUE));
          });
    }
    if (begun.get("least").asLong() > 0) {
      limits.add(ReadLimit.minRows(begun.get("least").asLong(), begun.get("delayMs").asLong()));
    }
    return switch (limits.size()) {
      case 0 -> ReadLimit.allAvailable();
      case 1 -> limits.get(0);
      default -> ReadLimit.compositeLimit(limits.toArray(new ReadLimit[0]));
    };
  }

  @Override
  public synchronized void prepareForTriggerAvailableNow() {
    target = ask("target", Map.of()).get("target").asText();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with the start of the micro-batch and its limit");
  }

  @Override
  public synchronized Offset latestOffset(Offset start, ReadLimit limit) {
    Map<String, Object> more = new HashMap<>(Map.of("start", start.json(), "limited", !(limit instanceof ReadAllAvailable)));
    more.put("target", target);
    more.put("triggered", triggered);
    JsonNode found = ask("latest", more);
    end = found.get("end").asText();
    triggered = found.get("triggered").isNull() ? null : found.get("triggered").asDouble();
    return new LogOffset(found.get("offset").asText());
  }

  /** Where the log ended when the last micro-batch was planned, as Spark's Kafka source says. */
  @Override
  public synchronized Offset reportLatestOffset() {
    return end == null ? null : new LogOffset(end);
  }

  @Override
  public synchronized Map<String, String> metrics(Optional<Offset> consumed) {
    Map<String, String> found = new HashMap<>();
    if (end != null && consumed.isPresent()) {
      JsonNode told = ask("behind", Map.of("start", consumed.get().json(), "end", end)).get("metrics");
      told.fieldNames().forEachRemaining(name -> found.put(name, told.get(name).asText()));
    }
    return found;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    List<InputPartition> found = new ArrayList<>();
    JsonNode told = ask("batch", Map.of("start", start.json(), "end", end.json()));
    Places places = new Places(told, SparkSession.active().sparkContext().hadoopConfiguration());
    told.get("splits").forEach(one -> found.add(new LogSplit(one.asText(), places.of(found.size()))));
    return found.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    int unnamed = Settings.version() < 402 ? begun.get("hidden").asInt() : 0;
    return new LogReaderFactory(Settings.tasksPython(), Settings.isShared(), begun.get("work").asText(), unnamed);
  }

  /** Nothing is kept for what was read. */
  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** In the progress of the query. */
  @Override
  public String toString() {
    return description;
  }

  private JsonNode ask(String op, Map<String, ?> more) {
    Map<String, Object> question = new HashMap<>(more);
    question.put("op", op);
    question.put("stream", begun.get("stream").asText());
    return Questions.ask(question);
  }

  /** As the checkpoint has it. */
  private static final class LogOffset extends Offset {
    private final String json;

    LogOffset(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }
}
