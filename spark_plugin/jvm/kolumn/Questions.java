package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What the connector asks Python, which alone knows options, paths and formats. */
final class Questions {
  private static final int TRIES = 2;

  private Questions() {}

  static StructType schema(Map<String, String> options) {
    return (StructType) DataType.fromJson(ask(Map.of("op", "schema", "options", options)).get("schema").asText());
  }

  /** Whether the headers of batches tell these totals exactly. */
  static boolean areTotalsExact(Map<String, String> options, StructType schema, List<String> totals) {
    return ask(Map.of("op", "totals", "options", options, "schema", schema.json(), "totals", totals)).get("exact").asBoolean();
  }

  /** Of each condition, whether it is useful for the plan, and whether topic and partition alone decide it. */
  static JsonNode conditions(Map<String, String> options, StructType schema, List<List<Object>> conditions) {
    return ask(Map.of("op", "conditions", "options", options, "schema", schema.json(), "conditions", conditions));
  }

  static List<String> topics(Map<String, String> options) {
    List<String> found = new ArrayList<>();
    ask(Map.of("op", "topics", "options", options)).get("topics").forEach(one -> found.add(one.asText()));
    return found;
  }

  /** A plan; where the headers of many segments have to be read for it, the executors do that first. */
  static JsonNode plan(Map<String, Object> question) {
    JsonNode found = ask(question);
    if (!found.has("job")) {
      return found;
    }
    List<String> pieces = new ArrayList<>();
    found.get("job").forEach(one -> pieces.add(one.asText()));
    JavaSparkContext context = JavaSparkContext.fromSparkContext(SparkSession.active().sparkContext());
    Map<String, Object> again = new HashMap<>(question);
    again.put("pieces", context.parallelize(pieces, pieces.size()).map(new Piece(Settings.tasksPython())).collect());
    return ask(again);
  }

  static JsonNode ask(Map<String, Object> question) {
    Settings.check();
    return ask(Settings.driversPython(), question);
  }

  /** The answer. Questions change nothing, so one whose worker was killed is asked again, of another. */
  static JsonNode ask(String python, Map<String, Object> question) {
    int died = 0;
    while (true) {
      Worker worker = null;
      boolean isAnswered = false;
      try {
        worker = Workers.take(python);
        worker.send(question);
        JsonNode answer = worker.json();
        Workers.give(worker);
        isAnswered = true;
        if (answer.has("error")) {
          throw Errors.ofDriver(answer.get("error").asText());
        }
        return answer;
      } catch (ClosedByInterruptException e) {
        // A query that is stopped interrupts its thread, and Spark knows that by the cause.
        throw new UncheckedIOException(e);
      } catch (Pipes.Late e) {
        throw new UncheckedIOException(e.getMessage(), e);
      } catch (IOException e) {
        String told = worker == null ? e.getMessage() : worker.fate();
        // Those that were idle may have died long before.
        died += worker != null && worker.hasBeenIdle() ? 0 : 1;
        if (died == TRIES) {
          throw new UncheckedIOException(told, e);
        }
      } finally {
        if (worker != null && !isAnswered) {
          worker.close();
        }
      }
    }
  }
}
