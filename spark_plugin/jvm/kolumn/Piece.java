package kolumn;

import java.util.Map;
import org.apache.spark.api.java.function.Function;

/** A task of a job that plans: it asks a worker of the executor. */
record Piece(String python) implements Function<String, String> {
  @Override
  public String call(String piece) {
    return Questions.ask(python, Map.of("op", "piece", "piece", piece)).get("found").asText();
  }
}
