package kolumn;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.AnalysisException;
import scala.collection.immutable.Map;

/** What Python says as the errors that Spark has for sources written in Python, so that callers see the same ones with and without the jar. */
final class Errors {
  private static final String CONDITION = "PYTHON_DATA_SOURCE_ERROR";

  private Errors() {}

  /** Of the driver: an AnalysisException, which interfaces of Spark do not declare. */
  static RuntimeException ofDriver(String told) {
    return Errors.<RuntimeException>undeclared(new AnalysisException(CONDITION, parameters("plan", told)));
  }

  static RuntimeException ofTask(String told) {
    return new SparkRuntimeException(CONDITION, parameters("read", told), null, new QueryContext[0], "");
  }

  private static Map<String, String> parameters(String action, String told) {
    return new Map.Map3<>("action", action, "type", "kolumn", "msg", told);
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> RuntimeException undeclared(Throwable error) throws T {
    throw (T) error;
  }
}
