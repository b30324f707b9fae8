package kolumn;

import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The same format as it is in Python: writes, the tables of batches and remarks, and all of it on request. This is the one place
 * that names a class of Spark's execution, but for the plans of a session with the RAPIDS Accelerator.
 */
final class Delegate {
  private static final Set<String> READERS = Set.of("columnar", "python");

  private Delegate() {}

  static boolean isNeeded(CaseInsensitiveStringMap options) {
    Settings.check();
    String reader = options.getOrDefault("reader", Settings.ofSession("spark.kolumn.reader", "columnar")).toLowerCase(Locale.ROOT);
    if (!READERS.contains(reader)) {
      throw Errors.ofDriver("ArgumentError: option reader: expected columnar or python, found '" + reader + "'");
    }
    return "python".equals(reader) || !"records".equalsIgnoreCase(options.getOrDefault("table", "records"));
  }

  static TableProvider provider() {
    try {
      Class<?> kind = Class.forName("org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2");
      Object made = kind.getConstructor().newInstance();
      kind.getMethod("setShortName", String.class).invoke(made, "kolumn");
      return (TableProvider) made;
    } catch (ReflectiveOperationException e) {
      throw new UnsupportedOperationException(
          "this Spark has no Python data sources as Kolumn's jar (for Spark 4.0 to 4.3) knows them: leave kolumn-spark.jar out", e);
    }
  }
}
