package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.Locale;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a scan counts, for Spark's UI. */
public final class LogMetrics {
  private LogMetrics() {}

  static CustomMetric[] all() {
    return new CustomMetric[] {
      new LogBytes(), new LogBatches(), new ArrowBytes(), new Damaged(), new Lost(), new ValuesLost(), new FieldsLost(), new AfterOpen(),
      new DecodeMs(), new WaitMs(), new SharedBytes(), new MemoryBytes()
    };
  }

  /** The metrics of a task so far, as Python counted them, and its own. */
  static CustomTaskMetric[] of(JsonNode counted, long arrowBytes, long waitMs) {
    return new CustomTaskMetric[] {
      metric("logBytes", counted), metric("logBatches", counted), new Value("arrowBytes", arrowBytes), metric("damaged", counted),
      metric("lost", counted), metric("valuesLost", counted), metric("fieldsLost", counted), metric("afterOpen", counted),
      metric("decodeMs", counted), new Value("waitMs", waitMs), metric("sharedBytes", counted), metric("memoryBytes", counted)
    };
  }

  private static CustomTaskMetric metric(String name, JsonNode counted) {
    return new Value(name, counted == null ? 0 : counted.path(name).asLong());
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** Spark makes one of each by its class, so each needs a public constructor. */
  private abstract static class Named implements CustomMetric {
    private final String name;
    private final String description;

    Named(String name, String description) {
      this.name = name;
      this.description = description;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return description;
    }
  }

  /** What tasks have together. */
  abstract static class Sum extends Named {
    Sum(String name, String description) {
      super(name, description);
    }

    @Override
    public String aggregateTaskMetrics(long[] found) {
      return String.valueOf(Arrays.stream(found).sum());
    }
  }

  /** The most of any task. A worker serves many tasks: its peak may be of one before. */
  private abstract static class Peak extends Named {
    Peak(String name, String description) {
      super(name, description);
    }

    @Override
    public String aggregateTaskMetrics(long[] found) {
      return String.format(Locale.ROOT, "%.1f MiB", Arrays.stream(found).max().orElse(0) / (double) (1 << 20));
    }
  }

  public static final class SharedBytes extends Peak {
    public SharedBytes() {
      super("sharedBytes", "peak memory that a Python worker shares");
    }
  }

  public static final class MemoryBytes extends Peak {
    public MemoryBytes() {
      super("memoryBytes", "peak memory of a Python worker, shared memory included");
    }
  }

  public static final class LogBytes extends Sum {
    public LogBytes() {
      super("logBytes", "bytes of the log");
    }
  }

  public static final class LogBatches extends Sum {
    public LogBatches() {
      super("logBatches", "record batches of the log");
    }
  }

  public static final class ArrowBytes extends Sum {
    public ArrowBytes() {
      super("arrowBytes", "bytes of Arrow columns");
    }
  }

  public static final class Damaged extends Sum {
    public Damaged() {
      super("damaged", "damaged stretches left out");
    }
  }

  public static final class Lost extends Sum {
    public Lost() {
      super("lost", "records in damaged stretches, as far as they are known");
    }
  }

  public static final class ValuesLost extends Sum {
    public ValuesLost() {
      super("valuesLost", "keys and values of which something could not be decoded");
    }
  }

  public static final class FieldsLost extends Sum {
    public FieldsLost() {
      super("fieldsLost", "fields of keys and values that could not be decoded");
    }
  }

  public static final class AfterOpen extends Sum {
    public AfterOpen() {
      super("afterOpen", "committed records after an open transaction, which are not read");
    }
  }

  public static final class DecodeMs extends Sum {
    public DecodeMs() {
      super("decodeMs", "ms decoding in Python");
    }
  }

  public static final class WaitMs extends Sum {
    public WaitMs() {
      super("waitMs", "ms waited for Python");
    }
  }
}
