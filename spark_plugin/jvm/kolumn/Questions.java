package kolumn;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What the driver asks Python, which alone knows options, paths and formats. */
final class Questions {
  private Questions() {}

  static StructType schema(Map<String, String> options) {
    return (StructType) DataType.fromJson(ask(Map.of("op", "schema", "options", options)).get("schema").asText());
  }

  /** Whether the headers of batches tell these totals exactly. */
  static boolean areTotalsExact(Map<String, String> options, StructType schema, List<String> totals) {
    return ask(Map.of("op", "totals", "options", options, "schema", schema.json(), "totals", totals)).get("exact").asBoolean();
  }

  static List<String> topics(Map<String, String> options) {
    List<String> found = new ArrayList<>();
    ask(Map.of("op", "topics", "options", options)).get("topics").forEach(one -> found.add(one.asText()));
    return found;
  }

  static JsonNode ask(Map<String, Object> question) {
    String python = Settings.driversPython();
    for (int attempt = 0; ; attempt++) {
      Worker worker = null;
      try {
        worker = Workers.take(python);
        worker.send(question);
        JsonNode answer = worker.json();
        Workers.give(worker);
        if (answer.has("error")) {
          throw Errors.ofDriver(answer.get("error").asText());
        }
        return answer;
      } catch (IOException e) {
        if (worker != null) {
          worker.close();
        }
        // An idle worker may have died meanwhile. One that does not start will not start the next time either.
        if (attempt == 1 || worker == null) {
          throw new UncheckedIOException(e.getMessage(), e);
        }
      }
    }
  }
}
